//! NOTIFY for idle relays, and the locks that keep it off when nobody needs it.
//!
//! NOTIFY in every commit serialises the producers. So relays show by advisory locks what they
//! do: idle ones share one, a busy one holds another. The trigger notifies when some relay is idle
//! and none is busy. Signals can be missed, so polling stays the floor.

use super::connect::Target;
use async_trait::async_trait;
use postroom_core::Wake;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_postgres::{AsyncMessage, Client};

// The same numbers as in the trigger function `wake_relay`.
const LOCK_BUSY: &str = "SELECT pg_try_advisory_lock(7305804402)";
const UNLOCK_BUSY: &str = "SELECT pg_advisory_unlock(7305804402)";
const LOCK_IDLE: &str = "SELECT pg_try_advisory_lock_shared(7305804403)";
const UNLOCK_IDLE: &str = "SELECT pg_advisory_unlock_shared(7305804403)";
/// A producer that looks whether somebody is idle is in the way for microseconds.
const IDLE_TRIES: usize = 10;
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
const RECONNECT_CAP: Duration = Duration::from_secs(10);

/// Listens on a connection of its own, which is made again whenever it is lost.
pub(super) fn listen(target: Target) -> Box<dyn Wake> {
    let woken = Arc::new(Notify::new());
    let (commands, inbox) = mpsc::channel(1);
    tokio::spawn(keep_listening(target, Arc::clone(&woken), inbox));
    Box::new(PgWake { woken, commands })
}

struct PgWake {
    woken: Arc<Notify>,
    commands: mpsc::Sender<(bool, oneshot::Sender<()>)>,
}

#[async_trait]
impl Wake for PgWake {
    async fn woken(&mut self) {
        self.woken.notified().await;
    }

    async fn busy(&mut self, busy: bool) {
        let (done, answer) = oneshot::channel();
        if self.commands.send((busy, done)).await.is_ok() {
            // An error means that the connection went away, and the lock with it.
            let _ = answer.await;
        }
    }
}

type Inbox = mpsc::Receiver<(bool, oneshot::Sender<()>)>;

async fn keep_listening(target: Target, woken: Arc<Notify>, mut inbox: Inbox) {
    let mut pause = RECONNECT_FIRST;
    loop {
        match session(&target, &woken, &mut inbox).await {
            Ok(()) => return,
            Err(Lost { error, listened }) => {
                if listened {
                    pause = RECONNECT_FIRST;
                }
                tracing::warn!(%error, retry_in = ?pause, "not listening for new messages; polling goes on");
            }
        }
        let until = tokio::time::Instant::now() + pause;
        loop {
            // Commands are answered meanwhile: a claimer must not wait for a connection.
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                command = inbox.recv() => match command {
                    Some((_, done)) => { let _ = done.send(()); }
                    None => return,
                },
            }
        }
        pause = (pause * 2).min(RECONNECT_CAP);
    }
}

struct Lost {
    error: String,
    listened: bool,
}

/// One connection's life. `Ok` when the relay is gone.
async fn session(target: &Target, woken: &Arc<Notify>, inbox: &mut Inbox) -> Result<(), Lost> {
    let lost =
        |listened| move |error: &dyn std::fmt::Display| Lost { error: error.to_string(), listened };
    let (client, mut connection) = target.connect().await.map_err(|error| lost(false)(&error))?;
    let signal = Arc::clone(woken);
    let mut driver = tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => signal.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.to_string(),
                None => return "the connection was closed".to_owned(),
            }
        }
    });
    client.batch_execute("LISTEN core_outbox").await.map_err(|error| lost(false)(&error))?;
    let mut shown = Shown::default();
    shown.idle(&client).await.map_err(|error| lost(false)(&error))?;
    // Whatever was committed while nobody listened.
    woken.notify_one();
    loop {
        tokio::select! {
            ended = &mut driver => {
                let error = ended.unwrap_or_else(|error| error.to_string());
                return Err(lost(true)(&error));
            }
            command = inbox.recv() => match command {
                None => return Ok(()),
                Some((busy, done)) => {
                    let changed = match busy {
                        true => shown.busy(&client).await,
                        false => shown.idle(&client).await,
                    };
                    changed.map_err(|error| lost(true)(&error))?;
                    let _ = done.send(());
                }
            },
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
    async fn busy(&mut self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if !self.busy {
            // Another busy relay may hold it already: one is enough.
            self.busy = answer(client, LOCK_BUSY).await?;
        }
        if self.idle {
            answer(client, UNLOCK_IDLE).await?;
            self.idle = false;
        }
        Ok(())
    }

    async fn idle(&mut self, client: &Client) -> Result<(), tokio_postgres::Error> {
        for _ in 0..IDLE_TRIES {
            if self.idle {
                break;
            }
            self.idle = answer(client, LOCK_IDLE).await?;
        }
        if self.busy {
            answer(client, UNLOCK_BUSY).await?;
            self.busy = false;
        }
        Ok(())
    }
}

async fn answer(client: &Client, lock: &str) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_one(lock, &[]).await?.get(0))
}
