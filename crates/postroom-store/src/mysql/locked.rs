//! Which deliveries a settlement may change, around rows that somebody else has locked.

use super::claims::literal;
use super::version::Locking;
use super::{LIST, identities, list, numbers};
use postroom_core::{Fence, Settlement, Verdict};
use sqlx::{Error, MySqlConnection};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// The deliveries of a settlement that its fence lets through, by number. What is in neither was
/// lost to another relay, or is another dispatch's.
#[derive(Default)]
pub(super) struct LetThrough {
    /// Locked by this transaction, together with their messages.
    pub(super) free: HashSet<i64>,
    /// Locked by somebody else, or their messages are.
    pub(super) locked: Vec<i64>,
}

/// Locks what a settlement may change. Where the server can, it passes over what somebody else has
/// locked, so that nothing that follows has to wait.
pub(super) async fn let_through(
    tx: &mut MySqlConnection,
    settlement: &Settlement,
    locking: Locking,
) -> Result<LetThrough, Error> {
    let mut seqs: Vec<i64> = settlement.verdicts.iter().map(|verdict| verdict.seq).collect();
    seqs.sort_unstable();
    let fence = match settlement.fence {
        Fence::Claim(token) => format!("claim = {}", literal(token)),
        Fence::Dispatch { number, .. } => {
            format!("dispatch = {} AND NOT dead", i64::from(number) - 1)
        }
    };
    let mut held = LetThrough::default();
    for part in seqs.chunks(LIST) {
        let query = |seqs: &[i64]| {
            format!(
                "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
                 WHERE seq IN ({}) AND {fence} ",
                list(seqs)
            )
        };
        let found = numbers(tx, query(part) + locking.clause()).await?;
        if locking == Locking::Wait {
            held.free.extend(found);
            continue;
        }
        let deliveries = missing(part, &found);
        if !deliveries.is_empty() {
            held.locked.extend(numbers(tx, query(&deliveries)).await?);
        }
        let locked = locked_of(tx, Rows::Messages, &found).await?;
        held.free.extend(missing(&found, &locked));
        held.locked.extend(locked);
    }
    if let Fence::Dispatch { .. } = settlement.fence {
        // The deliveries are locked, so no number changes hands from here on.
        for other in others(tx, &settlement.verdicts).await? {
            held.free.remove(&other);
        }
    }
    Ok(held)
}

/// Where rows are locked. Everybody locks deliveries before messages.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    Deliveries,
    Messages,
}

/// Locks rows as far as nobody else has; the numbers of those that somebody has. Only on a server
/// that can pass over them.
pub(super) async fn locked_of(
    tx: &mut MySqlConnection,
    rows: Rows,
    seqs: &[i64],
) -> Result<Vec<i64>, Error> {
    let table = match rows {
        Rows::Deliveries => "outbox_delivery",
        Rows::Messages => "integration_outbox",
    };
    let query = |seqs: &[i64]| {
        format!("SELECT seq FROM {table} FORCE INDEX (PRIMARY) WHERE seq IN ({}) ", list(seqs))
    };
    let free = numbers(tx, query(seqs) + Locking::SkipLocked.clause()).await?;
    let passed_over = missing(seqs, &free);
    // What is not there was deleted.
    if passed_over.is_empty() { Ok(passed_over) } else { numbers(tx, query(&passed_over)).await }
}

/// The numbers that are those of other messages by now: numbers come again after a TRUNCATE. A claim's
/// token tells them apart by itself.
async fn others(tx: &mut MySqlConnection, verdicts: &[Verdict]) -> Result<Vec<i64>, Error> {
    let mut others = Vec::new();
    for part in verdicts.chunks(LIST) {
        let ids: HashMap<i64, Uuid> =
            part.iter().map(|verdict| (verdict.seq, verdict.id)).collect();
        let seqs: Vec<i64> = ids.keys().copied().collect();
        for (seq, id) in identities(tx, &seqs).await? {
            if ids.get(&seq) != Some(&id) {
                others.push(seq);
            }
        }
    }
    Ok(others)
}

/// Which of some numbers are not in a part of them.
fn missing(of: &[i64], part: &[i64]) -> Vec<i64> {
    if of.len() == part.len() {
        return Vec::new();
    }
    let part: HashSet<&i64> = part.iter().collect();
    of.iter().filter(|seq| !part.contains(seq)).copied().collect()
}
