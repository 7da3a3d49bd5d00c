//! Deliveries, written as their messages say.

use super::key::Key;
use super::literal::{self, filled};
use super::session::Session;
use super::version::Locking;
use super::{LIST, execute, execute_each, fetch, fetch_each};
use chrono::NaiveDateTime;
use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row as _};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const RECORDED: &str = include_str!("sql/recorded.sql");
const LOCK_MESSAGES: &str = include_str!("sql/lock_messages.sql");
const MADE: &str = include_str!("sql/made_of_parcels.sql");
const KEEP: &str = include_str!("sql/keep_delivery.sql");
const FOLLOW: &str = include_str!("sql/follow.sql");
const REMOVE: &str = include_str!("sql/forget_orphans.sql");

/// What a message says, as far as the ledger goes by it.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) key: Key,
    pub(super) due_at: NaiveDateTime,
    pub(super) integration: String,
    pub(super) status: String,
    /// The size of its content, where that was read.
    pub(super) bytes: i64,
}

impl Recorded {
    fn of(row: &MySqlRow) -> Result<Self, Error> {
        let id = row.try_get::<Hyphenated, _>(1)?.into();
        Ok(Self {
            key: Key { seq: row.try_get(0)?, id },
            due_at: row.try_get(2)?,
            integration: row.try_get(3)?,
            status: row.try_get(4)?,
            bytes: row.try_get(5)?,
        })
    }

    /// The state of its delivery; `None` when it has none, since nothing is to be done. Statuses are
    /// listed: a message with one that nobody knows is left alone.
    pub(super) fn state(&self) -> Option<char> {
        match self.status.as_str() {
            "PENDING" => Some('w'),
            "FAILED" => Some('f'),
            "DEAD" => Some('d'),
            _ => None,
        }
    }

    /// Whether it is to be delivered.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state(), Some('w' | 'f'))
    }
}

/// A delivery to be written.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) key: Key,
    pub(super) due_at: NaiveDateTime,
    /// When it was due for the first time, where it is new.
    pub(super) since: NaiveDateTime,
    pub(super) integration: String,
    pub(super) state: char,
    pub(super) bytes: i64,
    pub(super) rescues: i32,
    pub(super) life: Life,
}

/// Which dispatches a new delivery may have had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Life {
    /// None: it comes with its message, out of a parcel.
    First,
    /// Any number: its message was opened again, or its delivery was lost, and a job of one of them may
    /// still be kept. None of their numbers comes again: it counts on from the seconds since 2020.
    Another,
}

impl Delivery {
    /// What a message says; `None` when it is closed.
    pub(super) fn of(recorded: &Recorded, bytes: i64, life: Life) -> Option<Self> {
        Some(Self {
            key: recorded.key,
            due_at: recorded.due_at,
            since: recorded.due_at,
            integration: recorded.integration.clone(),
            state: recorded.state()?,
            bytes,
            rescues: 0,
            life,
        })
    }

    fn row(&self) -> String {
        let Self { key, due_at, since, integration, state, bytes, rescues, life } = self;
        let dispatch = match life {
            Life::First => "0",
            Life::Another => "UNIX_TIMESTAMP() - 1577836800",
        };
        format!(
            "({}, {}, '{due_at}', '{since}', {rescues}, {dispatch}, {bytes}, '{state}', {})",
            literal::id(key.id),
            key.seq,
            literal::text(integration)
        )
    }
}

/// What becomes of a delivery that is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum IfThere {
    /// It is none of these: to meet one is a conflict.
    Conflict,
    /// It outranks what is written here, and stays.
    Keep,
    /// It is locked, and follows: its wait, its rescues as SQL, and how many dispatches are over with it.
    Follow { wait: Wait, rescues: &'static str, dispatches: u8 },
}

/// Since when a delivery that is there waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// As before.
    GoesOn,
    /// As before, unless its due time was changed by hand meanwhile.
    AsItSays,
    /// It was put off, changed by hand or opened again.
    BeginsAnew,
}

impl Wait {
    fn since(self) -> &'static str {
        match self {
            Self::GoesOn => "outbox_delivery.since",
            // Assignments are made from left to right: the due time is still the old one.
            Self::AsItSays => {
                "IF(outbox_delivery.due_at = VALUES(due_at), outbox_delivery.since, VALUES(since))"
            }
            Self::BeginsAnew => "VALUES(since)",
        }
    }
}

/// Writes deliveries, in the order of their keys.
pub(super) async fn write(
    tx: &mut Session,
    mut deliveries: Vec<Delivery>,
    if_there: IfThere,
) -> Result<(), Error> {
    deliveries.sort_unstable_by_key(|delivery| delivery.key.id);
    for part in deliveries.chunks(LIST) {
        let rows: Vec<String> = part.iter().map(Delivery::row).collect();
        let mut sql = filled(MADE, &[("rows", &rows.join(", "))]);
        match if_there {
            IfThere::Conflict => {}
            IfThere::Keep => sql.push_str(&filled(KEEP, &[])),
            IfThere::Follow { wait, rescues, dispatches } => {
                let dispatches = dispatches.to_string();
                let places =
                    [("since", wait.since()), ("rescues", rescues), ("dispatches", &dispatches)];
                sql.push_str(&filled(FOLLOW, &places));
            }
        }
        execute(tx, sql).await?;
    }
    Ok(())
}

/// Removes deliveries.
pub(super) async fn remove(tx: &mut Session, ids: &[Uuid]) -> Result<(), Error> {
    let remove = |id: &Uuid| filled(REMOVE, &[("id", &literal::id(*id))]);
    execute_each(tx, ids.iter().map(remove)).await
}

/// What messages say, by id. Locks nothing.
pub(super) async fn recorded(
    tx: &mut Session,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Recorded>, Error> {
    let mut all = HashMap::with_capacity(ids.len());
    for part in ids.chunks(LIST) {
        let sql = filled(RECORDED, &[("ids", &literal::ids(part))]);
        for row in fetch(tx, sql).await? {
            let recorded = Recorded::of(&row)?;
            all.insert(recorded.key.id, recorded);
        }
    }
    Ok(all)
}

/// Messages that were asked for.
#[derive(Default)]
pub(super) struct Locked {
    /// Locked by this transaction, and what they say. The size of their content was not read.
    pub(super) recorded: HashMap<Uuid, Recorded>,
    /// Locked by somebody else. What is in neither was deleted.
    pub(super) by_others: HashSet<Uuid>,
}

/// Locks messages; where the server can, it passes over what somebody else has locked. A message is found by
/// its number, and by its id where another has that number by now.
pub(super) async fn lock_messages(
    tx: &mut Session,
    keys: &[Key],
    locking: Locking,
) -> Result<Locked, Error> {
    let mut locked = Locked::default();
    let mut keys = keys.to_vec();
    // Everybody locks in the same order.
    keys.sort_unstable_by_key(|key| key.seq);
    let wanted: HashSet<Uuid> = keys.iter().map(|key| key.id).collect();
    let by_number = keys.chunks(locking.keys()).map(|part| {
        let seqs = literal::numbers(part.iter().map(|key| key.seq));
        lock("PRIMARY", &format!("seq IN ({seqs})"), locking.clause())
    });
    read_into(&mut locked.recorded, &wanted, tx, by_number).await?;
    let mut missing: Vec<Uuid> =
        wanted.iter().filter(|id| !locked.recorded.contains_key(id)).copied().collect();
    missing.sort_unstable();
    let by_id = |keys: usize, clause: &'static str| {
        let lock = move |part: &[Uuid]| {
            lock("outbox_id", &format!("id IN ({})", literal::ids(part)), clause)
        };
        missing.chunks(keys).map(lock)
    };
    read_into(&mut locked.recorded, &wanted, tx, by_id(locking.keys(), locking.clause())).await?;
    let mut there = HashMap::new();
    read_into(&mut there, &wanted, tx, by_id(LIST, "")).await?;
    locked.by_others = there.into_keys().filter(|id| !locked.recorded.contains_key(id)).collect();
    Ok(locked)
}

fn lock(index: &str, which: &str, clause: &str) -> String {
    format!("{} {clause}", filled(LOCK_MESSAGES, &[("index", index), ("which", which)]))
}

async fn read_into(
    all: &mut HashMap<Uuid, Recorded>,
    wanted: &HashSet<Uuid>,
    tx: &mut Session,
    statements: impl Iterator<Item = String>,
) -> Result<(), Error> {
    for row in fetch_each(tx, statements).await? {
        let recorded = Recorded::of(&row)?;
        if wanted.contains(&recorded.key.id) {
            all.insert(recorded.key.id, recorded);
        }
    }
    Ok(())
}
