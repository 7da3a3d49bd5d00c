//! One integration's path out of one database: the loop that starts its sink calls. It shares the
//! destination with the lanes of other databases, call by call.

use crate::attempt::attempt;
use crate::claim_registry::Claim;
use crate::completer::Completion;
use crate::relay::Shared;
use crate::room::{LaneRoom, Place};
use crate::stop::Stop;
use crate::turns::{Danger, Turn};
use postroom_core::{ContentFault, Fate, Message};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;
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
    let mut waiting = VecDeque::new();
    let mut calls = JoinSet::new();
    loop {
        let next = async {
            // No turn without something to do: another database may need it meanwhile.
            wait_for_work(&mut waiting, &mut inbox).await;
            let danger = danger(waiting.front()?);
            let turn = next_turn(&shared, &room, danger).await;
            // While the turn was waited for, the next batch has filled.
            fill(&mut waiting, &mut inbox, room.lane.call_max());
            Some((turn, danger))
        };
        let next = tokio::select! {
            biased;
            _ = stop.begun() => break,
            next = next => next,
        };
        let Some((turn, danger)) = next else { break };
        let works = next_call(&mut waiting, room.lane.call_max(), danger);
        let call =
            attempt(Arc::clone(&shared), Arc::clone(&room), works, completions.clone(), turn);
        calls.spawn(shared.in_span(call));
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

/// Waits for the lane's next turn, under a heartbeat that has not expired. While the heartbeat is
/// waited for, others have their turns: this database may not answer.
async fn next_turn(shared: &Shared, room: &LaneRoom, danger: Danger) -> Turn {
    loop {
        let turn = room.turns.next(danger, &room.pauses).await;
        if !shared.presence.has_expired() {
            return turn;
        }
        drop(turn);
        if !shared.presence.beat_if_expired(&*shared.store).await {
            return room.turns.next(danger, &room.pauses).await;
        }
    }
}

/// Waits until something is there. Nothing is there afterwards only when the inbox is closed.
async fn wait_for_work(
    waiting: &mut VecDeque<Work>,
    inbox: &mut mpsc::UnboundedReceiver<Vec<Work>>,
) {
    if waiting.is_empty()
        && let Some(works) = inbox.recv().await
    {
        // As they are: messages are large, and to copy them costs more than the rest of this loop.
        *waiting = works.into();
    }
}

/// Takes what else has arrived, up to one call's worth.
fn fill(
    waiting: &mut VecDeque<Work>,
    inbox: &mut mpsc::UnboundedReceiver<Vec<Work>>,
    call_max: usize,
) {
    while waiting.len() < call_max
        && let Ok(works) = inbox.try_recv()
    {
        waiting.extend(works);
    }
}

fn danger(work: &Work) -> Danger {
    work.place.rescued().map_or(Danger::None, Danger::of)
}

/// The next call's messages: none that is more dangerous than the turn is for. One that is handled
/// alone has a call of its own.
fn next_call(waiting: &mut VecDeque<Work>, call_max: usize, turn: Danger) -> Vec<Work> {
    let len = match turn {
        Danger::Alone => 1,
        Danger::None | Danger::Together => {
            let other = waiting.iter().take(call_max).position(|work| danger(work) > turn);
            other.unwrap_or(waiting.len())
        }
    };
    if len == waiting.len() && len <= call_max {
        return std::mem::take(waiting).into();
    }
    waiting.drain(..len.min(call_max)).collect()
}
