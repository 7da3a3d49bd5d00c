//! Each example's configuration as it stands: a relay accepts it, on the table of its owner.

use crate::command::Folder;
use crate::docs::pages::root;
use postroom_testkit::Postgres;

#[tokio::test]
async fn every_example_runs_with_its_own_timings() {
    for example in [
        "adopting/integration-outbox",
        "adopting/outbox-events",
        "adopting/billing-events",
        "adopting/kata",
    ] {
        let folder = root().join("examples").join(example);
        let database = Postgres::shared().await.database().await;
        let table = std::fs::read_to_string(folder.join("table.sql")).unwrap();
        database.client().await.batch_execute(&table).await.unwrap();
        let here = Folder::new();
        here.write(
            "postroom.toml",
            &std::fs::read_to_string(folder.join("postroom.toml")).unwrap(),
        );
        for words in [&["migrate"][..], &["run", "--once"]] {
            let mut command = here.command(words);
            command.env("DATABASE_URL", database.url()).env("NATS_URL", "nats://127.0.0.1:4");
            for name in ["PARTNERX_URL", "EVENTS_URL", "ORDERS_URL"] {
                command.env(name, "https://service.example/x");
            }
            let output = command.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{example}: {words:?}: {errors}");
        }
    }
}

/// The owner's switch for the service whose table it is.
#[tokio::test]
async fn billing_events_are_made_where_migrations_of_that_service_are_enabled() {
    let database = Postgres::shared().await.database().await;
    let folder = Folder::new();
    let url = database.url();
    let text = format!("[database]\nurl = \"{url}\"\nlayout = \"metadata\"\nto = \"noop\"\n");
    folder.write("postroom.toml", &text);
    let migrate = |services: &str| {
        let mut command = folder.command(&["migrate"]);
        command.env("ENABLED_MIGRATION_SERVICES", services).output().unwrap()
    };
    let refused = migrate("invoice,subscription");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("ENABLED_MIGRATION_SERVICES") && said.contains("billing_event"),
        "{said}"
    );
    let made = migrate("invoice,billing_event");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let client = database.client().await;
    let columns = "SELECT string_agg(column_name, ' ' ORDER BY ordinal_position) \
                   FROM information_schema.columns WHERE table_name = 'billing_events'";
    let columns: String = client.query_one(columns, &[]).await.unwrap().get(0);
    assert_eq!(columns, "id subject tenant_id resource_id payload created_at");
}
