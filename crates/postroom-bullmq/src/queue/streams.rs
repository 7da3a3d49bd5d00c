//! Reads the event streams of all queues of a server, over one connection.

use super::events::{Event, Position, event};
use crate::error::QueueError;
use crate::link::{Link, Wire, connect};
use crate::server::Server;
use redis::streams::{StreamId, StreamReadReply};
use redis::{Cmd, FromRedisValue, cmd, pipe};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// How many events are kept until somebody asks for them, and how many of a stream are read at once.
const EVENTS_MAX: usize = 500;
const EVENTS_AT_ONCE: usize = 100;
/// How long Redis waits for the next event. A stream that is new is read after this time at most.
const BLOCK: Duration = Duration::from_millis(250);
/// The same while a stream is left out because nobody has asked for the events before.
const BLOCK_SHORT: Duration = Duration::from_millis(20);
/// How much later we give up on an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long to wait before another try after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// What a reader of one stream receives.
pub(super) type Received = mpsc::Receiver<Result<Event, QueueError>>;

/// The streams that somebody reads.
pub(crate) struct Streams {
    server: Arc<Server>,
    link: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By key.
    open: HashMap<String, Stream>,
    number: u64,
    is_running: bool,
}

struct Stream {
    /// Tells it from a later reader of the same stream.
    number: u64,
    position: Position,
    sender: mpsc::Sender<Result<Event, QueueError>>,
    /// Left out until then, since it could not be read.
    rests_until: Option<Instant>,
}

/// A stream that is read until this is dropped.
pub(super) struct Reading {
    streams: Arc<Streams>,
    key: String,
    number: u64,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(&self.key).finish()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.streams.state();
        if state.open.get(&self.key).is_some_and(|stream| stream.number == self.number) {
            state.open.remove(&self.key);
        }
    }
}

/// What is read next, and for how long to wait for an event.
struct Plan {
    from: Vec<Next>,
    block: Duration,
}

/// A stream that is read next.
struct Next {
    key: String,
    number: u64,
    position: Position,
}

impl Streams {
    pub(crate) fn new(server: Arc<Server>, link: Arc<Link>) -> Self {
        Self { server, link, state: Mutex::default() }
    }

    /// Reads a stream from a position on; `None` when somebody reads it already. Needs a Tokio
    /// runtime.
    pub(super) fn read(self: &Arc<Self>, key: &str, from: Position) -> Option<(Reading, Received)> {
        let mut state = self.state();
        if state.open.contains_key(key) {
            return None;
        }
        state.number += 1;
        let (number, key) = (state.number, key.to_owned());
        let (sender, received) = mpsc::channel(EVENTS_MAX);
        let stream = Stream { number, position: from, sender, rests_until: None };
        state.open.insert(key.clone(), stream);
        if !std::mem::replace(&mut state.is_running, true) {
            let streams = Arc::clone(self);
            tokio::spawn(async move {
                let mut end = End { streams, is_due: false };
                end.streams.run().await;
                end.is_due = true;
            });
        }
        Some((Reading { streams: Arc::clone(self), key, number }, received))
    }

    /// Reads until nobody wants to hear anything any more.
    async fn run(&self) {
        let mut wire = None;
        while let Some(plan) = self.plan() {
            if plan.from.is_empty() {
                sleep(plan.block).await;
                continue;
            }
            match self.read_all(&mut wire, &plan).await {
                Ok(()) => {}
                Err(error) if error.is_away() => {
                    wire = None;
                    for next in &plan.from {
                        let told = QueueError::away(&self.server.place, problem(&error));
                        self.tell(next, Err(told));
                    }
                    sleep(PAUSE).await;
                }
                // One of them cannot be read: the others are.
                Err(_) => {
                    wire = None;
                    if !self.read_each(&plan).await {
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Which streams are read next; `None` when there are none left, and the task ends.
    fn plan(&self) -> Option<Plan> {
        let mut state = self.state();
        state.open.retain(|_, stream| !stream.sender.is_closed());
        if state.open.is_empty() {
            state.is_running = false;
            return None;
        }
        let now = Instant::now();
        let is_ready = |stream: &Stream| {
            stream.sender.capacity() >= EVENTS_AT_ONCE
                && stream.rests_until.is_none_or(|until| until <= now)
        };
        let ready = state.open.iter().filter(|(_, stream)| is_ready(stream));
        let next = |(key, stream): (&String, &Stream)| {
            let (key, position) = (key.clone(), stream.position.clone());
            Next { key, number: stream.number, position }
        };
        let from: Vec<Next> = ready.map(next).collect();
        let block = if from.len() == state.open.len() { BLOCK } else { BLOCK_SHORT };
        Some(Plan { from, block })
    }

    /// Reads all streams of a plan at once.
    async fn read_all(&self, wire: &mut Option<Wire>, plan: &Plan) -> Result<(), QueueError> {
        let mut from = Vec::with_capacity(plan.from.len());
        for next in &plan.from {
            from.push(match next.position.start() {
                Some(id) => id.to_owned(),
                None => self.newest(wire, next).await?,
            });
        }
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(EVENTS_AT_ONCE);
        command.arg("BLOCK").arg(plan.block.as_millis() as u64).arg("STREAMS");
        for next in &plan.from {
            command.arg(&next.key);
        }
        command.arg(from);
        let reply: Option<StreamReadReply> = self.ask(wire, &command).await?;
        let read = reply.into_iter().flat_map(|reply| reply.keys);
        let mut read: HashMap<String, Vec<StreamId>> =
            read.map(|stream| (stream.key, stream.ids)).collect();
        for next in &plan.from {
            self.hand_out(next, read.remove(&next.key).unwrap_or_default());
        }
        Ok(())
    }

    /// The end of a stream, which is asked for once: between two reads it moves.
    async fn newest(&self, wire: &mut Option<Wire>, next: &Next) -> Result<String, QueueError> {
        let mut newest = cmd("XREVRANGE");
        newest.arg(&next.key).arg("+").arg("-").arg("COUNT").arg(1);
        let newest: Vec<(String, Vec<String>)> = self.ask(wire, &newest).await?;
        let id = newest.into_iter().next().map_or("0-0".to_owned(), |(id, _)| id);
        self.change(next, |stream| stream.position = Position::after(id.clone()));
        Ok(id)
    }

    /// Reads every stream of a plan by itself, and tells those that cannot be read; whether there is
    /// one.
    async fn read_each(&self, plan: &Plan) -> bool {
        let mut pipeline = pipe();
        for next in &plan.from {
            let command = pipeline.add_command(cmd("XREAD"));
            command.arg("COUNT").arg(EVENTS_AT_ONCE).arg("STREAMS").arg(&next.key);
            // What is at its end has nothing to read.
            command.arg(next.position.start().unwrap_or("$"));
        }
        let Ok(answers) = self.link.ask_all(&mut pipeline).await else { return false };
        let mut has_faulty = false;
        for (next, answer) in plan.from.iter().zip(answers) {
            let read = answer
                .and_then(|value| Ok(redis::from_redis_value::<Option<StreamReadReply>>(value)?));
            match read {
                Ok(reply) => {
                    let keys = reply.into_iter().flat_map(|reply| reply.keys);
                    self.hand_out(next, keys.flat_map(|stream| stream.ids).collect());
                }
                Err(error) => {
                    has_faulty = true;
                    let until = Some(Instant::now() + PAUSE);
                    self.change(next, |stream| stream.rests_until = until);
                    self.tell(next, Err(QueueError::of(&self.server.place, error)));
                }
            }
        }
        has_faulty
    }

    async fn ask<T: FromRedisValue>(
        &self,
        wire: &mut Option<Wire>,
        command: &Cmd,
    ) -> Result<T, QueueError> {
        let mut used = match wire.take() {
            Some(used) => used,
            None => connect(&self.server, None).await?,
        };
        let place = &self.server.place;
        let answer = timeout(ANSWER_MAX, used.ask(command))
            .await
            .map_err(|_| QueueError::away(place, "no answer in time"))?
            .map_err(|error| QueueError::of(place, error))?;
        // Only after an answer is it sure that the next one belongs to the next command.
        *wire = Some(used);
        Ok(answer)
    }

    /// Hands a stream's entries to its reader, which has room for them.
    fn hand_out(&self, next: &Next, entries: Vec<StreamId>) {
        for entry in entries {
            self.change(next, |stream| stream.position = Position::after(entry.id.clone()));
            self.tell(next, Ok(event(entry)));
        }
    }

    fn tell(&self, next: &Next, told: Result<Event, QueueError>) {
        // An error that finds no room is told again.
        self.change(next, |stream| _ = stream.sender.try_send(told));
    }

    /// Changes a stream, unless its reader is gone or another's by now.
    fn change(&self, next: &Next, change: impl FnOnce(&mut Stream)) {
        let mut state = self.state();
        let stream = state.open.get_mut(&next.key);
        if let Some(stream) = stream.filter(|stream| stream.number == next.number) {
            change(stream);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets everybody know when the task panics: they would wait for events for ever. When its runtime
/// ends, another one may go on.
struct End {
    streams: Arc<Streams>,
    is_due: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_due {
            return;
        }
        let mut state = self.streams.state();
        state.is_running = false;
        if std::thread::panicking() {
            state.open.clear();
        }
    }
}

/// What went wrong, without the place.
fn problem(error: &QueueError) -> String {
    match error {
        QueueError::Away { problem, .. }
        | QueueError::Refused { problem, .. }
        | QueueError::Misconfigured { problem, .. } => problem.clone(),
    }
}
