//! One integration's path: what it holds, and the loop that starts its sink calls.

use crate::attempt::attempt;
use crate::completer::Completion;
use crate::health::{LaneHealth, LaneState};
use crate::held::Claim;
use crate::relay::Shared;
use crate::settings::Lane;
use postroom_core::{ContentFault, Fate, Message};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

/// A taken message on its way.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) message: Message,
    pub(crate) rescues: u32,
    pub(crate) fault: Option<ContentFault>,
    pub(crate) claim: Arc<Claim>,
}

/// Whether a message was lost with others and then again on its own in its lane: whatever lost it
/// the second time was one of a few.
pub(crate) fn is_suspect(rescues: u32) -> bool {
    rescues > 1
}

/// A lane takes no more while it holds this many bytes.
const BYTES_MAX: usize = 4 << 20;
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_CAP: Duration = Duration::from_secs(60);

/// A lane's settings and what it holds right now.
pub(crate) struct LaneRoom {
    pub(crate) lane: Lane,
    in_hand: AtomicUsize,
    /// Room for messages that are being asked for.
    reserved: AtomicUsize,
    bytes: AtomicUsize,
    in_hand_max: usize,
    rescued_in_hand: AtomicBool,
    suspect_in_hand: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    paused_until: Option<Instant>,
    last_pause: Option<Duration>,
    error: Option<String>,
}

impl LaneRoom {
    pub(crate) fn new(lane: Lane, take_max: usize) -> Self {
        // Enough that calls never wait for the database: what runs, and as much again that is
        // being taken, waits, or is being recorded.
        let in_hand_max = (4 * lane.concurrency.max(1) * lane.call_max()).max(2 * take_max);
        Self {
            lane,
            in_hand: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            in_hand_max,
            rescued_in_hand: AtomicBool::new(false),
            suspect_in_hand: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether to ask for messages: not until a quarter of the room is free, so that a busy lane
    /// is filled in batches and not one by one.
    pub(crate) fn has_room(&self) -> bool {
        self.free() * 4 >= self.in_hand_max
            && self.bytes.load(Ordering::Acquire) < BYTES_MAX
            && !self.is_paused()
    }

    /// Reserves room for up to `most` messages, and says for how many.
    pub(crate) fn reserve(&self, most: usize) -> usize {
        if !self.has_room() {
            return 0;
        }
        let mut rows = 0;
        // In one step, since two may ask at the same time.
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            rows = self.in_hand_max.saturating_sub(self.in_hand() + reserved).min(most);
            (rows > 0).then_some(reserved + rows)
        });
        rows
    }

    /// Gives back what was reserved: what came of it is counted message by message.
    pub(crate) fn unreserve(&self, rows: usize) {
        self.reserved.fetch_sub(rows, Ordering::AcqRel);
    }

    fn free(&self) -> usize {
        let reserved = self.reserved.load(Ordering::Acquire);
        self.in_hand_max.saturating_sub(self.in_hand() + reserved)
    }

    /// Whether to ask for a rescued message: they are handled one at a time.
    pub(crate) fn wants_rescued(&self) -> bool {
        !self.holds_rescued() && !self.is_paused()
    }

    pub(crate) fn holds_rescued(&self) -> bool {
        self.rescued_in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn holds_suspect(&self) -> bool {
        self.suspect_in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Counts a message that was taken.
    pub(crate) fn add(&self, message: &Message, rescues: u32) {
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(message.weight(), Ordering::AcqRel);
        if rescues > 0 {
            self.rescued_in_hand.store(true, Ordering::Release);
            self.suspect_in_hand.store(is_suspect(rescues), Ordering::Release);
        }
    }

    /// Counts a message whose fate is recorded.
    pub(crate) fn remove(&self, weight: usize, rescues: u32) {
        self.in_hand.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(weight, Ordering::AcqRel);
        if rescues > 0 {
            self.suspect_in_hand.store(false, Ordering::Release);
            self.rescued_in_hand.store(false, Ordering::Release);
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused_until.is_some_and(|until| until > Instant::now())
    }

    /// The destination refuses everything: stop for a while, longer each time in a row.
    pub(crate) fn refused(&self, error: &str) {
        let mut state = self.state();
        if state.paused_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        let pause = state.last_pause.map_or(PAUSE_FIRST, |last| (last * 2).min(PAUSE_CAP));
        state.last_pause = Some(pause);
        state.paused_until = Some(Instant::now() + pause);
        state.error = Some(error.to_owned());
        tracing::error!(
            integration = self.lane.integration,
            error,
            retry_in = ?pause,
            "the destination refuses: lane paused, no attempt used"
        );
    }

    /// Says once that a lane has begun to fail.
    pub(crate) fn failed(&self, error: &str) {
        let mut state = self.state();
        if state.error.is_none() {
            tracing::warn!(integration = self.lane.integration, error, "deliveries fail");
        }
        state.error = Some(error.to_owned());
    }

    /// Says once that a lane works again.
    pub(crate) fn delivered(&self) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!(integration = self.lane.integration, "deliveries work again");
        }
        state.last_pause = None;
        state.paused_until = None;
    }

    pub(crate) fn health(&self) -> LaneHealth {
        let paused = self.is_paused();
        LaneHealth {
            integration: self.lane.integration.clone(),
            state: if paused { LaneState::Paused } else { LaneState::Running },
            error: self.state().error.clone(),
            in_flight: self.in_hand(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts sink calls for what arrives, until the inbox closes or the relay stops. Then gives
/// back what has not begun, and waits for the rest as long as it may.
pub(crate) async fn run(
    shared: Arc<Shared>,
    room: Arc<LaneRoom>,
    mut inbox: mpsc::UnboundedReceiver<Vec<Work>>,
    completions: mpsc::UnboundedSender<Vec<Completion>>,
    mut stopping: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(room.lane.concurrency.max(1)));
    let mut waiting = VecDeque::new();
    let mut calls = JoinSet::new();
    loop {
        let next = async {
            // The permit first: while it is waited for, the next batch fills.
            let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
            fill(&mut waiting, &mut inbox, room.lane.call_max()).await;
            (!waiting.is_empty()).then_some(permit)
        };
        let permit = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => break,
            permit = next => permit,
        };
        let Some(permit) = permit else { break };
        let call = attempt(
            Arc::clone(&shared),
            Arc::clone(&room),
            next_call(&mut waiting, room.lane.call_max()),
            completions.clone(),
        );
        calls.spawn(async move {
            call.await;
            drop(permit);
        });
        while calls.try_join_next().is_some() {}
    }
    inbox.close();
    while let Ok(works) = inbox.try_recv() {
        waiting.extend(works);
    }
    let released =
        waiting.into_iter().map(|work| Completion::of(&room, work, Some(Fate::Released)));
    let _ = completions.send(released.collect());
    let all = async { while calls.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.settings.stop_limit, all).await.is_err() {
        tracing::warn!(
            integration = room.lane.integration,
            calls = calls.len(),
            "stopping: sink calls did not end in time; their messages are given back"
        );
        calls.shutdown().await;
    }
}

/// Waits until something is there, and takes what else has arrived, up to one call's worth.
/// Nothing is there afterwards only when the inbox is closed.
async fn fill(
    waiting: &mut VecDeque<Work>,
    inbox: &mut mpsc::UnboundedReceiver<Vec<Work>>,
    call_max: usize,
) {
    if waiting.is_empty()
        && let Some(works) = inbox.recv().await
    {
        waiting.extend(works);
    }
    while waiting.len() < call_max
        && let Ok(works) = inbox.try_recv()
    {
        waiting.extend(works);
    }
}

/// The next call's messages. A rescued message goes alone: it may be the one that kills.
fn next_call(waiting: &mut VecDeque<Work>, call_max: usize) -> Vec<Work> {
    let rescued = waiting.iter().position(|work| work.rescues > 0);
    let len = match rescued {
        Some(0) => 1,
        Some(position) => position,
        None => waiting.len(),
    };
    waiting.drain(..len.min(call_max)).collect()
}
