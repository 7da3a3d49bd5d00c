//! Layouts that do not fit their table: refused by name, before anything is made.

use super::postgres::Table;
use super::tables;
use postroom_core::{StoreErrorKind, with_causes};
use postroom_store::layout::Sent;
use postroom_store::{Layout, MigrateOptions};
use postroom_testkit::layout_contract::LayoutHarness;
use std::sync::Arc;

/// One change that makes an expression of a layout wrong, the key that holds it, and what PostgreSQL says of it.
type Wrong = (fn(&mut Layout), &'static str, &'static str);

const WRONG: [Wrong; 10] = [
    (
        |layout| layout.message.payload = "nonsense(m.body)".to_owned(),
        "message.payload",
        "function nonsense(text) does not exist",
    ),
    (
        |layout| layout.message.payload = "m.id".to_owned(),
        "message.payload",
        "cannot cast type bigint to jsonb",
    ),
    (
        |layout| layout.message.tenant_id = Some("m.topic ->> 'tenant'".to_owned()),
        "message.tenant_id",
        "operator does not exist",
    ),
    (
        |layout| layout.message.created_at = Some("m.processed".to_owned()),
        "message.created_at",
        "cannot cast type boolean to timestamp with time zone",
    ),
    (
        |layout| layout.state.status = "CASE WHEN m.processed THEN 'SENT' ELSE".to_owned(),
        "state.status",
        "syntax error",
    ),
    (
        |layout| layout.state.open = Some("m.topic".to_owned()),
        "state.open",
        "argument of WHERE must be type boolean",
    ),
    (
        |layout| layout.identity = Some("max(m.at)".to_owned()),
        "identity",
        "aggregate functions are not allowed",
    ),
    (
        |layout| {
            layout.write.sent = Sent::Set([("processed".to_owned(), "now()".to_owned())].into());
        },
        "write.sent.processed",
        "column \"processed\" is of type boolean but expression is of type timestamp with time zone",
    ),
    (
        |layout| layout.claimed = [("processed".to_owned(), "'held'".to_owned())].into(),
        "claimed.processed",
        "invalid input syntax for type boolean",
    ),
    (
        |layout| {
            layout.insert = [
                ("topic".to_owned(), "$event_type".to_owned()),
                ("body".to_owned(), "$payload".to_owned()),
                ("processed".to_owned(), "$stream".to_owned()),
            ]
            .into();
        },
        "insert.processed",
        "column \"processed\" is of type boolean but expression is of type text",
    ),
];

fn options(layout: Layout) -> MigrateOptions {
    MigrateOptions { layout: Some(Arc::new(layout)), ..MigrateOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_expression_is_refused_by_its_key_before_anything_is_made() {
    let table = Table::start(tables::numbered()).await;
    let before = table.described().await;
    for (make_wrong, key, words) in WRONG {
        let mut layout = table.described.layout.clone();
        make_wrong(&mut layout);
        let options = options(layout);
        let planned = postroom_store::plan(table.database.url(), &options).await;
        let migrated = postroom_store::migrate_with(table.database.url(), &options).await;
        for refused in [planned.map(|_| ()).err(), migrated.map(|_| ()).err()] {
            let refused = refused.unwrap_or_else(|| panic!("{key} is refused"));
            let text = with_causes(&refused);
            assert_eq!(refused.kind, StoreErrorKind::Refused, "{text}");
            for part in [&format!("`{key}`"), words, "Correct", "nothing was changed"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        let schema = format!("SELECT to_regnamespace('{}') IS NULL", table.schema());
        assert_eq!(table.value(&schema).await.as_deref(), Some("t"), "{key}: no ledger was made");
        assert_eq!(table.described().await, before, "{key}");
    }
    table.migrate().await;
    table.store().await.ready().await.expect("what was refused is in nobody's way");
}

/// A table that Postroom makes is gone again, and every expression that is wrong is named at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wrong_expression_of_a_table_that_is_yet_to_be_made_is_named_at_once() {
    let database = postroom_testkit::Postgres::shared().await.database().await;
    let mut layout = tables::events().layout;
    layout.message.payload = "nonsense(m.payload)".to_owned();
    layout.message.source = Some("m.run_id + 1".to_owned());
    let refused = postroom_store::migrate_with(database.url(), &options(layout)).await;
    let refused = with_causes(&refused.expect_err("refused"));
    for key in ["`message.payload`", "`message.source`"] {
        assert!(refused.contains(key), "{refused}");
    }
    let there = "SELECT to_regclass('outbox_events') IS NULL";
    let is_gone: bool = database.client().await.query_one(there, &[]).await.expect("a look").get(0);
    assert!(is_gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_a_wrong_expression_by_the_same_key() {
    let mut table = Table::start(tables::numbered()).await;
    table.migrate().await;
    let right = table.described.layout.clone();
    for (make_wrong, key, words) in WRONG {
        table.described.layout = right.clone();
        make_wrong(&mut table.described.layout);
        let found = table.store().await.diagnose().await.expect("a look");
        let names = |one: &&postroom_core::Finding| {
            one.problem.contains(&format!("`{key}`")) && one.problem.contains(words)
        };
        assert_eq!(found.iter().filter(names).count(), 1, "{key}: {found:?}");
    }
}
