//! Applications: one message or many at a time, some late, some rolled back.

use super::books::Event;
use super::{LANES, Run, below};
use postroom_core::Key;
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

/// How many messages there may be for each second of a run.
const PER_SECOND: usize = 2_500;

const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (id, source_stream_id, source_event_id, integration_type, event_type, payload, due_at, status)
    SELECT m.id, 's', m.id::text, m.lane, 't', '{\"n\": 1}',
           clock_timestamp() + make_interval(secs => m.delay), m.status
    FROM unnest($1::uuid[], $2::text[], $3::float8[], $4::text[]) AS m (id, lane, delay, status)
    RETURNING seq, id";

pub(super) async fn produce(run: Arc<Run>, number: u64) {
    let mut chance = run.chance(number);
    let client = run.client().await;
    let most = PER_SECOND
        * usize::try_from((run.ends_at - std::time::Instant::now()).as_secs()).unwrap_or(0);
    while run.is_on() && run.books.messages() < most {
        // The last of them has long transactions only.
        let statements = if number == 0 { below(&mut chance, 4) + 1 } else { 1 };
        client.batch_execute("BEGIN").await.expect("begin");
        let mut keys = Vec::new();
        for _ in 0..statements {
            keys.extend(insert(&client, &mut chance).await);
            if number == 0 {
                pause(&mut chance, 150).await;
            }
        }
        if chance.random_bool(0.1) {
            client.batch_execute("ROLLBACK").await.expect("rollback");
            run.books.count(Event::RolledBack, keys.len());
        } else {
            client.batch_execute("COMMIT").await.expect("commit");
            run.books.committed(keys);
        }
        pause(&mut chance, 12).await;
    }
}

async fn insert(client: &Client, chance: &mut StdRng) -> Vec<Key> {
    let rows = if chance.random_bool(0.7) { 1 } else { below(chance, 200) + 1 };
    let mut ids = Vec::new();
    let mut lanes = Vec::new();
    let mut delays = Vec::new();
    let mut statuses = Vec::new();
    // A statement for one lane makes full parcels.
    let only = chance.random_bool(0.3).then(|| below(chance, LANES.len()));
    for _ in 0..rows {
        ids.push(Uuid::new_v4());
        lanes.push(LANES[only.unwrap_or_else(|| below(chance, LANES.len()))]);
        delays.push(match below(chance, 20) {
            0 => 0.2,
            1 => 1.3,
            _ => 0.0,
        });
        statuses.push(if chance.random_bool(0.03) { "FAILED" } else { "PENDING" });
    }
    let inserted = client.query(INSERT, &[&ids, &lanes, &delays, &statuses]).await.expect("insert");
    inserted.iter().map(|row| Key { seq: row.get(0), id: row.get(1) }).collect()
}

pub(super) async fn pause(chance: &mut StdRng, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(chance.random_range(0..=most_ms))).await;
}
