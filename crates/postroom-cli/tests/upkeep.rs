//! `migrate`, `check` and `reconcile` on an outbox that is not what it should be.

use crate::command::Folder;
use postroom_testkit::{Postgres, TestDatabase};

/// A table as an older outbox made it, with one row in each of three statuses.
const OLD_TABLE: &str = "
    CREATE SCHEMA core_outbox;
    CREATE TABLE core_outbox.integration_outbox (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(), source_stream_id varchar(200) NOT NULL,
      source_event_id varchar(100) NOT NULL, integration_type varchar(120) NOT NULL,
      event_type varchar(120) NOT NULL, payload jsonb NOT NULL, headers jsonb,
      tenant_id varchar(60), user_id varchar(60), correlation_id varchar(120),
      due_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0,
      max_attempts int NOT NULL DEFAULT 10, status varchar(20) NOT NULL DEFAULT 'PENDING',
      locked_at timestamptz, locked_by varchar(120),
      created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
      sent_at timestamptz, last_error text
    );
    CREATE UNIQUE INDEX ux_outbox_source
        ON core_outbox.integration_outbox (source_stream_id, source_event_id);
    CREATE INDEX ix_outbox_status_due ON core_outbox.integration_outbox (status, due_at);
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status)
    SELECT 's', status, 'noop', 't', '{}', status
    FROM unnest(ARRAY['PENDING', 'CLAIMED', 'SENT']) AS status";

struct Outbox {
    folder: Folder,
    database: TestDatabase,
}

impl Outbox {
    async fn new(sql: &str) -> Self {
        let database = Postgres::shared().await.database().await;
        database.client().await.batch_execute(sql).await.unwrap();
        let folder = Folder::new();
        let url = database.url();
        folder
            .write("postroom.toml", &format!("[database]\nurl = \"{url}\"\n[integrations.noop]\n"));
        Self { folder, database }
    }

    async fn execute(&self, sql: &str) {
        self.database.client().await.batch_execute(sql).await.unwrap();
    }
}

#[tokio::test]
async fn an_older_outbox_is_adopted_and_its_messages_are_delivered() {
    let outbox = Outbox::new(OLD_TABLE).await;
    let plan = outbox.folder.run(&["migrate", "--dry-run"]).ok();
    for part in ["ADD CONSTRAINT claims_live_in_ledger", "CONCURRENTLY outbox_fence", "COMMIT;"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let done = outbox.folder.run(&["migrate", "--claimed-grace", "1ms"]).ok();
    assert!(done.contains("applied 0001 outbox"), "{done}");
    assert!(done.contains("the old fence ux_outbox_source stands"), "{done}");
    let checked = outbox.folder.run(&["check"]).ok();
    assert!(
        checked.contains("warning  outbox") && checked.contains("--replace-fence"),
        "{checked}"
    );
    let pass = outbox.folder.run(&["run", "--once", "--json"]).json();
    assert_eq!(pass["sent"], 2, "{pass}");
    let replaced = outbox.folder.run(&["migrate", "--replace-fence"]).ok();
    assert!(replaced.contains("done: replacing the fence ux_outbox_source"), "{replaced}");
    assert!(!outbox.folder.run(&["check"]).ok().contains("warning"));
    assert_eq!(outbox.folder.run(&["migrate", "--dry-run"]).ok(), "");
}

#[tokio::test]
async fn what_was_loaded_with_triggers_off_is_found_by_check_and_mended_by_reconcile() {
    let outbox = Outbox::new("").await;
    outbox.folder.run(&["migrate"]).ok();
    outbox
        .execute(
            "SET session_replication_role = replica;
             INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             SELECT 's', 'e' || n, 'noop', 't', '{}' FROM generate_series(1, 12000) n",
        )
        .await;
    let checked = outbox.folder.run(&["check"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    let line = checked.stdout.lines().find(|line| line.starts_with("FAULT")).unwrap();
    assert!(line.contains("12000 open messages are missing in the ledger"), "{line}");
    assert!(line.contains("run `postroom reconcile`"), "{line}");
    let mended = outbox.folder.run(&["reconcile", "--actor", "ann", "--json"]).json();
    let expected = serde_json::json!({
        "made": 12_000, "removed": 0, "freed": 0, "followed": 0, "advanced": 0, "numbered": 0
    });
    assert_eq!(mended, expected);
    let record = outbox.folder.run(&["messages", "actions", "--json"]).json();
    let last = &record[0];
    assert_eq!((&last["actor"], &last["operation"]), (&"ann".into(), &"reconcile".into()));
    assert_eq!(last["messages"], 12_000);
    assert!(outbox.folder.run(&["reconcile"]).ok().starts_with("nothing to mend"));
    outbox.folder.run(&["check"]).ok();

    outbox.execute("ALTER TABLE core_outbox.integration_outbox DISABLE TRIGGER outbox_feed").await;
    let checked = outbox.folder.run(&["check", "--json"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stdout.contains("ENABLE TRIGGER outbox_feed"), "{checked:?}");
}

/// A relay leaves it alone, so it must not be hidden: a status in lower case is the likeliest typo.
#[tokio::test]
async fn stats_show_every_status_that_no_relay_knows() {
    let outbox = Outbox::new("").await;
    outbox.folder.run(&["migrate"]).ok();
    outbox
        .execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, status)
             SELECT 's', status, 'noop', 't', '{}', status
             FROM unnest(ARRAY['pending', 'Sent', 'PENDNG']) AS status",
        )
        .await;
    let stats = outbox.folder.run(&["stats", "--json"]).json();
    let text = outbox.folder.run(&["stats"]).ok();
    for status in ["pending", "Sent", "PENDNG"] {
        assert_eq!(stats["counts"][status], 1, "{stats}");
        assert!(text.contains(&format!("{status} (unknown, left alone)")), "{text}");
    }
}

#[test]
fn a_sqlite_outbox_is_checked_and_reconciled_too() {
    let folder = Folder::new();
    folder.enqueue("noop", &[]);
    assert!(folder.run(&["reconcile"]).ok().starts_with("nothing to mend"));
    folder.run(&["check"]).ok();
}

#[test]
fn the_grants_are_printed_without_a_connection() {
    let folder = Folder::new();
    let grants = folder.run(&["migrate", "--print-grants", "--database", "postgres://nowhere/x"]);
    let grants = grants.ok();
    for part in ["CREATE ROLE postroom_producer", "CREATE ROLE postroom_relay", "GRANT INSERT ON"] {
        assert!(grants.contains(part), "{part}: {grants}");
    }
    let answer = folder.run(&["migrate", "--print-grants"]);
    assert_eq!(answer.code, 1, "{answer:?}");
}
