//! What producers and operators of tables on MariaDB and MySQL rely on.

use super::mysql::{Server, Table};
use super::mysql_tables as tables;
use super::tables::Described;
use crate::taking::{all, settlement, wish};
use postroom_core::{Fate, MessageId, Store, Take};
use postroom_store::{Layout, MigrateOptions};
use postroom_testkit::layout_contract::LayoutHarness;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BOTH: [Server; 2] = [Server::MariaDb, Server::MySql];

async fn run(connection: &mut MySqlConnection, sql: &str) -> u64 {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}")).rows_affected()
}

async fn number(connection: &mut MySqlConnection, sql: &str) -> u64 {
    let sql = AssertSqlSafe(format!("SELECT CAST(({sql}) AS UNSIGNED)"));
    sqlx::raw_sql(sql).fetch_one(connection).await.expect("a number").get(0)
}

async fn taken(store: &dyn Store, lane: &str) -> Vec<postroom_core::Batch> {
    store.take(&wish(store, &all(lane)).await).await.expect("taken")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_sees_its_own_numbers_and_counts() {
    for server in BOTH {
        let table = Table::start(tables::numbered(), server).await;
        table.migrate().await;
        let mut owner = table.database.connection().await;
        let insert = "INSERT INTO shop_events (topic, body) VALUES ('orders', '{}')";
        assert_eq!(run(&mut owner, insert).await, 1);
        let last = number(&mut owner, "LAST_INSERT_ID()").await;
        assert_eq!(last, number(&mut owner, "SELECT MAX(id) FROM shop_events").await);
        assert_eq!(run(&mut owner, &format!("{insert}, ('orders', '{{}}')")).await, 2);
        assert_eq!(number(&mut owner, "LAST_INSERT_ID()").await, last + 1);
        assert_eq!(run(&mut owner, "UPDATE shop_events SET processed = true LIMIT 1").await, 1);
        let same =
            format!("INSERT INTO shop_events (id, topic, body) VALUES ({last}, 'orders', '{{}}')");
        assert_eq!(run(&mut owner, &format!("{same} ON DUPLICATE KEY UPDATE note = 'x'")).await, 2);
        assert_eq!(run(&mut owner, &same.replace("INSERT", "INSERT IGNORE")).await, 0);
        assert_eq!(run(&mut owner, &same.replace("INSERT", "REPLACE")).await, 2);
        assert_eq!(run(&mut owner, "DELETE FROM shop_events").await, 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_has_locked_holds_up_no_other() {
    for server in BOTH {
        let table = Table::start(tables::events(), server).await;
        table.migrate().await;
        let words = table.words();
        table
            .execute(&words.insert_many.replace("{from}", "1").replace("{to}", "3"))
            .await
            .expect("rows");
        let store = table.store().await;
        let batch = taken(&*store, words.lane).await.remove(0);
        let lock = "SELECT event_id FROM outbox_events WHERE idempotency_key = 'key-2' FOR UPDATE";
        let held = table.database.open_transaction(lock).await;
        let settled = store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settled");
        assert_eq!(settled.locked.len(), 1, "{settled:?}");
        assert_eq!(
            table
                .value("SELECT COUNT(*) FROM outbox_events WHERE delivered_at IS NULL")
                .await
                .as_deref(),
            Some("1")
        );
        held.await;
        let settled = store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settled");
        assert!(settled.locked.is_empty(), "{settled:?}");
        assert_eq!(
            table
                .value("SELECT COUNT(*) FROM outbox_events WHERE delivered_at IS NULL")
                .await
                .as_deref(),
            Some("0")
        );
    }
}

/// Triggers and functions are replaced one by one there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_meets_no_error_while_the_layout_is_migrated_again() {
    for server in BOTH {
        let table = Table::start(tables::metadata(), server).await;
        table.migrate().await;
        let url = table.database.url().to_owned();
        let insert = table.words().insert;
        let is_over = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&is_over);
        let producer = tokio::spawn(async move {
            let mut connection = MySqlConnection::connect(&url).await.expect("a connection");
            let mut n = 0;
            while !goes_on.load(Ordering::Relaxed) {
                n += 1;
                run(&mut connection, &insert.replace("{n}", &n.to_string())).await;
            }
            n
        });
        for round in 0..5 {
            let mut layout = table.described.layout.clone();
            layout.message.source = Some(format!("'round {round}'"));
            let options = MigrateOptions {
                layout: Some(Arc::new(layout)),
                services: vec!["billing_event".to_owned()],
                ..MigrateOptions::default()
            };
            postroom_store::migrate_with(table.database.url(), &options).await.expect("migrated");
        }
        is_over.store(true, Ordering::Relaxed);
        let produced: u64 = producer.await.expect("no producer failed");
        table.migrate().await;
        let known = table
            .value(&format!("SELECT COUNT(*) FROM {}.integration_outbox", table.ledger()))
            .await;
        assert_eq!(known, Some(produced.to_string()), "every row is known");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_expression_is_refused_before_anything_is_made() {
    for server in BOTH {
        let Described { mut layout, .. } = tables::numbered();
        layout.state.sent_at = Some("m.at + nonsense(1".to_owned());
        let table = Table::start(tables::numbered(), server).await;
        let options =
            MigrateOptions { layout: Some(Arc::new(layout)), ..MigrateOptions::default() };
        let refused = postroom_store::migrate_with(table.database.url(), &options).await;
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("what the layout says of sent_at does not fit"), "{refused}");
        let made = format!(
            "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{}'",
            table.ledger()
        );
        assert_eq!(table.value(&made).await.as_deref(), Some("0"));
    }
}

/// People name a message by its key, or by the beginning of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_found_by_its_key_and_by_the_beginning_of_it() {
    let server = Server::MariaDb;
    for (described, beginning) in [
        (tables::metadata(), "01J"),
        (tables::numbered(), "1"),
        (tables::binary_uuid(), ""),
        (tables::composite(), ""),
    ] {
        let table = Table::start(described, server).await;
        table.migrate().await;
        table.execute(&table.words().insert.replace("{n}", "1")).await.expect("a row");
        let store = table.store().await;
        let listed = store
            .list(&postroom_core::Filter { limit: 10, ..postroom_core::Filter::default() })
            .await
            .expect("listed");
        let id = listed[0].message.id.clone();
        let found = store.find(&id).await.expect("found").expect("by its id");
        assert_eq!(found.message.id, id);
        let beginning = if beginning.is_empty() {
            id.to_string()[..8].to_owned()
        } else {
            beginning.to_owned()
        };
        let prefix = beginning.parse().expect("a beginning");
        let found = store.find_prefix(&prefix, 10).await.expect("found");
        let found: Vec<MessageId> = found.into_iter().map(|record| record.message.id).collect();
        assert_eq!(found, [id], "{beginning} of {}", table.name());
    }
}

/// A column of the type TIMESTAMP is read in the time zone of the session that asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_is_the_same_in_any_time_zone() {
    for server in BOTH {
        let table = Table::start(tables::binary_uuid(), server).await;
        table.migrate().await;
        // Five and a half hours ahead.
        table.execute(&table.words().insert.replace("{n}", "1")).await.expect("a row");
        let store = table.store().await;
        let now = store.now().await.expect("the time");
        let batch = taken(&*store, table.words().lane).await.remove(0);
        let apart = (now - batch.messages[0].message.created_at).num_seconds().abs();
        assert!(apart < 60, "{apart} s apart");
    }
}

/// Nothing is left of a ledger that was removed, and producers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_is_removed_while_producers_insert() {
    let table = Table::start(tables::events(), Server::MariaDb).await;
    table.migrate().await;
    table.execute(&table.words().insert.replace("{n}", "1")).await.expect("a row");
    table.remove().await;
    table.execute(&table.words().insert.replace("{n}", "2")).await.expect("a row");
    let triggers =
        "SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()";
    assert_eq!(table.value(triggers).await.as_deref(), Some("0"));
    let layout: Layout = table.described.layout.clone();
    postroom_store::remove_ledger(table.database.url(), &layout).await.expect("removed twice");
}

/// The default isolation locks the gap where a row is looked for that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cleanup_in_an_open_transaction_holds_up_no_producer() {
    for server in BOTH {
        let table = Table::start(tables::events(), server).await;
        let words = table.words();
        let many = |from: u32, to: u32| {
            words.insert_many.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
        };
        // Delivered before the ledger was made, and in it.
        table.execute(&many(1, 20)).await.expect("rows");
        table
            .execute("UPDATE outbox_events SET delivered_at = created_at")
            .await
            .expect("delivered");
        table.migrate().await;
        table.execute(&many(21, 60)).await.expect("rows");
        let of = |sql: &str, numbers: &[u32]| {
            // One by one and by the primary key: the table itself would lock more otherwise.
            let each = numbers
                .iter()
                .map(|n| format!("{sql} WHERE event_id = 'ABCDEF00-0000-4000-8000-{n:012}'"));
            each.collect::<Vec<_>>().join("; ")
        };
        for change in [
            of("DELETE FROM outbox_events", &[1, 7, 13, 20]),
            of("DELETE FROM outbox_events", &[21, 30, 40, 60]),
            of("UPDATE outbox_events SET delivered_at = NOW()", &[25, 35, 45]),
            of("UPDATE outbox_events SET delivered_at = NULL", &[2, 9, 16]),
        ] {
            let held = table.database.open_transaction(&change).await;
            let mut producer = table.database.connection().await;
            run(&mut producer, "SET innodb_lock_wait_timeout = 2").await;
            for _ in 0..30 {
                // Keys that fall anywhere between those that are there.
                let sql = "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload) \
                           VALUES (UUID(), 'r', 't', UUID(), '{}')";
                run(&mut producer, sql).await;
            }
            drop(held);
        }
    }
}

/// What was deleted and inserted again under its key has a new number, and an older parcel that nobody needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_replaced_is_delivered_once() {
    for server in BOTH {
        let table = Table::start(tables::kata(), server).await;
        table.migrate().await;
        let row = "INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at) \
                   VALUES ('e1', 't', 'ord_1', '{}', 'PENDING', 0, 0, 0)";
        table.execute(&format!("INSERT {row}")).await.expect("inserted");
        table.execute(&format!("REPLACE {row}")).await.expect("replaced");
        let store = table.store().await;
        let mut sent = 0;
        for _ in 0..4 {
            for batch in taken(&*store, table.words().lane).await {
                sent += batch.messages.len();
                let settled =
                    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settled");
                assert!(settled.late.is_empty(), "{settled:?}");
            }
        }
        assert_eq!(sent, 1);
        assert_eq!(table.left_in_ledger().await, 0);
    }
}

/// The server writes such a column with every outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_every_update_changes_makes_no_other_message_of_a_row() {
    let described = || {
        let layout = Layout::from_toml(
            r#"
            table = "touched"
            key = ["id"]
            to = "noop"
            [message]
            event_type = "m.kind"
            payload = "m.body"
            created_at = "m.ts"
            [state]
            status = "CASE m.st WHEN 'NEW' THEN 'PENDING' WHEN 'RETRY' THEN 'FAILED' WHEN 'DONE' THEN 'SENT' ELSE 'DEAD' END"
            attempts = "m.n"
            due_at = "m.nxt"
            [write]
            sent = { st = "'DONE'" }
            failed = { st = "'RETRY'", n = "$attempts", nxt = "$due", err = "$error" }
            dead = { st = "'BAD'", n = "$attempts", err = "$error" }
            reopened = { st = "'NEW'", n = "0", nxt = "$due" }
            postponed = { nxt = "$due" }
            "#,
        );
        let made_by = "CREATE TABLE touched (id BIGINT AUTO_INCREMENT PRIMARY KEY, kind VARCHAR(30) NOT NULL, body JSON,
            st VARCHAR(10) NOT NULL DEFAULT 'NEW', n INT NOT NULL DEFAULT 0, nxt DATETIME(3), err VARCHAR(10),
            ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))";
        let words = postroom_testkit::layout_contract::Words {
            table: "touched",
            lane: "noop",
            ..tables::numbered().words
        };
        Described {
            name: "touched",
            layout: layout.expect("a layout"),
            made_by: Some(made_by),
            words,
        }
    };
    let table = Table::start(described(), Server::MariaDb).await;
    table.migrate().await;
    table.execute("INSERT INTO touched (kind, body) VALUES ('k', '{}')").await.expect("a row");
    let store = table.store().await;
    let failed = Fate::Failed {
        delay: std::time::Duration::ZERO,
        error: "an error that is longer than its column".to_owned(),
        took: std::time::Duration::ZERO,
    };
    let batch = taken(&*store, "noop").await.remove(0);
    let settled = store.settle(&[settlement(&batch, &failed)]).await.expect("settled");
    assert!(settled.late.is_empty());
    assert_eq!(table.value("SELECT err FROM touched").await.as_deref(), Some("an error t"));
    let batch = taken(&*store, "noop").await.remove(0);
    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settled");
    assert_eq!(table.value("SELECT st FROM touched").await.as_deref(), Some("DONE"));
    let findings = store.diagnose().await.expect("checked");
    assert!(format!("{findings:?}").contains("changes with every UPDATE"), "{findings:?}");
}

/// A table that is swapped for a copy leaves its triggers behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_swapped_gets_its_triggers_again() {
    for server in BOTH {
        let table = Table::start(tables::numbered(), server).await;
        table.migrate().await;
        let made_by = table.described.made_by.expect("the owner's statement");
        let copied = made_by.replace("shop_events", "copied");
        table.execute(&copied).await.expect("a copy");
        table
            .execute("RENAME TABLE shop_events TO old_events, copied TO shop_events")
            .await
            .expect("swapped");
        let findings = table.store().await.diagnose().await.expect("checked");
        assert!(format!("{findings:?}").contains("is another table's"), "{findings:?}");
        table.migrate().await;
        table.execute(&table.words().insert.replace("{n}", "1")).await.expect("a row");
        assert_eq!(taken(&*table.store().await, table.words().lane).await.len(), 1);
        table.execute("DELETE FROM old_events").await.expect("tidied up");
    }
}

/// What does not fit is an outcome that the database refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_does_not_fit_is_refused_and_not_emptied() {
    let Described { mut layout, made_by, words, .. } = tables::numbered();
    layout.write.sent =
        postroom_store::layout::Sent::Set([("processed".to_owned(), "'x'".to_owned())].into());
    let described = Described { name: "unfit", layout, made_by, words };
    let table = Table::start(described, Server::MariaDb).await;
    table.migrate().await;
    table.execute(&table.words().insert.replace("{n}", "1")).await.expect("a row");
    let store = table.store().await;
    let batch = taken(&*store, table.words().lane).await.remove(0);
    let refused = store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect_err("refused");
    assert!(refused.to_string().contains("processed"), "{refused}");
}

/// What is recorded while the triggers that write back are made again is written back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_doubles_nothing_while_the_layout_is_migrated_again() {
    let table = Table::start(tables::events(), Server::MariaDb).await;
    table.migrate().await;
    let many = table.words().insert_many;
    let rows = |from: u32, to: u32| {
        many.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
    };
    table.execute(&rows(1, 900)).await.expect("rows");
    let (store, lane) = (table.store().await, table.words().lane);
    let is_over = Arc::new(AtomicBool::new(false));
    let goes_on = Arc::clone(&is_over);
    let relay = tokio::spawn(async move {
        let (mut delivered, quotas) = (Vec::new(), all(lane));
        let wanted = Take { rows: 20, ..wish(&*store, &quotas).await };
        loop {
            let last = goes_on.load(Ordering::Relaxed);
            // A statement may meet a view or a function that is being made again.
            let Ok(batches) = store.take(&wanted).await else { continue };
            if last && batches.is_empty() {
                return delivered;
            }
            for batch in batches {
                delivered.extend(batch.messages.iter().map(|one| one.message.event_id.clone()));
                let sent = [settlement(&batch, &Fate::Sent)];
                while store.settle(&sent).await.is_err() {}
            }
        }
    });
    for round in 0..6 {
        let mut layout = table.described.layout.clone();
        layout.message.source = Some(format!("'round {round}'"));
        let options =
            MigrateOptions { layout: Some(Arc::new(layout)), ..MigrateOptions::default() };
        postroom_store::migrate_with(table.database.url(), &options).await.expect("migrated");
    }
    table.migrate().await;
    is_over.store(true, Ordering::Relaxed);
    let mut delivered = relay.await.expect("the relay");
    let all = delivered.len();
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), all, "none twice");
    // What a take had claimed that could not be read is given up, for a rescue: it is open.
    let open = "SELECT COUNT(*) FROM outbox_events WHERE delivered_at IS NULL";
    let open: usize = table.value(open).await.expect("a count").parse().expect("a number");
    assert_eq!(open, 900 - all, "what was delivered says so, and what was not is open");
    assert!(all > 0);
}

/// To a collation that ignores case two keys are alike that name two messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_another_case_is_another_message() {
    for server in BOTH {
        let layout = Layout::from_toml(
            r#"
            table = "cased"
            key = ["id"]
            to = "noop"
            message = { event_type = "'t'", payload = "m.body" }
            state = { status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END" }
            write = { sent = { done = "1" }, reopened = { done = "0" } }
            "#,
        );
        let made_by = "CREATE TABLE cased (id VARCHAR(40) PRIMARY KEY, body TEXT, done TINYINT NOT NULL DEFAULT 0)
                       ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci";
        let words = postroom_testkit::layout_contract::Words {
            table: "cased",
            lane: "noop",
            ..tables::numbered().words
        };
        let described = Described {
            name: "cased",
            layout: layout.expect("a layout"),
            made_by: Some(made_by),
            words,
        };
        let table = Table::start(described, server).await;
        table.migrate().await;
        table.execute("INSERT INTO cased (id, body) VALUES ('def', '{}')").await.expect("a row");
        let store = table.store().await;
        let batch = taken(&*store, "noop").await.remove(0);
        store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settled");
        // Without a trigger; then the row of the old key is pruned.
        table.truncate().await;
        table.execute("INSERT INTO cased (id, body) VALUES ('DEF', '{}')").await.expect("a row");
        store.prune(std::time::Duration::ZERO, 100).await.expect("pruned");
        assert_eq!(table.value("SELECT COUNT(*) FROM cased").await.as_deref(), Some("1"));
        let batch = taken(&*store, "noop").await.remove(0);
        assert_eq!(batch.messages[0].message.event_id, "DEF");
        store.settle(&[settlement(&batch, &Fate::Released)]).await.expect("given back");
        table.execute("UPDATE cased SET id = 'Def' WHERE id = 'def'").await.expect("another key");
        let batch = taken(&*store, "noop").await.remove(0);
        assert_eq!(batch.messages[0].message.event_id, "Def");
    }
}
