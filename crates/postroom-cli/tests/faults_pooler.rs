//! Relays behind a real PgBouncer in transaction mode.

use crate::command::Folder;
use crate::faults_outbox::SOON;
use postroom_testkit::{PgBouncer, Postgres, Process, Signal, eventually};
use std::collections::HashSet;

const MESSAGES: usize = 2_000;

#[tokio::test]
async fn fault_19_two_relays_behind_a_pooler_deliver_each_message_exactly_once() {
    let server = Postgres::shared().await;
    let database = server.database().await;
    let pooler = PgBouncer::start(server.url(), 4).await.unwrap();
    let folder = Folder::new();
    let configure = |n: usize, more: &str| {
        let text = format!(
            "[database]\nurl = \"{}\"\n{more}\n[server]\nlisten = \"127.0.0.1:0\"\n\
             [integrations.\"file:all\"]\npath = \"{n}.jsonl\"\n",
            pooler.before(database.url())
        );
        folder.write(&format!("{n}.toml"), &text);
        format!("{n}.toml")
    };
    // Unmentioned, it is refused; with a way round it, migrations work.
    let unsaid = configure(0, "");
    let refused = folder.run(&["migrate", "--config", &unsaid]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("direct_url"), "{refused:?}");
    let direct = format!("pooler = \"transaction\"\ndirect_url = \"{}\"", database.url());
    folder.run(&["migrate", "--config", &configure(0, &direct)]).ok();
    let refused = folder.run(&["run", "--config", &configure(0, "")]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("pooler = \"transaction\""), "{refused:?}");

    // One listens directly, the other polls.
    let mut relays = [direct.as_str(), "pooler = \"transaction\""]
        .into_iter()
        .enumerate()
        .map(|(n, more)| folder.start(&["run", "--config", &configure(n, more)]))
        .collect::<Vec<Process>>();
    let client = database.client().await;
    for batch in 0..20 {
        let insert = format!(
            "INSERT INTO core_outbox.integration_outbox \
                 (source_stream_id, source_event_id, integration_type, event_type, payload) \
             SELECT 's', 'e-{batch}-' || n, 'file:all', 't', '{{}}' FROM generate_series(1, {}) n",
            MESSAGES / 20
        );
        client.batch_execute(&insert).await.unwrap();
    }
    eventually("every message to be delivered", SOON, async || {
        let left = "SELECT EXISTS (SELECT FROM core_outbox.delivery) \
                    OR EXISTS (SELECT FROM core_outbox.parcel)";
        let left: bool = client.query_one(left, &[]).await.unwrap().get(0);
        (!left).then_some(())
    })
    .await;
    for relay in &mut relays {
        relay.signal(Signal::SIGTERM);
        assert!(relay.wait(SOON).await.success(), "{}", relay.stderr());
        assert!(!relay.stderr().contains("WARN"), "{}", relay.stderr());
    }
    let lines: Vec<String> = (0..relays.len())
        .map(|n| std::fs::read_to_string(folder.path().join(format!("{n}.jsonl"))))
        .flat_map(|text| text.unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let events: HashSet<String> = lines
        .iter()
        .map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            message["event_id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!((lines.len(), events.len()), (MESSAGES, MESSAGES));
}
