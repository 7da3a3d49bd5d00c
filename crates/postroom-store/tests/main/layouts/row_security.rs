//! Row-level security of a table's owner, where it hides rows from those who deliver them.

use super::postgres::Table;
use super::tables;
use crate::grants::as_role;
use crate::taking::{all, settlement, wish};
use postroom_core::{Fate, Finding, Severity, Store};
use postroom_testkit::layout_contract::LayoutHarness;
use std::sync::Arc;

async fn findings(store: &dyn Store) -> Vec<Finding> {
    let found = store.diagnose().await.expect("a look");
    found.into_iter().filter(|one| one.problem.contains("row-level security")).collect()
}

/// The first statement in backticks.
fn statement(finding: &Finding) -> String {
    finding.remedy.split('`').nth(1).expect("a statement").to_owned()
}

async fn of_role(table: &Table) -> Arc<dyn Store> {
    let url = as_role(table.database.url(), "postroom_relay");
    postroom_store::open(&url, &table.options()).await.expect("store")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_a_role_from_which_row_security_hides_rows_and_what_mends_it() {
    let table = Table::start(tables::events()).await;
    table.migrate().await;
    let store = table.store_of_relay().await.expect("a relay's rights");
    assert_eq!(findings(&*store).await, [], "without row security");
    table
        .execute("ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY")
        .await
        .expect("the owner's statement");
    assert_eq!(findings(&*table.store().await).await, [], "a superuser is subject to none");
    let found = findings(&*store).await;
    let [fault] = &found[..] else { panic!("one: {found:?}") };
    assert_eq!(fault.severity, Severity::Fault);
    assert!(
        fault.problem.contains("hides every row of it from the role postroom_relay"),
        "{fault:?}"
    );
    assert!(fault.remedy.contains("`ALTER ROLE postroom_relay BYPASSRLS`"), "{fault:?}");

    table
        .execute("CREATE POLICY runs ON outbox_events USING (event_type LIKE 'run.%')")
        .await
        .expect("a policy");
    let found = findings(&*store).await;
    let [warning] = &found[..] else { panic!("one: {found:?}") };
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.problem.contains("some rows"), "{warning:?}");

    // What it says mends it, and then rows are delivered and recorded.
    table.execute(&statement(warning)).await.expect("the statement that mends it");
    assert_eq!(findings(&*store).await, []);
    table.execute(&table.words().insert.replace("{n}", "1")).await.expect("inserted");
    let store = of_role(&table).await;
    let taken = store.take(&wish(&*store, &all("noop")).await).await.expect("taken");
    store.settle(&[settlement(&taken[0], &Fate::Sent)]).await.expect("settled");
    let sent = "SELECT count(*) FROM outbox_events WHERE delivered_at IS NOT NULL";
    assert_eq!(table.value(sent).await.as_deref(), Some("1"));

    // A restrictive policy takes rows away whatever the others let through.
    table
        .execute("CREATE POLICY no_secrets ON outbox_events AS RESTRICTIVE USING (event_type <> 'run.secret')")
        .await
        .expect("a policy");
    assert_eq!(findings(&*store).await[0].severity, Severity::Warning);
}

/// Relays read the table through the ledger's view, with the rights of its owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_the_owner_of_the_view_where_row_security_is_forced_on_it() {
    let table = Table::start(tables::events()).await;
    table.migrate().await;
    table
        .execute(
            "ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
             GRANT SELECT, UPDATE ON outbox_events TO pg_monitor;
             GRANT USAGE ON SCHEMA postroom_outbox_events TO pg_monitor;
             GRANT SELECT ON ALL TABLES IN SCHEMA postroom_outbox_events TO pg_monitor;
             ALTER VIEW postroom_outbox_events.integration_outbox OWNER TO pg_monitor",
        )
        .await
        .expect("the owner's statements");
    let found = findings(&*table.store().await).await;
    let [fault] = &found[..] else { panic!("one: {found:?}") };
    assert!(fault.problem.contains("from the role pg_monitor"), "{fault:?}");
    table.execute(&statement(fault)).await.expect("the statement that mends it");
    assert_eq!(findings(&*table.store().await).await, []);
}
