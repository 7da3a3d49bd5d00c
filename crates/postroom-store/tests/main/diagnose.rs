//! What `postroom check` finds on PostgreSQL beside what reconciliation mends.

use postroom_core::{Finding, Severity};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};

async fn outbox(change: &str) -> (TestDatabase, Vec<Finding>) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    database.client().await.batch_execute(change).await.expect("changed");
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store");
    let findings = store.diagnose().await.expect("diagnose");
    (database, findings)
}

#[tokio::test]
async fn a_fresh_outbox_has_nothing_wrong_with_or_without_its_signal() {
    let (_database, findings) =
        outbox("ALTER TABLE core_outbox.integration_outbox DISABLE TRIGGER outbox_wake").await;
    assert_eq!(findings, []);
}

#[tokio::test]
async fn triggers_that_do_not_fire_are_faults() {
    let (_database, findings) = outbox(
        "ALTER TABLE core_outbox.integration_outbox DISABLE TRIGGER outbox_feed;
         ALTER TABLE core_outbox.integration_outbox ENABLE REPLICA TRIGGER outbox_follow",
    )
    .await;
    assert_eq!(findings.len(), 2, "{findings:?}");
    for (finding, trigger) in findings.iter().zip(["outbox_feed", "outbox_follow"]) {
        assert_eq!(finding.severity, Severity::Fault);
        assert!(finding.problem.contains(trigger), "{finding:?}");
        assert!(finding.remedy.contains(&format!("ENABLE TRIGGER {trigger}")), "{finding:?}");
    }
}

#[tokio::test]
async fn what_only_costs_is_a_warning() {
    let (_database, findings) = outbox(
        "CREATE INDEX dashboard ON core_outbox.integration_outbox (status);
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'core_outbox.delivery_dead'::regclass",
    )
    .await;
    let problems: Vec<_> = findings.iter().map(|finding| finding.problem.as_str()).collect();
    assert!(problems[0].contains("delivery_dead is invalid"), "{problems:?}");
    assert!(problems[1].contains("dashboard names what changes (status)"), "{problems:?}");
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning));
}
