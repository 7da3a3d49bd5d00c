//! One integration's path: the loop that starts its sink calls.

use crate::attempt::attempt;
use crate::claim_registry::Claim;
use crate::completer::Completion;
use crate::relay::Shared;
use crate::room::{LaneRoom, Place};
use crate::stop::Stop;
use postroom_core::{ContentFault, Fate, Message};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// A taken message on its way.
pub(crate) struct Work {
    pub(crate) message: Message,
    pub(crate) fault: Option<ContentFault>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) place: Place,
}

/// Starts sink calls for what arrives, until the inbox closes or the relay stops. Then gives
/// back what has not begun, and waits for the rest as long as it may.
pub(crate) async fn run(
    shared: Arc<Shared>,
    room: Arc<LaneRoom>,
    mut inbox: mpsc::UnboundedReceiver<Vec<Work>>,
    completions: mpsc::UnboundedSender<Vec<Completion>>,
    stop: Arc<Stop>,
) {
    let permits = Arc::new(Semaphore::new(room.lane.concurrency.max(1)));
    let mut waiting = VecDeque::new();
    let mut calls = JoinSet::new();
    loop {
        let next = async {
            // The permit first: while it is waited for, the next batch fills.
            let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
            fill(&mut waiting, &mut inbox, room.lane.call_max()).await;
            shared.presence.beat_if_expired(&*shared.store).await;
            (!waiting.is_empty()).then_some(permit)
        };
        let permit = tokio::select! {
            biased;
            _ = stop.begun() => break,
            permit = next => permit,
        };
        let Some(permit) = permit else { break };
        calls.spawn(attempt(
            Arc::clone(&shared),
            Arc::clone(&room),
            next_call(&mut waiting, room.lane.call_max()),
            completions.clone(),
            permit,
        ));
        while calls.try_join_next().is_some() {}
    }
    inbox.close();
    while let Ok(works) = inbox.try_recv() {
        waiting.extend(works);
    }
    let released = waiting.into_iter().map(|work| Completion::of(work, Some(Fate::Released)));
    let _ = completions.send(released.collect());
    let all = async { while calls.join_next().await.is_some() {} };
    let in_time = async {
        tokio::select! {
            biased;
            () = all => true,
            () = async { tokio::time::sleep_until(stop.begun().await).await } => false,
        }
    };
    if !in_time.await {
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
        // As they are: messages are large, and to copy them costs more than the rest of this loop.
        *waiting = works.into();
    }
    while waiting.len() < call_max
        && let Ok(works) = inbox.try_recv()
    {
        waiting.extend(works);
    }
}

/// The next call's messages. One that is handled alone has a call of its own.
fn next_call(waiting: &mut VecDeque<Work>, call_max: usize) -> Vec<Work> {
    let alone = waiting.iter().position(|work| work.place.is_alone());
    let len = match alone {
        Some(0) => 1,
        Some(position) => position,
        None => waiting.len(),
    };
    if len == waiting.len() && len <= call_max {
        return std::mem::take(waiting).into();
    }
    waiting.drain(..len.min(call_max)).collect()
}
