//! Relays: they take, deliver into the books and settle in parts; some are killed or stall.

use super::books::Event;
use super::producers::pause;
use super::{CLAIM_TIME, LANES, Run, below};
use postroom_core::{
    Batch, Fate, Fence, Heartbeat, Quota, RelayId, Rescued, Settlement, Store, StoreErrorKind,
    StoreResult, Take, Taken, Token, Verdict,
};
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a settlement is tried around what is locked.
const TRIES: usize = 20;

pub(super) async fn relay(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(100 + number);
    let store = run.outbox.store().await;
    let name = format!("relay-{number}");
    let mut wake = store.wake().await;
    while run.is_on() {
        // A take that follows a signal is another one than that of a poll.
        if let Some(wake) = wake.as_mut().filter(|_| below(&mut chance, 2) == 0) {
            let _ = tokio::time::timeout(Duration::from_millis(10), wake.woken()).await;
        }
        let quotas = quotas(&mut chance);
        let called = Instant::now();
        let Some(relay) = known(&run, beat(&*store, RelayId::random(), &[]).await) else {
            continue;
        };
        let rows = [3, 64, 200, 1_000][below(&mut chance, 4)];
        let take = Take { rows, ..wish(&name, relay, &quotas) };
        let which = below(&mut chance, 8);
        if which < 2 {
            let rescued = store.rescue(10).await;
            let rescued = usize::try_from(known(&run, rescued).unwrap_or(0)).unwrap_or(0);
            run.books.count(Event::Rescued, rescued);
        }
        let batches = match which {
            0 | 2 => store.take_rescued(&take, Rescued::Together).await,
            1 | 3 => store.take_rescued(&take, Rescued::Alone).await,
            _ => store.take(&take).await,
        };
        let batches = known(&run, batches).unwrap_or_default();
        for batch in &batches {
            run.books.taken(batch, called, called + CLAIM_TIME);
            run.books.count(Event::Taken, batch.messages.len());
        }
        if batches.is_empty() {
            pause(&mut chance, 10).await;
        }
        for batch in batches {
            handle(&run, &*store, number, (relay, &batch), called, &mut chance).await;
        }
    }
}

async fn handle(
    run: &Run,
    store: &dyn Store,
    number: u64,
    (relay, batch): (RelayId, &Batch),
    called: Instant,
    chance: &mut StdRng,
) {
    let mut until = called + CLAIM_TIME;
    match below(chance, 14) {
        // Killed, with some of it delivered.
        0 => {
            run.books.count(Event::Kill, 1);
            for taken in batch.messages.iter().take(below(chance, batch.messages.len() + 1)) {
                run.books.delivered(number, batch.token, &taken.message.id);
                run.books.cause(&taken.message.id, "killed");
            }
            return;
        }
        // Stalls until about the end of the claim.
        1 => {
            run.books.count(Event::Stall, 1);
            let end = until + Duration::from_millis(80);
            tokio::time::sleep_until(
                (end - Duration::from_millis(chance.random_range(0..160))).into(),
            )
            .await;
        }
        2 => {
            let from = Instant::now();
            let held = Heartbeat { held: &[batch.token], ..heartbeat(relay) };
            let lost = known(run, store.beat(&held).await);
            if lost.is_some_and(|lost| lost.is_empty()) {
                until = from + CLAIM_TIME;
                run.books.extended(batch, until);
            }
        }
        _ => {}
    }
    let parts = below(chance, 3) + 1;
    let size = batch.messages.len().div_ceil(parts).max(1);
    let parts: Vec<&[Taken]> = batch.messages.chunks(size).collect();
    let last = parts.len() - 1;
    let mut settlements = Vec::new();
    for (place, part) in parts.into_iter().enumerate() {
        let finished = place == last;
        let verdicts = part.iter().map(|taken| verdict(run, taken, chance)).collect();
        settlements.push(Settlement { fence: Fence::Claim(batch.token), verdicts, finished });
    }
    if chance.random_bool(0.2) {
        // Beside each other, as a relay does that records on two connections.
        let all = settlements.iter().map(|one| settle(run, store, number, one));
        futures_util::future::join_all(all).await;
        return;
    }
    for settlement in &settlements {
        settle(run, store, number, settlement).await;
        if chance.random_bool(0.3) {
            pause(chance, 40).await;
        }
    }
}

fn verdict(run: &Run, taken: &Taken, chance: &mut StdRng) -> Verdict {
    let delay = Duration::from_millis(chance.random_range(0..80));
    let error = "away".to_owned();
    let fate = match below(chance, 200) {
        0..16 => Fate::Failed { delay, error, took: Duration::ZERO },
        16..28 => Fate::Released,
        28..34 => Fate::Postponed { delay },
        34 => {
            run.books.may_be_dead(&taken.message.id);
            Fate::Dead { error, tried: None, announcement: None }
        }
        _ => Fate::Sent,
    };
    Verdict { seq: taken.message.seq, id: taken.message.id.clone(), fate }
}

/// Delivers what is to be SENT, and settles. What is locked is settled again; in the end it is left to the
/// rescue.
async fn settle(run: &Run, store: &dyn Store, number: u64, settlement: &Settlement) {
    let mut left = settlement.clone();
    let token = left.fence.token();
    for verdict in &left.verdicts {
        let event = match verdict.fate {
            Fate::Sent => {
                run.books.delivered(number, token, &verdict.id);
                continue;
            }
            Fate::Failed { .. } => Event::Failed,
            Fate::Released => Event::Released,
            Fate::Postponed { .. } => Event::Postponed,
            Fate::Dead { .. } => Event::Dead,
        };
        run.books.count(event, 1);
    }
    run.books.settling(token, left.verdicts.iter().map(|verdict| verdict.id.clone()));
    for _ in 0..TRIES {
        let Some(settled) = known(run, store.settle(std::slice::from_ref(&left)).await) else {
            continue;
        };
        run.books.count(Event::Late, settled.late.len());
        for verdict in left.verdicts.iter().filter(|one| settled.late.contains(&one.seq)) {
            if matches!(verdict.fate, Fate::Sent) {
                run.books.cause(&verdict.id, "late");
            }
        }
        left.verdicts.retain(|one| settled.locked.contains(&one.seq));
        if left.verdicts.is_empty() {
            return;
        }
        run.books.count(Event::Locked, left.verdicts.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for verdict in left.verdicts.iter().filter(|one| matches!(one.fate, Fate::Sent)) {
        run.books.cause(&verdict.id, "never settled");
    }
}

/// Takes everything that is due, and settles it SENT.
pub(super) async fn deliver_all(run: &Run, store: &dyn Store) {
    let quotas = LANES.map(|lane| Quota { integration: lane.to_owned(), rows: 500 });
    let relay = beat(store, RelayId::random(), &[]).await.expect("a heartbeat");
    let take = wish("last", relay, &quotas);
    run.books.count(
        Event::Rescued,
        usize::try_from(store.rescue(100).await.expect("rescue")).unwrap_or(0),
    );
    loop {
        let called = Instant::now();
        let mut batches = Vec::new();
        for which in [None, Some(Rescued::Together), Some(Rescued::Alone)] {
            // Beside other work the heartbeat may be overdue before the take begins: then it is sent again.
            batches.extend(loop {
                beat(store, relay, &[]).await.expect("a heartbeat");
                let taken = match which {
                    None => store.take(&take).await,
                    Some(which) => store.take_rescued(&take, which).await,
                };
                match taken {
                    Err(error) if error.kind == StoreErrorKind::Conflict => {}
                    taken => break taken.expect("take"),
                }
            });
        }
        if batches.is_empty() {
            return;
        }
        for batch in &batches {
            run.books.taken(batch, called, called + CLAIM_TIME);
            let verdicts = batch.messages.iter().map(|taken| Verdict {
                seq: taken.message.seq,
                id: taken.message.id.clone(),
                fate: Fate::Sent,
            });
            let fence = Fence::Claim(batch.token);
            let settlement = Settlement { fence, verdicts: verdicts.collect(), finished: true };
            settle(run, store, RELAY_OF_THE_DRAIN, &settlement).await;
        }
    }
}

const RELAY_OF_THE_DRAIN: u64 = 99;

fn quotas(chance: &mut StdRng) -> Vec<Quota> {
    let mut quotas = Vec::new();
    for lane in LANES {
        if chance.random_bool(0.6) {
            let rows = [1, 5, 30, 100, 500][below(chance, 5)];
            quotas.push(Quota { integration: lane.to_owned(), rows });
        }
    }
    quotas
}

fn heartbeat(relay: RelayId) -> Heartbeat<'static> {
    Heartbeat { relay, name: "stress", lanes: 0, held: &[], claim_time: CLAIM_TIME }
}

/// A row under which claims last for one claim time from now.
async fn beat(store: &dyn Store, relay: RelayId, held: &[Token]) -> StoreResult<RelayId> {
    store.beat(&Heartbeat { held, ..heartbeat(relay) }).await?;
    Ok(relay)
}

fn wish<'a>(worker: &'a str, relay: RelayId, quotas: &'a [Quota]) -> Take<'a> {
    Take {
        worker,
        relay,
        quotas,
        rows: 1_000,
        bytes: 64 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}

/// What a store answered. To lose to somebody else is no fault; everything else is one, and so is a relay in a
/// deadlock, unless its database cannot help it.
fn known<T>(run: &Run, answer: StoreResult<T>) -> Option<T> {
    if let Err(error) = &answer
        && !run.outbox.relays_may_deadlock()
        && error
            .source
            .as_ref()
            .is_some_and(|source| format!("{source:?}").to_lowercase().contains("deadlock"))
    {
        run.books.violation(format!("{error}: {:?}", error.source));
    }
    accepted(run, answer)
}

/// The same for operators: they lock deliveries and then messages, who changes several by hand does so the
/// other way round, and one of the two is told to try again.
pub(super) fn accepted<T>(run: &Run, answer: StoreResult<T>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            run.books.count(Event::Conflict, 1);
            if error.kind != StoreErrorKind::Conflict {
                run.books.violation(format!("{error}: {:?}", error.source));
            }
            None
        }
    }
}
