//! An outbox on each kind of store, and relays that work on it.

use postroom_core::{MessageId, NewMessage, Record, RetryPolicy, Sink, Store, SystemClock};
use postroom_relay::{Lane, Relay, RelayError, Settings};
use postroom_store::OpenOptions;
use postroom_store::memory::MemoryStore;
use postroom_testkit::contract::Commit;
use postroom_testkit::{MariaDatabase, MariaDb, Postgres, TestDatabase, eventually};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Long enough for a loaded machine; nothing waits this long when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Makes one test per store of every function named, each on an empty outbox.
macro_rules! on_stores {
    ($stores:tt: $($name:ident)+) => {
        $(mod $name {
            $crate::outbox::on_stores! { @each $name $stores }
        })+
    };
    (@each $name:ident [$($store:ident)+]) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $store() {
                super::$name($crate::outbox::Outbox::$store().await).await;
            }
        )+
    };
}
pub(crate) use on_stores;

/// A migrated, empty outbox.
pub(crate) struct Outbox {
    pub(crate) store: Arc<dyn Store>,
    place: Place,
}

/// Where it is; it goes with the value.
enum Place {
    MariaDb(MariaDatabase),
    Memory(MemoryStore),
    Postgres(TestDatabase),
    Sqlite(#[allow(dead_code, reason = "keeps the folder")] TempDir),
}

impl Outbox {
    pub(crate) async fn mariadb() -> Self {
        let database = MariaDb::shared().await.database().await;
        let store = open(database.url()).await;
        Self { store, place: Place::MariaDb(database) }
    }

    pub(crate) async fn memory() -> Self {
        let store = MemoryStore::new(Arc::new(SystemClock));
        Self { store: Arc::new(store.clone()), place: Place::Memory(store) }
    }

    pub(crate) async fn postgres() -> Self {
        let database = Postgres::shared().await.database().await;
        let store = open(database.url()).await;
        Self { store, place: Place::Postgres(database) }
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}/outbox.db", folder.path().display())).await;
        Self { store, place: Place::Sqlite(folder) }
    }

    /// The database of an outbox that has one on PostgreSQL.
    pub(crate) fn database(&self) -> &TestDatabase {
        match &self.place {
            Place::Postgres(database) => database,
            Place::MariaDb(_) | Place::Memory(_) | Place::Sqlite(_) => {
                panic!("this outbox is not on PostgreSQL")
            }
        }
    }

    /// Changes or locks messages in a transaction that stays open: `sql` with the table's name for
    /// `{table}`. It is committed when the answer is awaited.
    pub(crate) async fn open_transaction(&self, sql: &str) -> Commit {
        match &self.place {
            Place::MariaDb(database) => {
                database.open_transaction(&sql.replace("{table}", "integration_outbox")).await
            }
            Place::Postgres(database) => {
                let sql = sql.replace("{table}", "core_outbox.integration_outbox");
                database.open_transaction(&sql).await
            }
            Place::Memory(_) | Place::Sqlite(_) => panic!("nobody locks rows of this outbox"),
        }
    }

    /// Locks a whole table until the answer is awaited, each database by a statement of its own.
    pub(crate) async fn lock_table(&self, on_postgres: &str, on_mariadb: &str) -> Commit {
        match &self.place {
            Place::MariaDb(database) => database.open_transaction(on_mariadb).await,
            Place::Postgres(database) => database.open_transaction(on_postgres).await,
            Place::Memory(_) | Place::Sqlite(_) => panic!("nobody locks tables of this outbox"),
        }
    }

    /// Inserts a row as someone does who knows the table and nothing of Postroom.
    pub(crate) async fn insert(&self, columns: &[(&str, &str)]) -> MessageId {
        match &self.place {
            Place::Memory(store) => store.by_hand().insert(columns).unwrap(),
            Place::Postgres(database) => {
                let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
                let values: Vec<_> =
                    columns.iter().map(|(_, value)| format!("'{value}'")).collect();
                let sql = format!(
                    "INSERT INTO core_outbox.integration_outbox ({}) VALUES ({}) RETURNING id",
                    names.join(", "),
                    values.join(", ")
                );
                database.client().await.query_one(&sql, &[]).await.unwrap().get::<_, Uuid>(0).into()
            }
            Place::MariaDb(_) | Place::Sqlite(_) => {
                panic!("plain rows on MariaDB and SQLite are the store's own tests")
            }
        }
    }

    /// Enqueues `count` messages to `integration`, in order.
    pub(crate) async fn enqueue(&self, integration: &str, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(count);
        for n in 0..count {
            ids.push(self.put(message(integration).json(&n)).await);
        }
        ids
    }

    /// Enqueues one message.
    pub(crate) async fn put(&self, message: NewMessage) -> MessageId {
        self.store.enqueue(&message).await.unwrap().into_id()
    }

    pub(crate) async fn record(&self, id: &MessageId) -> Record {
        self.store.find(id).await.unwrap().expect("the message is there")
    }

    pub(crate) async fn records(&self, ids: &[MessageId]) -> Vec<Record> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            records.push(self.record(id).await);
        }
        records
    }

    pub(crate) async fn statuses(&self, ids: &[MessageId]) -> Vec<String> {
        self.records(ids).await.into_iter().map(|record| record.status).collect()
    }

    /// Waits until a message has this status.
    pub(crate) async fn wait_for(&self, id: &MessageId, status: &str) -> Record {
        eventually(&format!("{id} to be {status}"), SOON, async || {
            Some(self.record(id).await).filter(|record| record.status == status)
        })
        .await
    }

    /// Waits until all of these messages have this status.
    pub(crate) async fn wait_for_all(&self, ids: &[MessageId], status: &str) {
        for id in ids {
            self.wait_for(id, status).await;
        }
    }

    /// How many messages some relay holds.
    pub(crate) async fn claimed(&self) -> u64 {
        self.store.backlog().await.unwrap().total(|lane| lane.claimed)
    }

    /// A relay that is not running.
    pub(crate) fn relay(&self, settings: Settings, lanes: Vec<Lane>) -> Arc<Relay> {
        Arc::new(Relay::new(Arc::clone(&self.store), settings, lanes))
    }

    /// A running relay.
    pub(crate) fn start(&self, settings: Settings, lanes: Vec<Lane>) -> Running {
        Running::start(self.relay(settings, lanes))
    }
}

async fn open(url: &str) -> Arc<dyn Store> {
    postroom_store::migrate(url).await.unwrap();
    postroom_store::open(url, &OpenOptions::default()).await.unwrap()
}

/// A relay at work, stopped at once when the value is dropped.
pub(crate) struct Running {
    relay: Arc<Relay>,
    stop: oneshot::Sender<()>,
    work: JoinHandle<Result<(), RelayError>>,
}

impl Running {
    pub(crate) fn start(relay: Arc<Relay>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let worker = Arc::clone(&relay);
        let work = tokio::spawn(async move {
            worker
                .run(async {
                    let _ = stopped.await;
                })
                .await
        });
        Self { relay, stop, work }
    }

    /// Waits until it has stopped by itself.
    pub(crate) async fn ended(self) -> Result<(), RelayError> {
        tokio::time::timeout(SOON, self.work).await.expect("the relay ends").unwrap()
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(self) -> Result<(), RelayError> {
        let _ = self.stop.send(());
        tokio::time::timeout(SOON, self.work).await.expect("the relay stops").unwrap()
    }
}

impl Deref for Running {
    type Target = Relay;

    fn deref(&self) -> &Relay {
        &self.relay
    }
}

/// A message to `integration` with a small payload.
pub(crate) fn message(integration: &str) -> NewMessage {
    NewMessage::new(integration, "order.created.v1").json(&1)
}

/// A lane that tries again at once, so that tests need not wait.
pub(crate) fn lane(integration: &str, sink: impl Sink) -> Lane {
    let retry = RetryPolicy {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(1),
        jitter: Duration::ZERO,
        ..RetryPolicy::default()
    };
    Lane { retry, ..Lane::new(integration, Arc::new(sink)) }
}

/// A lane whose failed messages stay as they are for the rest of a test.
pub(crate) fn patient_lane(integration: &str, sink: impl Sink) -> Lane {
    Lane::new(integration, Arc::new(sink))
}
