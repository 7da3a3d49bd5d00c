//! Adopting a table that an older outbox made, while its producers go on.

use crate::old_table::{CLAIM, OldTable};
use postroom_core::{NewMessage, StoreErrorKind};
use postroom_store::{MigrateOptions, Migrated};
use postroom_testkit::eventually;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

async fn migrate(table: &OldTable) -> Migrated {
    postroom_store::migrate_with(table.url(), &MigrateOptions::default()).await.expect("adopted")
}

/// What there is in one catalog, in words that two databases can be compared by.
async fn described(table: &OldTable) -> Vec<String> {
    const CATALOG: &str = "
        SELECT 'column ' || c.relname || '.' || a.attnum || ' ' || a.attname || ' '
               || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || ' '
               || a.attidentity::text || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'v')
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'core_outbox'::regnamespace AND a.attnum > 0
        UNION ALL
        SELECT 'relation ' || relkind::text || ' ' || relname || ' '
               || coalesce(array_to_string(reloptions, ','), '') || ' ' || coalesce(relacl::text, '')
        FROM pg_class WHERE relnamespace = 'core_outbox'::regnamespace
        UNION ALL
        SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated::text
        FROM pg_constraint WHERE connamespace = 'core_outbox'::regnamespace
        UNION ALL
        SELECT 'index ' || pg_get_indexdef(indexrelid) || ' ' || indisvalid::text
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = 'core_outbox'::regnamespace
        UNION ALL
        SELECT 'trigger ' || pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'core_outbox'::regnamespace AND NOT t.tgisinternal
        UNION ALL
        SELECT 'function ' || pg_get_functiondef(oid) || coalesce(proacl::text, '')
        FROM pg_proc WHERE pronamespace = 'core_outbox'::regnamespace
        UNION ALL
        SELECT 'view ' || viewname || definition FROM pg_views WHERE schemaname = 'core_outbox'
        UNION ALL
        SELECT 'sequence ' || sequencename || ' ' || start_value || ' ' || increment_by || ' '
               || max_value || ' ' || cache_size || ' ' || cycle::text
        FROM pg_sequences WHERE schemaname = 'core_outbox'
        UNION ALL
        SELECT 'migration ' || number || ' ' || name FROM core_outbox.schema_migration
        ORDER BY 1";
    let rows = table.client.query(CATALOG, &[]).await.expect("the catalog");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_table_is_what_a_fresh_one_is_but_for_the_old_fence() {
    let fresh = OldTable::empty().await;
    fresh.execute("DROP SCHEMA core_outbox CASCADE").await;
    migrate(&fresh).await;
    let adopted = OldTable::filled(3).await;
    migrate(&adopted).await;
    let [fresh_one, adopted_one] = [described(&fresh).await, described(&adopted).await];
    let missing: Vec<_> = fresh_one.iter().filter(|line| !adopted_one.contains(line)).collect();
    assert_eq!(missing, [""; 0]);
    let more: Vec<_> = adopted_one.iter().filter(|line| !fresh_one.contains(line)).collect();
    assert_eq!(
        more,
        [
            "index CREATE UNIQUE INDEX ux_outbox_source ON core_outbox.integration_outbox \
             USING btree (source_stream_id, source_event_id) true",
            "relation i ux_outbox_source  "
        ]
    );

    let options = MigrateOptions { replace_fence: true, ..MigrateOptions::default() };
    let replaced = postroom_store::migrate_with(adopted.url(), &options).await.expect("replaced");
    assert_eq!(replaced.done, ["replacing the fence ux_outbox_source"]);
    assert!(described(&adopted).await == fresh_one);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_that_is_not_sent_gets_its_delivery_while_producers_go_on() {
    let table = OldTable::filled(700).await;
    // Rights on the table alone are what such a producer has, and functions may be nobody's.
    table
        .execute(&format!(
            "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
             DROP ROLE IF EXISTS {role}; CREATE ROLE {role};
             GRANT USAGE ON SCHEMA core_outbox TO {role};
             GRANT SELECT, INSERT ON core_outbox.integration_outbox TO {role}",
            role = table.database.name()
        ))
        .await;
    let producer = table.producer(Some(table.database.name())).await;
    let known = table.producer(None).await;
    eventually("producers at work", SOON, async || (producer.committed() > 5).then_some(())).await;
    let migrated = migrate(&table).await;
    assert_eq!(migrated.applied.first(), Some(&1));
    let done = producer.committed();
    eventually("producers at work", SOON, async || (producer.committed() > done + 5).then_some(()))
        .await;
    let committed = producer.end().await + known.end().await;

    let statuses = table
        .text(
            "SELECT string_agg(line, ' ' ORDER BY line) FROM (
                 SELECT status || '=' || count(*) AS line FROM core_outbox.integration_outbox
                 WHERE source_stream_id = 'stream' GROUP BY status) s",
        )
        .await;
    // Half of what was claimed had failed before.
    assert_eq!(statuses, "DEAD=700 FAILED=1050 ON_HOLD=700 PENDING=1050 SENT=700");
    let live = "SELECT count(*)::text FROM core_outbox.integration_outbox \
                WHERE source_stream_id LIKE 'live%'";
    assert_eq!(table.text(live).await, committed.to_string(), "nothing is lost, nothing twice");

    // Every open message is in a parcel, or has a delivery that says the same; nothing else is.
    let wrong = table
        .text(
            "SELECT count(*)::text FROM core_outbox.integration_outbox m
             FULL JOIN (
                 SELECT message_id, seq, due_at, state, claim FROM core_outbox.delivery
                 UNION ALL
                 SELECT unnest(refs), NULL, NULL, NULL, NULL FROM core_outbox.parcel
             ) d ON d.message_id = m.id
             WHERE (d.message_id IS NOT NULL)
                       <> (coalesce(m.status, '') IN ('PENDING', 'FAILED', 'DEAD'))
                OR d.seq <> m.seq OR d.due_at <> m.due_at OR d.claim IS NOT NULL
                OR d.state <> core_outbox.state_of(m.status)",
        )
        .await;
    assert_eq!(wrong, "0");
    // Numbers are unique and follow the order of creation; what came later comes later.
    let order = table
        .text(
            "SELECT bool_and(seq > before)::text FROM (
                 SELECT seq, lag(seq) OVER (ORDER BY created_at, id) AS before
                 FROM core_outbox.integration_outbox
                 WHERE source_stream_id = 'stream') o",
        )
        .await;
    assert_eq!(order, "true");
    let store = table.store().await;
    store.ready().await.expect("ready");
    let findings = store.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 1, "only the old fence: {findings:?}");
    table.execute(&format!("DROP OWNED BY {0}; DROP ROLE {0}", table.database.name())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_claimed_is_due_after_a_grace_time_and_old_workers_may_finish_it() {
    let table = OldTable::filled(3).await;
    let claimed_grace = Duration::from_secs(3_600);
    let options = MigrateOptions { claimed_grace, ..MigrateOptions::default() };
    postroom_store::migrate_with(table.url(), &options).await.expect("adopted");
    let due = "SELECT string_agg(DISTINCT (due_at > now() + interval '59 minutes'
                                           AND due_at <= now() + interval '60 minutes')::text, ' ')
               FROM core_outbox.delivery d JOIN core_outbox.integration_outbox m ON m.id = d.message_id
               WHERE m.source_event_id";
    let due_at = due.replace("due_at", "d.due_at");
    assert_eq!(table.text(&format!("{due_at} LIKE 'CLAIMED%'")).await, "true");
    assert_eq!(table.text(&format!("{due_at} NOT LIKE 'CLAIMED%'")).await, "false");

    // The old worker's last words, as its repository writes them.
    table
        .execute(
            "UPDATE core_outbox.integration_outbox SET status = 'SENT', sent_at = now()
             WHERE source_event_id = 'CLAIMED-1' AND locked_by = 'old-worker';
             UPDATE core_outbox.integration_outbox SET status = 'DEAD', last_error = 'no'
             WHERE source_event_id = 'CLAIMED-2'",
        )
        .await;
    let left = "SELECT string_agg(m.source_event_id || ' ' || (d.state = 'd')::text, ', ' ORDER BY 1)
                FROM core_outbox.delivery d JOIN core_outbox.integration_outbox m ON m.id = d.message_id
                WHERE m.source_event_id LIKE 'CLAIMED%'";
    let left = left.replace("ORDER BY 1", "ORDER BY m.source_event_id");
    assert_eq!(table.text(&left).await, "CLAIMED-2 true, CLAIMED-3 false");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_dispatcher_is_stopped_by_an_error_before_it_claims_again() {
    let table = OldTable::filled(20).await;
    let dispatcher = table.database.client().await;
    let claimed = dispatcher.query(CLAIM, &[]).await.expect("it works before");
    assert_eq!(claimed.len(), 20);
    let url = table.url().to_owned();
    // It goes on claiming while the table is adopted, until it fails.
    let producer = table.producer(None).await;
    let claiming = tokio::spawn(async move {
        loop {
            if let Err(error) = dispatcher.query(CLAIM, &[]).await {
                return error;
            }
        }
    });
    postroom_store::migrate(&url).await.expect("adopted");
    let error = claiming.await.expect("the old dispatcher ends");
    let constraint = error.as_db_error().and_then(|error| error.constraint()).map(str::to_owned);
    assert_eq!(constraint.as_deref(), Some("claims_live_in_ledger"));
    producer.end().await;
    let claimed =
        "SELECT count(*)::text FROM core_outbox.integration_outbox WHERE status = 'CLAIMED'";
    assert_eq!(table.text(claimed).await, "0");
    let findings = table.store().await.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 1, "only the old fence: {findings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_fence_stands_until_it_is_asked_for() {
    let table = OldTable::filled(1).await;
    // It is known by its columns.
    table.execute("ALTER INDEX core_outbox.ux_outbox_source RENAME TO \"Once\"").await;
    let migrated = migrate(&table).await;
    let note = migrated.notes.iter().find(|note| note.contains("the old fence \"Once\" stands"));
    assert!(note.expect("a note").contains("--replace-fence"), "{migrated:?}");

    let store = table.store().await;
    let first = NewMessage::new("webhook:a", "t").event_id("e").stream("s");
    let id = store.enqueue(&first).await.expect("enqueued").into_id();
    let again = store.enqueue(&first).await.expect("a duplicate");
    assert_eq!((again.id(), again.is_new()), (&id, false));
    // A second integration is refused aloud: a duplicate's answer would lose the message.
    let second = NewMessage::new("webhook:b", "t").event_id("e").stream("s");
    let refused = store.enqueue(&second).await.expect_err("the old fence");
    assert_eq!(refused.kind, StoreErrorKind::Refused);
    assert!(refused.to_string().contains("--replace-fence"), "{refused}");
    let call = |integration: &str| {
        format!("SELECT id::text FROM core_outbox.enqueue('{integration}', 't', '1', 's', 'e')")
    };
    assert_eq!(table.text(&call("webhook:a")).await, id.to_string());
    let refused = table.client.query_one(&call("webhook:b"), &[]).await.expect_err("the old fence");
    let error = refused.as_db_error().expect("the server's words");
    assert_eq!(error.code().code(), "23505");
    assert!(error.message().contains("--replace-fence"), "{error}");

    let options = MigrateOptions { replace_fence: true, ..MigrateOptions::default() };
    postroom_store::migrate_with(table.url(), &options).await.expect("replaced");
    assert!(store.enqueue(&second).await.expect("enqueued").is_new());
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_that_name_what_changes_are_reported() {
    let table = OldTable::filled(1).await;
    table
        .execute(
            "CREATE INDEX by_hand ON core_outbox.integration_outbox (tenant_id) WHERE status = 'DEAD';
             CREATE INDEX \"For Show\" ON core_outbox.integration_outbox (lower(last_error));
             CREATE INDEX harmless ON core_outbox.integration_outbox (tenant_id)",
        )
        .await;
    let notes = migrate(&table).await.notes.join("\n");
    assert!(notes.contains("index by_hand names what changes (status)"), "{notes}");
    assert!(notes.contains("index \"For Show\" names what changes (last_error)"), "{notes}");
    assert!(!notes.contains("harmless") && !notes.contains("ix_outbox_status_due"), "{notes}");
    let findings = table.store().await.diagnose().await.expect("diagnose");
    let remedies: Vec<_> = findings.iter().map(|finding| finding.remedy.as_str()).collect();
    let drop = "`DROP INDEX CONCURRENTLY core_outbox.by_hand`, and query the deliveries";
    assert!(remedies.contains(&drop), "{remedies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_shape_is_refused_with_every_difference_and_left_alone() {
    let table = OldTable::filled(1).await;
    table
        .execute(
            "ALTER TABLE core_outbox.integration_outbox
                 ADD COLUMN shard int, DROP COLUMN user_id, ALTER COLUMN tenant_id TYPE text,
                 ALTER COLUMN event_type DROP NOT NULL",
        )
        .await;
    let columns = "SELECT count(*)::text FROM pg_class \
                   WHERE relnamespace = 'core_outbox'::regnamespace";
    let before = table.text(columns).await;
    let error = postroom_store::migrate(table.url()).await.expect_err("another shape");
    assert_eq!(error.kind, StoreErrorKind::Refused);
    let text = error.to_string();
    for part in [
        "user_id is missing",
        "tenant_id is text, not character varying(60)",
        "event_type allows NULL",
        "shard is unknown",
        "Nothing was changed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(table.text(columns).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_no_relay_could_deliver_are_reported_before_anything_is_changed() {
    let table = OldTable::filled(1).await;
    table
        .execute(
            "UPDATE core_outbox.integration_outbox SET due_at = 'infinity' WHERE status = 'DEAD';
             UPDATE core_outbox.integration_outbox SET max_attempts = 0 WHERE status = 'SENT'",
        )
        .await;
    let error = postroom_store::migrate(table.url()).await.expect_err("such rows");
    let text = error.to_string();
    assert!(text.contains("1 with max_attempts below 1"), "{text}");
    assert!(text.contains("1 with a time that is infinite"), "{text}");
    let made = "SELECT to_regclass('core_outbox.delivery')::text";
    assert_eq!(table.text(made).await, "");
    table
        .execute("DELETE FROM core_outbox.integration_outbox WHERE status IN ('DEAD', 'SENT')")
        .await;
    migrate(&table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_where_an_event_may_be_twice_is_refused_before_anything_is_changed() {
    let table = OldTable::filled(1).await;
    table
        .execute(
            "DROP INDEX core_outbox.ux_outbox_source;
             INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             SELECT 's', 'twice', 'noop', 't', '{}' FROM generate_series(1, 2)",
        )
        .await;
    let error = postroom_store::migrate(table.url()).await.expect_err("twice");
    assert_eq!(error.kind, StoreErrorKind::Refused);
    let text = error.to_string();
    let (_, remedy) = text.split_once('`').expect("a remedy");
    let (remedy, _) = remedy.split_once('`').expect("a remedy");
    assert_eq!(table.text("SELECT to_regclass('core_outbox.delivery')::text").await, "");

    // What the remedy leaves behind where it fails does not count either.
    table.client.batch_execute(remedy).await.expect_err("an event is there twice");
    postroom_store::migrate(table.url()).await.expect_err("an index that is not valid");
    assert_eq!(table.text("SELECT to_regclass('core_outbox.delivery')::text").await, "");
    table
        .execute(
            "DROP INDEX core_outbox.ux_outbox_source;
             DELETE FROM core_outbox.integration_outbox
             WHERE ctid = (SELECT max(ctid) FROM core_outbox.integration_outbox
                           WHERE source_event_id = 'twice')",
        )
        .await;
    table.execute(remedy).await;
    migrate(&table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbering_is_given_up_only_when_it_does_not_move_on() {
    let table = OldTable::filled(700).await;
    // Cut off before it numbers the rows: this name is taken.
    table
        .execute(
            "DROP INDEX core_outbox.ix_outbox_status_due;
             CREATE TABLE core_outbox.adoption_order ()",
        )
        .await;
    postroom_store::migrate(table.url()).await.expect_err("the name is taken");
    table.execute("DROP TABLE core_outbox.adoption_order").await;
    // Of the four thousands that are numbered one after the other, each but the first is held up.
    let mut holders = Vec::new();
    for n in [300, 450, 600] {
        let holder = table.database.client().await;
        let lock = format!(
            "BEGIN; SELECT FROM core_outbox.integration_outbox
             WHERE source_event_id = 'SENT-{n}' FOR UPDATE"
        );
        holder.batch_execute(&lock).await.expect("locked");
        holders.push(holder);
    }
    let lock_timeout = Duration::from_millis(500);
    let options = MigrateOptions { tries: 3, lock_timeout, ..MigrateOptions::default() };
    let url = table.url().to_owned();
    let migrating = tokio::spawn(async move { postroom_store::migrate_with(&url, &options).await });
    let waiting = "SELECT count(*)::text FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for holder in holders {
        for (what, count) in [("a try that waits", "1"), ("a try that was taken back", "0")] {
            let seen = async || (table.text(waiting).await == count).then_some(());
            eventually(what, SOON, seen).await;
        }
        holder.batch_execute("COMMIT").await.expect("let go");
    }
    migrating.await.expect("no panic").expect("adopted");
}
