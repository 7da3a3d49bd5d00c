//! What every feature uses: the client, and how it waits.

use super::super::servers::Servers;
use anyhow::{Context as _, bail, ensure};
use kurrentdb::{
    AppendToStreamOptions, Client, ClientSettings, EventData, ReadAllOptions, ReadStream,
    ReadStreamOptions, ResolvedEvent, StreamState, Subscription, SubscriptionEvent, WriteResult,
};
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use uuid::Uuid;

/// How long one wait may take.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// The servers, and a client of the plain one.
pub(super) struct Stage {
    pub(super) servers: Servers,
    pub(super) client: Client,
}

impl Stage {
    pub(super) fn new(servers: Servers) -> Self {
        let client = connect(&format!("kurrentdb://{}?tls=false", servers.plain()));
        Self { servers, client: client.expect("the connection string is valid") }
    }

    /// A client of the server with TLS and users.
    pub(super) fn secure(&self, user: &str, password: &str) -> anyhow::Result<Client> {
        let (address, authority) = (self.servers.secure(), self.servers.authority());
        let who = if user.is_empty() { String::new() } else { format!("{user}:{password}@") };
        connect(&format!("kurrentdb://{who}{address}?tls=true&tlsCAFile={}", authority.display()))
    }

    /// Appends events, whatever the stream is.
    pub(super) async fn append(
        &self,
        stream: &str,
        events: &[EventData],
    ) -> kurrentdb::Result<WriteResult> {
        self.append_if(stream, StreamState::Any, events).await
    }

    /// Appends events if the stream is as expected.
    pub(super) async fn append_if(
        &self,
        stream: &str,
        expected: StreamState,
        events: &[EventData],
    ) -> kurrentdb::Result<WriteResult> {
        let options = AppendToStreamOptions::default().stream_state(expected);
        self.client.append_to_stream(stream, &options, events.to_vec()).await
    }

    /// Reads a stream.
    pub(super) async fn read(
        &self,
        stream: &str,
        options: &ReadStreamOptions,
    ) -> kurrentdb::Result<Vec<ResolvedEvent>> {
        all(self.client.read_stream(stream, options).await?).await
    }

    /// Reads a stream from its start.
    pub(super) async fn read_whole(&self, stream: &str) -> kurrentdb::Result<Vec<ResolvedEvent>> {
        self.read(stream, &ReadStreamOptions::default()).await
    }

    /// Reads the whole log.
    pub(super) async fn read_all(
        &self,
        options: &ReadAllOptions,
    ) -> kurrentdb::Result<Vec<ResolvedEvent>> {
        all(self.client.read_all(options).await?).await
    }
}

/// A client by a connection string.
pub(super) fn connect(connection_string: &str) -> anyhow::Result<Client> {
    // Before each of its attempts to connect, the first included, this client waits for so long.
    let settings: ClientSettings = format!("{connection_string}&discoveryInterval=10").parse()?;
    Client::new(settings).map_err(|error| anyhow::anyhow!("{error}"))
}

/// All events of a read.
pub(super) async fn all(mut read: ReadStream) -> kurrentdb::Result<Vec<ResolvedEvent>> {
    let mut events = Vec::new();
    while let Some(event) = read.next().await? {
        events.push(event);
    }
    Ok(events)
}

/// A name of a stream that nobody else uses.
pub(super) fn fresh(category: &str) -> String {
    format!("{category}-{}", Uuid::new_v4().simple())
}

/// A name of a stream in the category that most features use.
pub(super) fn stream() -> String {
    fresh("conformance")
}

/// A category that nobody else uses.
pub(super) fn category() -> String {
    format!("c{}", Uuid::new_v4().simple())
}

/// New events, and their ids, numbered in their data.
pub(super) fn events_of(event_type: &str, count: usize) -> (Vec<EventData>, Vec<Uuid>) {
    let ids: Vec<Uuid> = (0..count).map(|_| Uuid::new_v4()).collect();
    let event = |(n, id): (usize, &Uuid)| {
        EventData::json(event_type, &serde_json::json!({"n": n})).expect("JSON").id(*id)
    };
    (ids.iter().enumerate().map(event).collect(), ids)
}

/// The same with a usual type.
pub(super) fn events(count: usize) -> (Vec<EventData>, Vec<Uuid>) {
    events_of("happened", count)
}

/// The ids of events; of a link whose target is gone, the link's.
pub(super) fn ids(events: &[ResolvedEvent]) -> Vec<Uuid> {
    events.iter().map(|each| each.event.as_ref().map_or_else(|| original(each), |e| e.id)).collect()
}

fn original(event: &ResolvedEvent) -> Uuid {
    event.get_original_event().id
}

/// Fails unless both are the same.
pub(super) fn same<T: PartialEq + Debug>(actual: T, expected: T, what: &str) -> anyhow::Result<()> {
    ensure!(actual == expected, "{what}: {actual:?}, not {expected:?}");
    Ok(())
}

/// Fails unless this failed, and with such an error.
pub(super) fn fails<T>(
    result: kurrentdb::Result<T>,
    is_right: impl Fn(&kurrentdb::Error) -> bool,
    what: &str,
) -> anyhow::Result<()> {
    match result {
        Ok(_) => bail!("{what} was expected to fail"),
        Err(error) if is_right(&error) => Ok(()),
        Err(error) => bail!("{what} failed with another error: {error:?}"),
    }
}

/// Waits for it, but not for long.
pub(super) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(LIMIT, future).await.with_context(|| format!("waited {LIMIT:?} in vain: {what}"))
}

/// Waits until a condition holds.
pub(super) async fn eventually(
    what: &str,
    mut condition: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let end = Instant::now() + LIMIT;
    while !condition().await? {
        ensure!(Instant::now() < end, "waited {LIMIT:?} in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Follows a subscription in a task of its own: the client's calls must not be given up.
pub(super) struct Follower {
    notices: mpsc::UnboundedReceiver<kurrentdb::Result<SubscriptionEvent>>,
    task: AbortHandle,
}

impl Follower {
    /// Follows it, from the moment that the server has confirmed it.
    pub(super) async fn new(mut subscription: Subscription) -> anyhow::Result<Self> {
        let (sender, notices) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let notice = subscription.next_subscription_event().await;
                let is_end = notice.is_err();
                if sender.send(notice).is_err() || is_end {
                    break;
                }
            }
        });
        let mut follower = Self { notices, task: task.abort_handle() };
        match follower.notice().await? {
            SubscriptionEvent::Confirmed(_) => Ok(follower),
            other => bail!("the first notice is {other:?}"),
        }
    }

    /// What it says next.
    pub(super) async fn notice(&mut self) -> anyhow::Result<SubscriptionEvent> {
        let notice = in_time("a next notice", self.notices.recv()).await?;
        Ok(notice.context("the client's subscription panicked")??)
    }

    /// The next events.
    pub(super) async fn take(&mut self, count: usize) -> anyhow::Result<Vec<ResolvedEvent>> {
        let mut events = Vec::new();
        while events.len() < count {
            if let SubscriptionEvent::EventAppeared(event) = self.notice().await? {
                events.push(event);
            }
        }
        Ok(events)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}
