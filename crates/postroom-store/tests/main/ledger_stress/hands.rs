//! People: one who changes messages by hand, one who operates, and what looks after the outbox.

use super::books::Event;
use super::outbox::Edit;
use super::producers::pause;
use super::relays::accepted;
use super::{LANES, Run, below};
use postroom_core::{Key, NewAction, Operation};
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;

/// Out of how many of the newest messages they choose.
const NEWEST: usize = 1_000;

/// Some of the newest messages.
fn some(run: &Run, chance: &mut StdRng, most: usize) -> Vec<Key> {
    let messages = run.books.messages();
    if messages == 0 {
        return Vec::new();
    }
    let among = messages.min(NEWEST);
    let keys =
        (0..=below(chance, most)).map(|_| run.books.message(messages - 1 - below(chance, among)));
    let mut keys: Vec<Key> = keys.collect();
    keys.sort_unstable_by_key(|key| key.id.clone());
    keys.dedup();
    keys
}

/// Changes messages by plain SQL.
pub(super) async fn edit(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(200 + number);
    let mut session = run.outbox.session().await;
    while run.is_on() {
        let keys = some(&run, &mut chance, 6);
        let ids: Vec<_> = keys.iter().map(|key| key.id.clone()).collect();
        let edit = match below(&mut chance, 5) {
            0 => Edit::DueSoon,
            1 => Edit::Elsewhere(LANES[below(&mut chance, LANES.len())]),
            2 => {
                ids.iter().for_each(|id| run.books.may_be_sent_by_hand(id));
                Edit::Sent
            }
            _ => {
                ids.iter().for_each(|id| run.books.cause(id, "opened by hand"));
                Edit::Opened
            }
        };
        session.execute("BEGIN").await;
        let changed = session.change(&edit, &ids).await;
        if chance.random_bool(0.2) {
            pause(&mut chance, run.outbox.longest_pause_ms().min(60)).await;
        }
        // Whoever changes several messages may meet a relay that has them in another order.
        let end = if changed.is_ok() && chance.random_bool(0.9) { "COMMIT" } else { "ROLLBACK" };
        session.execute(end).await;
        run.books.count(Event::Edit, usize::try_from(changed.unwrap_or(0)).unwrap_or(0));
        pause(&mut chance, 4).await;
    }
}

/// Releases, cancels and redrives.
pub(super) async fn operate(run: Arc<Run>) {
    let mut chance = run.chance(300);
    let store = run.outbox.store().await;
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    while run.is_on() {
        let keys = some(&run, &mut chance, 12);
        let which = below(&mut chance, 4);
        let cause = ["released", "released", "cancelled", "redriven"][which];
        if which == 2 {
            keys.iter().for_each(|key| run.books.may_be_dead(&key.id));
        }
        run.books.operation_begins(&keys, cause);
        let changed = match which {
            0 | 1 => store.release(action, &keys).await,
            2 => store.cancel(action, &keys).await,
            _ => store.redrive(action, &keys).await,
        };
        run.books.operation_ends(&keys);
        let changed = accepted(&run, changed).unwrap_or(0);
        run.books.count(Event::Operation, usize::try_from(changed).unwrap_or(0));
        pause(&mut chance, 10).await;
    }
}

/// Counts the backlog; with every other seed, reconciles too. What that finds was lost until then.
pub(super) async fn keep_up(run: Arc<Run>) {
    let mut chance = run.chance(400);
    let store = run.outbox.store().await;
    while run.is_on() {
        pause(&mut chance, 500).await;
        accepted(&run, store.backlog().await);
        let noted_before = Duration::from_millis(chance.random_range(0..500));
        let recorded = accepted(&run, store.record_sent(noted_before, 10).await).unwrap_or(0);
        run.books.count(Event::Recorded, usize::try_from(recorded).unwrap_or(0));
        if run.seed.is_multiple_of(2)
            && let Some(found) = accepted(&run, store.reconcile().await)
        {
            run.books.count(Event::Reconciled, usize::try_from(found.total()).unwrap_or(0));
            if found.freed + found.advanced + found.numbered > 0 {
                run.books.violation(format!("reconciling found {found:?}"));
            }
        }
    }
}
