//! All groups: which there are, and which of them are at work. A group begins to work when somebody
//! first asks for it.

use super::checkpoint;
use super::config::{self, GroupConfig, Groups};
use super::error::Error;
use super::group::{self, COMMANDS_MAX, Command, StopReason};
use super::group_id::GroupId;
use super::held::Holdings;
use super::settings::GroupSettings;
use super::source::{FilterSpec, StartFrom};
use super::stream_metadata::{self, StateError};
use crate::eventlog::EventLog;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

/// How many groups there may be.
pub(super) const GROUPS_MAX: usize = 1_000;
const STOPPING: &str = "the server is stopping";

/// What a client wants of a group.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) id: GroupId,
    pub(super) filter: Option<FilterSpec>,
    pub(super) start: StartFrom,
    pub(super) settings: GroupSettings,
}

/// All groups. Clones are the same ones.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    log: EventLog,
    state: Arc<Mutex<State>>,
    holdings: Holdings,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    /// `None` until it is read.
    groups: Option<Groups>,
    working: HashMap<GroupId, Working>,
}

#[derive(Debug)]
struct Working {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl Registry {
    /// The groups that are stored in this log.
    pub(super) fn new(log: EventLog) -> Self {
        Self { log, state: Arc::default(), holdings: Holdings::default() }
    }

    /// Makes a group.
    pub(super) async fn create(&self, wanted: Wanted) -> Result<(), Error> {
        let this = self.clone();
        uninterrupted(async move {
            let mut state = this.state.lock().await;
            let groups = state.groups(&this.log).await?;
            let Wanted { id, filter, start, settings } = wanted;
            if groups.contains_key(&id) {
                return Err(Error::Exists(id));
            }
            if groups.len() >= GROUPS_MAX {
                return Err(Error::TooMany(format!("there are {GROUPS_MAX} groups already")));
            }
            let mut config = GroupConfig { filter, start, after: None, settings };
            let source = config.source(&id).map_err(Error::Invalid)?;
            config.after = source.before(&this.log, start).await.map_err(StateError::from)?;
            // An earlier group of this name may have left something.
            checkpoint::prepare(&this.log, &id).await?;
            stream_metadata::writable(&this.log, &id.parked_stream()).await?;
            stream_metadata::empty(&this.log, &id.parked_stream()).await?;
            let mut changed = groups.clone();
            changed.insert(id, config);
            config::store(&this.log, &changed).await?;
            *groups = changed;
            Ok(())
        })
        .await
    }

    /// Changes a group's settings. It goes on where it was; where it begins matters only while it
    /// has no checkpoint. Its consumers have to subscribe again.
    pub(super) async fn update(&self, wanted: Wanted) -> Result<(), Error> {
        let this = self.clone();
        uninterrupted(async move {
            let mut state = this.state.lock().await;
            let groups = state.groups(&this.log).await?;
            let Wanted { id, start, settings, .. } = wanted;
            let Some(before) = groups.get(&id) else { return Err(Error::DoesNotExist(id)) };
            let mut config = GroupConfig { settings, ..before.clone() };
            if config.start != start {
                let source = config.source(&id).map_err(Error::Invalid)?;
                config.start = start;
                config.after = source.before(&this.log, start).await.map_err(StateError::from)?;
            }
            let mut changed = groups.clone();
            changed.insert(id.clone(), config);
            config::store(&this.log, &changed).await?;
            *groups = changed;
            state.stop(&id, StopReason::Restarted).await;
            Ok(())
        })
        .await
    }

    /// Deletes a group with all that is stored of it.
    pub(super) async fn delete(&self, id: GroupId) -> Result<(), Error> {
        let this = self.clone();
        uninterrupted(async move {
            let mut state = this.state.lock().await;
            let groups = state.groups(&this.log).await?;
            let mut changed = groups.clone();
            if changed.remove(&id).is_none() {
                return Err(Error::DoesNotExist(id));
            }
            config::store(&this.log, &changed).await?;
            *groups = changed;
            state.stop(&id, StopReason::Deleted).await;
            stream_metadata::empty(&this.log, &id.checkpoint_stream()).await?;
            stream_metadata::empty(&this.log, &id.parked_stream()).await?;
            Ok(())
        })
        .await
    }

    /// The groups of a stream, or all of them, in the order of their names.
    pub(super) async fn list(&self, stream: Option<&str>) -> Result<Vec<GroupId>, Error> {
        let mut state = self.state.lock().await;
        let groups = state.groups(&self.log).await?;
        let is_wanted = |id: &&GroupId| stream.is_none_or(|stream| id.stream() == stream);
        Ok(groups.keys().filter(is_wanted).cloned().collect())
    }

    /// Where a group takes commands; it is set to work where it is not.
    pub(super) async fn group(&self, id: &GroupId) -> Result<mpsc::Sender<Command>, Error> {
        let mut state = self.state.lock().await;
        let groups = state.groups(&self.log).await?;
        let Some(config) = groups.get(id) else { return Err(Error::DoesNotExist(id.clone())) };
        let config = config.clone();
        if let Some(working) = state.working.get(id)
            && !working.commands.is_closed()
        {
            return Ok(working.commands.clone());
        }
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let task = tokio::spawn(group::run(
            self.log.clone(),
            id.clone(),
            config,
            self.holdings.clone(),
            receiver,
        ));
        state.working.insert(id.clone(), Working { commands: commands.clone(), task });
        Ok(commands)
    }

    /// Asks a group something and waits for its reply.
    pub(super) async fn ask<T>(
        &self,
        id: &GroupId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        ask(&self.group(id).await?, id, command).await
    }

    /// Ends the work of all groups, which begin again when somebody asks for them.
    pub(super) async fn restart(&self) -> Result<(), Error> {
        self.stop_all(StopReason::Restarted).await
    }

    /// Ends the work of all groups for good.
    pub(super) async fn close(&self) {
        // The only failure is a panic, and then nothing is left to be stopped.
        let _ = self.stop_all(StopReason::Closing).await;
    }

    async fn stop_all(&self, why: StopReason) -> Result<(), Error> {
        let this = self.clone();
        uninterrupted(async move {
            let mut state = this.state.lock().await;
            state.is_closed |= why == StopReason::Closing;
            let working = std::mem::take(&mut state.working);
            // All are told first: what they write then goes to disk together.
            for group in working.values() {
                group.stop(why).await;
            }
            for (id, group) in working {
                group.ended(&id).await;
            }
            Ok(())
        })
        .await
    }
}

impl State {
    async fn groups(&mut self, log: &EventLog) -> Result<&mut Groups, Error> {
        if self.is_closed {
            return Err(Error::Unavailable(STOPPING.to_owned()));
        }
        let groups = match self.groups.take() {
            Some(groups) => groups,
            None => config::load(log).await?,
        };
        Ok(self.groups.insert(groups))
    }

    async fn stop(&mut self, id: &GroupId, why: StopReason) {
        if let Some(group) = self.working.remove(id) {
            group.stop(why).await;
            group.ended(id).await;
        }
    }
}

impl Working {
    async fn stop(&self, why: StopReason) {
        // A group that does not take the command has ended already.
        let _ = self.commands.send(Command::Stop { why }).await;
    }

    async fn ended(self, id: &GroupId) {
        drop(self.commands);
        if let Err(error) = self.task.await {
            tracing::error!(group = %id, %error, "persistent subscription broke off");
        }
    }
}

/// Asks a group that is at work something and waits for its reply.
pub(super) async fn ask<T>(
    commands: &mpsc::Sender<Command>,
    id: &GroupId,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    let silent = || Error::Unavailable(format!("group {id} has stopped; try again"));
    commands.send(command(reply)).await.map_err(|_| silent())?;
    answer.await.map_err(|_| silent())
}

/// Does something as a whole, though the client may hang up meanwhile.
async fn uninterrupted(
    work: impl Future<Output = Result<(), Error>> + Send + 'static,
) -> Result<(), Error> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unavailable(STOPPING.to_owned())),
    }
}
