//! Applications: one message or many at a time, some late, some rolled back.

use super::books::Event;
use super::outbox::{NewRow, Session};
use super::{LANES, Run, below};
use postroom_core::Key;
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

pub(super) async fn produce(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(number);
    let mut session = run.outbox.session().await;
    let most = run.outbox.messages_per_second()
        * usize::try_from((run.ends_at - std::time::Instant::now()).as_secs()).unwrap_or(0);
    while run.is_on() && run.books.messages() < most {
        // The last of them has long transactions only.
        let statements = if number == 0 { below(&mut chance, 4) + 1 } else { 1 };
        session.execute("BEGIN").await;
        let mut keys = Vec::new();
        for _ in 0..statements {
            keys.extend(insert(&mut *session, &mut chance).await);
            if number == 0 {
                pause(&mut chance, run.outbox.longest_pause_ms()).await;
            }
        }
        if chance.random_bool(0.1) {
            session.execute("ROLLBACK").await;
            run.books.count(Event::RolledBack, keys.len());
        } else {
            session.execute("COMMIT").await;
            run.books.committed(keys);
        }
        pause(&mut chance, 12).await;
    }
}

async fn insert(session: &mut dyn Session, chance: &mut StdRng) -> Vec<Key> {
    let rows = if chance.random_bool(0.7) { 1 } else { below(chance, 200) + 1 };
    // A statement for one lane makes full parcels.
    let only = chance.random_bool(0.3).then(|| below(chance, LANES.len()));
    let mut new = Vec::new();
    for _ in 0..rows {
        let lane = LANES[only.unwrap_or_else(|| below(chance, LANES.len()))];
        let delay_ms = match below(chance, 20) {
            0 => 200,
            1 => 1_300,
            _ => 0,
        };
        let status = if chance.random_bool(0.03) { "FAILED" } else { "PENDING" };
        new.push(NewRow { id: Uuid::new_v4(), lane, delay_ms, status });
    }
    session.insert(&new).await
}

pub(super) async fn pause(chance: &mut StdRng, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(chance.random_range(0..=most_ms))).await;
}
