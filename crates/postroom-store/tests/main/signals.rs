//! When producers on PostgreSQL signal new messages, and when they spare themselves that.

use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase, eventually};
use std::future::poll_fn;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

struct Channel {
    _client: Client,
    signals: mpsc::UnboundedReceiver<String>,
}

impl Channel {
    /// Hears what is signalled, and is no relay.
    async fn listen(database: &TestDatabase) -> Self {
        let (client, mut connection) =
            tokio_postgres::connect(database.url(), NoTls).await.expect("connected");
        let (heard, signals) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(signal) = message {
                    let _ = heard.send(signal.payload().to_owned());
                }
            }
        });
        client.batch_execute("LISTEN core_outbox").await.expect("listening");
        Self { _client: client, signals }
    }

    /// How many signals one more message causes.
    async fn signals_of_one(&mut self, producer: &Client) -> usize {
        let insert = "
            INSERT INTO core_outbox.integration_outbox
                (source_stream_id, source_event_id, integration_type, event_type, payload)
            VALUES ('order-1', gen_random_uuid()::text, 'noop', 'order.created.v1', '{}')";
        producer.batch_execute(insert).await.expect("inserted");
        // Signals arrive in the order of commits, so after this one none is on its way.
        producer.batch_execute("NOTIFY core_outbox, 'the end'").await.expect("notified");
        let mut signals = 0;
        loop {
            match self.signals.recv().await.as_deref() {
                Some("the end") => return signals,
                Some(_) => signals += 1,
                None => panic!("the connection was closed"),
            }
        }
    }

    /// Inserts messages until one causes this many signals. A relay that says that it is busy does
    /// not wait for long until others can see it.
    async fn until_one_causes(&mut self, signals: usize, why: &str, producer: &Client) {
        eventually(why, Duration::from_secs(10), async || {
            (self.signals_of_one(producer).await == signals).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn producers_signal_while_a_relay_is_idle_and_none_is_busy() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let producer = database.client().await;
    let mut channel = Channel::listen(&database).await;
    let options = OpenOptions::default();
    let store = postroom_store::open(database.url(), &options).await.expect("opened");

    assert_eq!(channel.signals_of_one(&producer).await, 0, "no relay runs");
    let mut first = store.wake().await.expect("PostgreSQL signals");
    // Once for what was committed before it listened: from then on it is known to be idle.
    first.woken().await;
    assert_eq!(channel.signals_of_one(&producer).await, 1, "the first is idle");
    let mut second = store.wake().await.expect("PostgreSQL signals");
    second.woken().await;
    second.busy(true).await;
    channel.until_one_causes(0, "a busy relay finds it by itself", &producer).await;
    second.busy(false).await;
    channel.until_one_causes(1, "both are idle", &producer).await;
    drop((first, second));
    channel.until_one_causes(0, "the relays are gone", &producer).await;
}
