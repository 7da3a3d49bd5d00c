//! The statements that read somebody else's rows find them by their indexes, whatever statistics the server took.

use super::{Layout, of_rows};
use crate::MigrateOptions;
use crate::layout::{Destination, Dialect};
use crate::mysql::columns;
use crate::mysql::content::CONTENT;
use crate::mysql::literal::{self, filled};
use crate::mysql::plan_tests::{Step, execute, plan};
use crate::mysql::session::Session;
use postroom_testkit::{MariaDatabase, MariaDb, MySql};
use sqlx::Connection as _;
use std::sync::Arc;
use uuid::Uuid;

const ROWS: &str = "
    INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
    WITH RECURSIVE
    digit (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digit WHERE n < 15),
    number (n) AS (SELECT a.n + 16 * b.n + 256 * c.n FROM digit AS a, digit AS b, digit AS c)
    SELECT CONCAT('ABCDEF00-0000-4000-8000-', LPAD(n, 12, '0')), 'r', 't', CONCAT('k', n), '{}' FROM number";

/// A session in the ledger of `outbox_events`, and one beside it in the table's database.
async fn migrated(database: &MariaDatabase) -> (Session, Session, String) {
    let mut layout = Layout::built_in("events", Dialect::Mysql).expect("a layout");
    layout.to = Some(Destination::One("noop".to_owned()));
    let ledger = layout.ledger_database(database.name());
    let options = MigrateOptions { layout: Some(Arc::new(layout)), ..MigrateOptions::default() };
    crate::migrate_with(database.url(), &options).await.expect("migrated");
    let owner = Session::open(database.connection().await, false).await.expect("a session");
    let url = database.url().replace(database.name(), &ledger);
    let connection = sqlx::MySqlConnection::connect(&url).await.expect("a connection");
    (Session::open(connection, true).await.expect("a session"), owner, ledger)
}

async fn rows_are_found_by_their_key(database: &MariaDatabase) {
    let (mut session, mut owner, ledger) = migrated(database).await;
    execute(&mut owner, "SET @postroom_relay = NULL").await;
    let analyze = "ANALYZE TABLE integration_outbox, outbox_delivery, outbox_parcel";
    let ids: Vec<Uuid> =
        (1..=100).map(|n| Uuid::from_u128(0xabcd_ef00_0000_4000_8000 << 48 | n)).collect();
    let (ids, seqs) = (literal::ids(&ids), literal::numbers(1..=100));
    let taken = filled(columns::TAKEN, &[("limit", "1000"), ("headers_limit", "1000")]);
    let lock = include_str!("../sql/lock_messages.sql");
    let (by_number, by_id) = (format!("seq IN ({seqs})"), format!("id IN ({ids})"));
    let statements = [
        (filled(CONTENT, &[("columns", &taken), ("seqs", &seqs)]), "PRIMARY"),
        (filled(lock, &[("index", "PRIMARY"), ("which", &by_number)]), "PRIMARY"),
        (filled(lock, &[("index", "outbox_id"), ("which", &by_id)]), "outbox_id"),
        (filled(include_str!("../sql/recorded.sql"), &[("ids", &ids)]), "outbox_id"),
        (
            format!(
                "{}({ids})",
                filled(include_str!("../sql/dispatched.sql"), &[("columns", columns::MESSAGE)])
            ),
            "outbox_id",
        ),
    ];
    // Statistics of a backlog, of a table emptied since, and of one that was empty.
    for (prepare, analyzed) in [(ROWS, true), ("DELETE FROM outbox_events", true), (ROWS, false)] {
        execute(&mut owner, prepare).await;
        if analyzed {
            execute(&mut session, analyze).await;
            execute(&mut owner, "ANALYZE TABLE outbox_events").await;
        }
        for (sql, key) in &statements {
            let sql = of_rows(sql);
            let steps = plan(&mut session, &sql, &[]).await;
            let of = |table: &str| {
                let step = steps.iter().find(|step| step.table == table);
                step.unwrap_or_else(|| panic!("{table} in {sql}\n{steps:#?}"))
            };
            let is_found =
                |step: &Step| ["range", "ref", "eq_ref", "const"].contains(&step.how.as_str());
            assert!(of("n").key == *key && is_found(of("n")), "{sql}\n{steps:#?}");
            assert!(of("m").key == "PRIMARY" && is_found(of("m")), "{sql}\n{steps:#?}");
        }
        // As the trigger of the ledger says it.
        let write = "UPDATE outbox_events AS m SET m.delivered_at = UTC_TIMESTAMP(6) \
                     WHERE m.event_id = 'ABCDEF00-0000-4000-8000-000000000001'";
        let steps = plan(&mut owner, write, &[]).await;
        assert!(steps.iter().all(|step| step.key == "PRIMARY"), "{steps:#?}");
    }
    execute(&mut owner, &format!("DROP DATABASE {ledger}")).await;
}

#[tokio::test]
async fn rows_are_found_by_their_key_on_mariadb() {
    rows_are_found_by_their_key(&MariaDb::shared().await.database().await).await;
}

#[tokio::test]
async fn rows_are_found_by_their_key_on_mysql() {
    rows_are_found_by_their_key(&MySql::shared().await.database().await).await;
}
