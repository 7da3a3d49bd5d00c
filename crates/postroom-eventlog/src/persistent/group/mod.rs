//! One group at work: a task that reads events, hands them to consumers and hears what became of
//! them. It owns everything that changes, and others talk to it by [`Command`]s.

mod command;
mod delivery;
mod information;
mod reading;
mod storing;

pub(super) use command::{Command, NackAction, Refused, StopReason, Subscribed};

use super::checkpoint;
use super::config::GroupConfig;
use super::consumers::{Consumer, Consumers};
use super::flight::Flight;
use super::group_id::GroupId;
use super::held::{Holdings, Level};
use super::parked::{Parked, ToPark};
use super::progress::Progress;
use super::settings::GroupSettings;
use super::source::{Source, StartFrom};
use super::statistics::{Latency, Rate};
use super::stream_metadata::StateError;
use super::subscriber::{Deliveries, Ended, Identity, Presence};
use super::waiting::Waiting;
use crate::eventlog::EventLog;
use crate::expected::ReadError;
use crate::server::status::with_sources;
use crate::subscription::{Notice, SubscriptionError};
use reading::Reading;
use std::future::pending;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use storing::Saving;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// How many commands may wait for a group.
pub(super) const COMMANDS_MAX: usize = 256;
/// How many consumers a group may have, whatever its settings allow.
const CONSUMERS_MAX: usize = 1_000;
/// How many messages a group holds, those that consumers have included.
const HELD_MAX: usize = 50_000;
/// How many bytes these may have before the group reads on.
const HELD_BYTES_MAX: usize = 8 << 20;
/// How many bytes a group may have though all groups together have as much as they may: about as
/// much as one read gives.
const HELD_BYTES_ALWAYS: usize = 128 << 10;

/// A group at work.
pub(super) struct Group {
    log: EventLog,
    id: GroupId,
    source: Source,
    settings: GroupSettings,
    start: StartFrom,
    commands: mpsc::Receiver<Command>,
    /// Rings when a consumer has gone, or has room again.
    attention: Arc<Notify>,
    reading: Reading,
    /// Set once the stream was tombstoned: nothing more will come.
    is_exhausted: bool,
    is_live: bool,
    /// Messages to deliver again; these go first.
    retries: Waiting,
    /// Messages that were parked; these go next.
    replays: Waiting,
    /// Messages that were read ahead.
    buffer: Waiting,
    /// Messages that are about to be parked.
    parking: Vec<ToPark>,
    flight: Flight,
    consumers: Consumers,
    progress: Progress,
    parked: Parked,
    saving: Saving,
    held: usize,
    held_bytes: usize,
    /// What all groups hold.
    holdings: Holdings,
    level: watch::Receiver<Level>,
    /// Why it cannot go on at all: a stream that it has to write to is tombstoned.
    broken: Option<String>,
    rate: Rate,
}

/// Runs a group until it is stopped, or nobody can talk to it any more.
pub(super) async fn run(
    log: EventLog,
    id: GroupId,
    config: GroupConfig,
    holdings: Holdings,
    commands: mpsc::Receiver<Command>,
) {
    let name = id.to_string();
    match Group::load(log, id, config, holdings, commands).await {
        Ok(mut group) => {
            let stop = group.work().await;
            group.end(stop).await;
        }
        // Whoever waits for a reply learns that there is none; the next one starts it again.
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(group = name, error, "persistent subscription cannot start");
        }
    }
}

/// What woke a group.
enum Wake {
    Command(Option<Command>),
    Read(Result<Vec<Notice>, SubscriptionError>),
    Attention,
    Time,
}

impl Group {
    async fn load(
        log: EventLog,
        id: GroupId,
        config: GroupConfig,
        holdings: Holdings,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, StateError> {
        let malformed = |_| StateError::Malformed(super::source::CONFIG_STREAM.to_owned());
        let source = config.source(&id).map_err(malformed)?;
        let checkpoint = checkpoint::load(&log, &id, &source).await?;
        let parked = Parked::load(&log, &id).await?;
        Ok(Self {
            consumers: Consumers::new(config.settings.strategy),
            progress: Progress::after(checkpoint.or(config.after)),
            saving: Saving::new(checkpoint),
            parked,
            log,
            id,
            source,
            settings: config.settings,
            start: config.start,
            commands,
            attention: Arc::new(Notify::new()),
            reading: Reading::Idle,
            is_exhausted: false,
            is_live: false,
            retries: Waiting::default(),
            replays: Waiting::default(),
            buffer: Waiting::default(),
            parking: Vec::new(),
            flight: Flight::default(),
            held: 0,
            held_bytes: 0,
            level: holdings.level(),
            holdings,
            broken: None,
            rate: Rate::default(),
        })
    }

    async fn work(&mut self) -> StopReason {
        loop {
            self.park().await;
            if let Err(error) = self.read_parked().await {
                self.fail(&error);
            }
            self.dispatch();
            self.store_if_due().await;
            let stop = match self.wake().await {
                Wake::Command(None) => Some(StopReason::Closing),
                Wake::Command(Some(command)) => self.obey_all(command).await,
                Wake::Read(Ok(notices)) => {
                    self.accept(notices);
                    None
                }
                Wake::Read(Err(SubscriptionError::Closed)) => Some(StopReason::Closing),
                Wake::Read(Err(SubscriptionError::Read(ReadError::StreamDeleted))) => {
                    self.reading = Reading::Idle;
                    self.is_exhausted = true;
                    None
                }
                Wake::Read(Err(SubscriptionError::Read(error))) => {
                    self.fail(&error);
                    None
                }
                // Acknowledgements that a consumer sent before it went come first.
                Wake::Attention => match self.commands.try_recv() {
                    Ok(command) => {
                        self.attention.notify_one();
                        self.obey_all(command).await
                    }
                    Err(_) => {
                        self.remove_gone();
                        None
                    }
                },
                Wake::Time => None,
            };
            if let Some(stop) = stop {
                return stop;
            }
            self.take_back_overdue();
        }
    }

    async fn wake(&mut self) -> Wake {
        let due = self.next_due();
        self.read_while_wanted();
        let waits_for_others = !self.has_room() && self.level.borrow().is_full;
        let Self { commands, reading, attention, level, .. } = self;
        let room = async {
            match waits_for_others {
                // It ends with the group.
                true => drop(level.wait_for(|level| !level.is_full).await),
                false => pending().await,
            }
        };
        let time = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => Wake::Command(command),
            notices = reading.next() => Wake::Read(notices),
            () = attention.notified() => Wake::Attention,
            () = room => Wake::Time,
            () = time => Wake::Time,
        }
    }

    /// When there is something to do though nothing comes in.
    fn next_due(&self) -> Option<Instant> {
        let overdue = match self.settings.message_timeout_ms {
            0 => None,
            _ => self.flight.oldest().map(|at| at + self.message_timeout()),
        };
        [overdue, self.store_due()].into_iter().flatten().min()
    }

    /// Obeys a command and those that wait behind it, as many as may wait at once.
    async fn obey_all(&mut self, first: Command) -> Option<StopReason> {
        let mut command = first;
        for _ in 0..COMMANDS_MAX {
            if let Some(stop) = self.obey(command).await {
                return Some(stop);
            }
            match self.commands.try_recv() {
                Ok(next) => command = next,
                Err(_) => return None,
            }
        }
        self.obey(command).await
    }

    async fn obey(&mut self, command: Command) -> Option<StopReason> {
        match command {
            Command::Subscribe { identity, slots, reply } => {
                // Who does not wait for the reply any more is gone as soon as it is dropped.
                let _ = reply.send(self.subscribe(identity, slots));
            }
            Command::Ack { consumer, ids } => self.acknowledge(consumer, &ids),
            Command::Nack { consumer, ids, action, reason } => {
                self.refuse(consumer, &ids, action, &reason);
            }
            Command::Retire { consumer } => {
                self.consumers.retire(consumer);
                self.take_back_from(consumer);
            }
            Command::Dismiss { consumer, why } => self.dismiss(consumer, why),
            Command::Info { reply } => {
                let _ = reply.send(self.information().await);
            }
            Command::Replay { count, reply } => {
                let refreshed = self.parked.refresh(&self.log).await;
                if refreshed.is_ok() {
                    self.parked.replay(count);
                }
                let _ = reply.send(refreshed);
            }
            Command::Stop { why } => return Some(why),
        }
        None
    }

    fn subscribe(&mut self, identity: Identity, slots: usize) -> Result<Subscribed, Refused> {
        if let Some(reason) = &self.broken {
            return Err(Refused::Failed(reason.clone()));
        }
        self.remove_gone();
        let most = self.settings.max_subscriber_count as usize;
        let is_full = most > 0 && self.consumers.active() >= most;
        if is_full || self.consumers.len() >= CONSUMERS_MAX {
            return Err(Refused::Full);
        }
        let slots = slots.max(1);
        let (deliveries, receiver) = mpsc::channel(slots);
        let (open, closed) = oneshot::channel();
        let ended = Arc::new(OnceLock::new());
        let is_gone = Arc::new(AtomicBool::new(false));
        let is_behind = Arc::new(AtomicBool::new(false));
        let id = self.consumers.next_id();
        self.consumers.add(Consumer {
            id,
            identity,
            slots,
            in_flight: 0,
            deliveries,
            ended: ended.clone(),
            is_gone: is_gone.clone(),
            is_behind: is_behind.clone(),
            is_retired: false,
            rate: Rate::default(),
            latency: Latency::default(),
        });
        let attention = self.attention.clone();
        let deliveries =
            Deliveries { receiver, ended, attention: attention.clone(), is_behind, _open: open };
        let presence = Presence { is_gone, attention, closed };
        Ok(Subscribed { consumer: id, deliveries, presence })
    }

    /// The log or the group's state cannot be read: the consumers learn it. The next one to
    /// subscribe has the group try again.
    fn fail(&mut self, error: &ReadError) {
        let reason = with_sources(error);
        let error = error as &dyn std::error::Error;
        tracing::error!(group = %self.id, error, "persistent subscription cannot read");
        self.reading = Reading::Idle;
        self.end_consumers(&Ended::Failed(reason));
    }

    /// A stream that the group has to write to is tombstoned, which is for ever. Its consumers learn
    /// it, and who subscribes later. The checkpoint stays where it is.
    fn give_up(&mut self, stream: &str) {
        if self.broken.is_some() {
            return;
        }
        let reason = format!(
            "{stream} is tombstoned, so the group cannot keep its state: delete the group, and \
             create one of another name"
        );
        tracing::error!(group = %self.id, reason, "persistent subscription cannot go on");
        self.reading = Reading::Idle;
        self.end_consumers(&Ended::Failed(reason.clone()));
        self.broken = Some(reason);
        for queue in [&mut self.retries, &mut self.replays, &mut self.buffer] {
            queue.take_all();
        }
        self.flight.take_all();
        self.parking.clear();
        (self.held, self.held_bytes) = (0, 0);
    }

    fn end_consumers(&mut self, why: &Ended) {
        for consumer in self.consumers.remove_all() {
            self.take_back_from(consumer.id);
            consumer.end(why.clone());
        }
    }
}
