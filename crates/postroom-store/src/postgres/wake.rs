//! NOTIFY for idle relays, and the locks that keep it off when nobody needs it.
//!
//! NOTIFY in every commit serialises the producers. So relays show by advisory locks what they
//! do: idle ones share one, a busy one holds another. The trigger notifies when some relay is idle
//! and none is busy. Signals can be missed, so polling stays the floor.
//!
//! A relay that a signal wakes is in a hurry, and takes little at first ([`Hurry`]).
//!
//! A connection that only listens cannot tell a quiet database from one that never answers again:
//! the peer may acknowledge every packet all the same. So it is asked something now and then.

use super::OWN_SCHEMA;
use super::connect::Target;
use super::layout::lock_of;
use super::locks::{BUSY_RELAY, IDLE_RELAYS};
use async_trait::async_trait;
use postroom_core::Wake;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::{AsyncMessage, Client};

/// A producer that looks whether somebody is idle is in the way for microseconds.
const IDLE_TRIES: usize = 10;
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
const RECONNECT_CAP: Duration = Duration::from_secs(10);
/// How often the server is asked whether it still answers.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer before another connection is made.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a claimer waits until it is known to be busy or idle. The database may be away.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Whether a take follows a signal. Such a take is in a hurry: it takes what it was woken for
/// (`take_few.sql`), and whatever else there is, is looked for right after it.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    is_on: AtomicBool,
    /// How many takes in a hurry found something. After each, whoever waits for signals looks again: which of
    /// them took, nobody knows here.
    looks_owed: AtomicU64,
}

impl Hurry {
    /// Whether the take that begins now is in a hurry.
    pub(super) fn begin(&self) -> bool {
        self.is_on.swap(false, Ordering::AcqRel)
    }

    /// A take in a hurry found something, and looked for nothing else.
    pub(super) fn owe_look(&self) {
        self.looks_owed.fetch_add(1, Ordering::AcqRel);
    }
}

/// What producers and relays of one outbox signal by.
#[derive(Clone)]
pub(super) struct Signals {
    channel: String,
    busy_relay: i64,
    idle_relays: i64,
}

impl Signals {
    /// Those of the ledger in `schema`.
    pub(super) fn of(schema: &str) -> Self {
        let lock = |lock| if schema == OWN_SCHEMA { lock } else { lock_of(schema, lock) };
        Self {
            channel: schema.to_owned(),
            busy_relay: lock(BUSY_RELAY),
            idle_relays: lock(IDLE_RELAYS),
        }
    }
}

/// Listens on a connection of its own, which is made again whenever it is lost.
pub(super) fn listen(target: Target, hurry: Arc<Hurry>, signals: Signals) -> Box<dyn Wake> {
    let woken = Arc::new(Notify::new());
    let (busy, wanted) = watch::channel(false);
    let (tell, shown) = watch::channel(None);
    tokio::spawn(keep_listening((target, signals), Arc::clone(&woken), wanted, tell));
    let looked = hurry.looks_owed.load(Ordering::Acquire);
    Box::new(PgWake { woken, hurry, looked, busy, shown })
}

struct PgWake {
    woken: Arc<Notify>,
    hurry: Arc<Hurry>,
    /// How many of the owed looks this waker has asked for.
    looked: u64,
    /// What the relay wants to be shown as. The listener ends when this is dropped.
    busy: watch::Sender<bool>,
    /// What it is shown as; `None` while nobody listens: then it holds no lock either.
    shown: watch::Receiver<Option<bool>>,
}

#[async_trait]
impl Wake for PgWake {
    async fn woken(&mut self) {
        let owed = self.hurry.looks_owed.load(Ordering::Acquire);
        if std::mem::replace(&mut self.looked, owed) < owed {
            return;
        }
        self.woken.notified().await;
        self.hurry.is_on.store(true, Ordering::Release);
    }

    async fn busy(&mut self, busy: bool) {
        self.busy.send_replace(busy);
        let is_shown = |shown: &Option<bool>| shown.is_none_or(|shown| shown == busy);
        let _ = timeout(SHOWN_WITHIN, self.shown.wait_for(is_shown)).await;
    }
}

type Wanted = watch::Receiver<bool>;
type Tell = watch::Sender<Option<bool>>;

async fn keep_listening(at: (Target, Signals), woken: Arc<Notify>, mut wanted: Wanted, tell: Tell) {
    let mut pause = RECONNECT_FIRST;
    loop {
        let ended = session(&at, &woken, &mut wanted, &tell).await;
        tell.send_replace(None);
        match ended {
            Ok(()) => return,
            Err(Lost { error, listened }) => {
                if listened {
                    pause = RECONNECT_FIRST;
                }
                tracing::warn!(%error, retry_in = ?pause, "not listening for new messages; polling goes on");
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = gone(&mut wanted) => return,
        }
        pause = (pause * 2).min(RECONNECT_CAP);
    }
}

/// Waits until the relay is gone.
async fn gone(wanted: &mut Wanted) {
    while wanted.changed().await.is_ok() {}
}

struct Lost {
    error: String,
    listened: bool,
}

impl Lost {
    fn before_listening(error: &dyn std::fmt::Display) -> Self {
        Self { error: error.to_string(), listened: false }
    }

    fn after_listening(error: &dyn std::fmt::Display) -> Self {
        Self { error: error.to_string(), listened: true }
    }
}

/// One connection's life. `Ok` when the relay is gone.
async fn session(
    (target, signals): &(Target, Signals),
    woken: &Arc<Notify>,
    wanted: &mut Wanted,
    tell: &Tell,
) -> Result<(), Lost> {
    let (client, mut connection) = tokio::select! {
        connected = target.connect() => connected.map_err(|error| Lost::before_listening(&error))?,
        () = gone(wanted) => return Ok(()),
    };
    let signal = Arc::clone(woken);
    // In a set, which ends it with this session, whatever answers are outstanding.
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => signal.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.to_string(),
                None => return "the connection was closed".to_owned(),
            }
        }
    });
    answered(client.batch_execute(&format!("LISTEN {}", signals.channel)))
        .await
        .map_err(|error| Lost::before_listening(&error))?;
    let mut shown = Shown::default();
    let busy = *wanted.borrow_and_update();
    shown.show(busy, &client, signals).await.map_err(|error| Lost::before_listening(&error))?;
    tell.send_replace(Some(busy));
    // Whatever was committed while nobody listened.
    woken.notify_one();
    let mut check_at = Instant::now() + CHECK_EVERY;
    loop {
        tokio::select! {
            ended = driver.join_next() => {
                let error = match ended {
                    Some(Ok(error)) => error,
                    Some(Err(error)) => error.to_string(),
                    None => "the connection's task is gone".to_owned(),
                };
                return Err(Lost::after_listening(&error));
            }
            changed = wanted.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let busy = *wanted.borrow_and_update();
                let became = shown.show(busy, &client, signals).await;
                became.map_err(|error| Lost::after_listening(&error))?;
                tell.send_replace(Some(busy));
            }
            () = sleep_until(check_at) => {
                answered(client.batch_execute("SELECT 1"))
                    .await
                    .map_err(|error| Lost::after_listening(&error))?;
                check_at = Instant::now() + CHECK_EVERY;
            }
        }
    }
}

/// Which locks this session holds.
#[derive(Default)]
struct Shown {
    idle: bool,
    busy: bool,
}

impl Shown {
    async fn show(&mut self, busy: bool, client: &Client, signals: &Signals) -> Result<(), String> {
        if busy { self.busy(client, signals).await } else { self.idle(client, signals).await }
    }

    async fn busy(&mut self, client: &Client, signals: &Signals) -> Result<(), String> {
        if !self.busy {
            // Another busy relay may hold it already: one is enough.
            self.busy = ask(client, "pg_try_advisory_lock", signals.busy_relay).await?;
        }
        if self.idle {
            ask(client, "pg_advisory_unlock_shared", signals.idle_relays).await?;
            self.idle = false;
        }
        Ok(())
    }

    async fn idle(&mut self, client: &Client, signals: &Signals) -> Result<(), String> {
        for _ in 0..IDLE_TRIES {
            if self.idle {
                break;
            }
            self.idle = ask(client, "pg_try_advisory_lock_shared", signals.idle_relays).await?;
        }
        if self.busy {
            ask(client, "pg_advisory_unlock", signals.busy_relay).await?;
            self.busy = false;
        }
        Ok(())
    }
}

async fn ask(client: &Client, function: &str, lock: i64) -> Result<bool, String> {
    let sql = format!("SELECT {function}({lock})");
    let row = answered(client.query_one(&sql, &[])).await?;
    row.try_get(0).map_err(|error| error.to_string())
}

/// An answer of the server, if it comes in time.
async fn answered<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the database did not answer within {ANSWER_WITHIN:?}")),
    }
}
