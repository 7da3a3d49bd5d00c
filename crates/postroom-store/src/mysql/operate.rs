//! What operators do to messages. Lock order: lane, claim, delivery, message, record.

use super::deliveries::{self, Delivery, IfThere, Life, Recorded, Wait, lock_messages};
use super::error::store_error;
use super::key::Key;
use super::layout::ledger_id;
use super::literal::{self, filled};
use super::locked::lock_deliveries;
use super::parcel::{Parcel, ParcelKey};
use super::parcels::{end_parcels, held_parcels, in_flight, make_deliveries};
use super::replay::replay;
use super::session::Session;
use super::settle::{delete_messages, lock_claims};
use super::upkeep::before;
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, now, remembered, row};
use crate::prunable::by_status;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, CANCELLED, MessageId, NewAction, Operate, Status, StoreErrorKind,
    StoreResult, Token,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const BEGIN_ACTION: &str = "INSERT INTO outbox_action (actor, operation, target) VALUES (?, ?, ?)";
const ACTIONS: &str = "SELECT id, at, actor, operation, target, messages FROM outbox_action \
                       WHERE id < ? ORDER BY id DESC LIMIT ?";
const NOTE_ACTION: &str = "UPDATE outbox_action SET messages = messages + ? WHERE id = ?";
const REDRIVE: &str = include_str!("sql/redrive.sql");
const CANCEL: &str = include_str!("sql/cancel.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const REPLAY_ROW: &str = include_str!("sql/replay_row.sql");
const PRUNE_DEAD: &str = include_str!("sql/prune_dead.sql");

/// How often an operation that lost to a concurrent transaction is tried, unless it waited this long
/// for a lock: somebody keeps that, and the operator should know.
const TRIES: usize = 10;
const WAIT_LONG: Duration = Duration::from_secs(1);

#[async_trait]
impl Operate for MySqlStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        let inserted = sqlx::query(BEGIN_ACTION)
            .bind(action.actor)
            .bind(action.operation.as_str())
            .bind(action.target)
            .execute(&self.pool)
            .await
            .map_err(|e| store_error("putting an operation on record", e))?;
        Ok(ActionId(i64::try_from(inserted.last_insert_id()).unwrap_or(i64::MAX)))
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        sqlx::query(ACTIONS)
            .bind(before.map_or(i64::MAX, |before| before.0))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(action).collect())
            .map_err(|e| store_error("reading the record of operations", e))
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        let doing = "adding to the record of an operation";
        let mut connection = self.pool.acquire().await.map_err(|e| store_error(doing, e))?;
        let messages = usize::try_from(messages).unwrap_or(usize::MAX);
        note(&mut connection, action, messages).await.map_err(|e| store_error(doing, e))
    }

    async fn redrive(&self, action: ActionId, keys: &[postroom_core::Key]) -> StoreResult<u64> {
        let dead = |recorded: &Recorded| recorded.state() == Some('d');
        let keys = Key::all(keys);
        again("redriving", || self.reset(action, &keys, dead, REDRIVE, 'w')).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[postroom_core::Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<MessageId>> {
        if let Some(rows) = &self.rows {
            rows.layout().refuse_replay(fresh_ids)?;
            let keys = &keys;
            return again("replaying", || self.replay_rows(action, keys)).await;
        }
        let keys = &Key::all(keys);
        again("replaying", || async move {
            self.follow_any_edits().await?;
            let mut tx = self.begin().await?;
            let held = held_by_claims(&mut tx, keys).await?;
            let keys: Vec<Key> = keys.iter().filter(|key| !held.contains(*key)).copied().collect();
            let copies = replay(&mut tx, &keys, fresh_ids).await?;
            note(&mut tx, action, copies.len()).await?;
            tx.commit().await?;
            Ok(copies.into_iter().map(MessageId::Uuid).collect())
        })
        .await
    }

    async fn release(&self, action: ActionId, keys: &[postroom_core::Key]) -> StoreResult<u64> {
        let keys = Key::all(keys);
        again("releasing", || self.release_claimed(action, &keys)).await
    }

    async fn cancel(&self, action: ActionId, keys: &[postroom_core::Key]) -> StoreResult<u64> {
        let keys = Key::all(keys);
        again("cancelling", || self.reset(action, &keys, Recorded::is_open, CANCEL, 'd')).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let old = old(status, older_than)?;
        let remembered = by_status(status, self.remember_events, Duration::ZERO)?;
        again("pruning", || self.prune_old(action, &old, limit, remembered)).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        let sql = format!(
            "SELECT COUNT(*) FROM integration_outbox FORCE INDEX (outbox_created) WHERE {}",
            old(status, older_than)?
        );
        sqlx::query(AssertSqlSafe(sql))
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row::count(&row, 0))
            .map_err(|e| store_error("counting what can be pruned", e))
    }
}

/// What became SENT or DEAD more than that long ago.
fn old(status: Status, older_than: Duration) -> StoreResult<String> {
    let since = by_status(status, "COALESCE(sent_at, created_at)", "updated_at")?;
    let before = before(older_than);
    Ok(format!("created_at < {before} AND status = '{status}' AND {since} < {before}"))
}

impl MySqlStore {
    /// Opens rows of somebody else's table again that were delivered and that nobody holds; their ids. They are
    /// delivered with a header that says so.
    async fn replay_rows(
        &self,
        action: ActionId,
        named: &[postroom_core::Key],
    ) -> Result<Vec<MessageId>, Error> {
        self.follow_any_edits().await?;
        let mut tx = self.begin().await?;
        let at = now(&mut tx).await?;
        let keys = Key::all(named);
        let held = held_by_claims(&mut tx, &keys).await?;
        let mut ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        ids.sort_unstable();
        // Marked SENT by hand during an attempt: that attempt decides.
        let claimed = lock_deliveries(&mut tx, &ids, "TRUE", Locking::Wait).await?;
        let is_held =
            |key: &Key| held.contains(key) || claimed.iter().any(|one| one.key.id == key.id);
        let free: Vec<Key> = keys.into_iter().filter(|key| !is_held(key)).collect();
        let mut locked = lock_messages(&mut tx, &free, Locking::Wait).await?.recorded;
        locked.retain(|_, recorded| recorded.status == Status::Sent.as_str());
        let list = literal::numbers(locked.values().map(|recorded| recorded.key.seq));
        let (time, token) = (format!("'{at}'"), literal::token(Token::random()));
        let places = [("at", time.as_str()), ("token", &token), ("seqs", &list)];
        execute(&mut tx, filled(REPLAY_ROW, &places)).await?;
        let opened = |id: &MessageId| locked.contains_key(&ledger_id(id));
        let replayed: Vec<MessageId> =
            named.iter().map(|key| key.id.clone()).filter(opened).collect();
        let made = locked.into_values().filter_map(|recorded| {
            let recorded = Recorded { status: "PENDING".to_owned(), due_at: at, ..recorded };
            Delivery::of(&recorded, 0, Life::Another)
        });
        deliveries::write(&mut tx, made.collect(), IfThere::Keep).await?;
        note(&mut tx, action, replayed.len()).await?;
        tx.commit().await?;
        Ok(replayed)
    }

    /// Gives messages that nobody holds, and that are as `is_meant` says, a new state, and their deliveries
    /// the same. What is in a parcel that nobody holds gets its delivery first.
    async fn reset(
        &self,
        action: ActionId,
        keys: &[Key],
        is_meant: impl Fn(&Recorded) -> bool + Send + Sync,
        set: &str,
        state: char,
    ) -> Result<u64, Error> {
        // A message that was sent elsewhere by hand is still in a parcel of its old lane.
        self.follow_any_edits().await?;
        // In a transaction of its own: the lanes are not kept locked while this waits for a message.
        self.unpack_of(&self.parcels_of(keys).await?).await?;
        let mut tx = self.begin().await?;
        let at = now(&mut tx).await?;
        let mut count = 0;
        let mut ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        ids.sort_unstable();
        for part in ids.chunks(LIST) {
            let free = lock_deliveries(&mut tx, part, "claim IS NULL", Locking::Wait).await?;
            let mut free: Vec<Key> = free.into_iter().map(|delivery| delivery.key).collect();
            free.retain(|key| keys.contains(key));
            let mut locked = lock_messages(&mut tx, &free, Locking::Wait).await?;
            locked.recorded.retain(|_, recorded| is_meant(recorded));
            let seqs: Vec<i64> =
                locked.recorded.values().map(|recorded| recorded.key.seq).collect();
            let list = literal::numbers(seqs.iter().copied());
            let token = literal::token(Token::random());
            let time = format!("'{at}'");
            let places =
                [("at", time.as_str()), ("token", &token), ("seqs", &list), ("why", CANCELLED)];
            execute(&mut tx, filled(set, &places)).await?;
            // In place: its number of dispatches stays.
            let deliveries = locked.recorded.into_values().map(|recorded| Delivery {
                due_at: if state == 'd' { recorded.due_at } else { at },
                since: if state == 'd' { recorded.due_at } else { at },
                state,
                key: recorded.key,
                integration: recorded.integration,
                bytes: 0,
                rescues: 0,
                life: Life::First,
            });
            let follow = IfThere::Follow { wait: Wait::BeginsAnew, rescues: "0", dispatches: 0 };
            deliveries::write(&mut tx, deliveries.collect(), follow).await?;
            count += seqs.len();
        }
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }

    /// Where the parcels of these messages are, if they are in any; their lanes have cursors.
    async fn parcels_of(&self, keys: &[Key]) -> Result<Vec<ParcelKey>, Error> {
        let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
        let mut connection = self.pool.acquire().await?;
        let recorded = deliveries::recorded(&mut connection, &ids).await?;
        connection.answered();
        let parcels =
            recorded.values().filter(|recorded| recorded.is_open()).map(|recorded| ParcelKey {
                integration: Arc::from(recorded.integration.as_str()),
                message: recorded.key,
            });
        let parcels: Vec<ParcelKey> = parcels.collect();
        self.know_lanes(&lanes_of(&parcels)).await?;
        Ok(parcels)
    }

    /// Gives messages in parcels that nobody holds their deliveries.
    async fn unpack_of(&self, parcels: &[ParcelKey]) -> Result<(), Error> {
        if parcels.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        self.lock_lanes(&mut tx, &lanes_of(parcels)).await?;
        let in_flight = in_flight(&mut tx).await?;
        let held = held_parcels(&mut tx, parcels).await?;
        let free = held.into_iter().map(|held| held.parcel);
        let free: Vec<Parcel> = free.filter(|parcel| !in_flight.names(&parcel.key)).collect();
        make_deliveries(&mut tx, &free).await?;
        tx.commit().await
    }

    /// Takes messages from their relay, due at once. Of a claim on deliveries only the delivery's own is
    /// cleared; of one on parcels the message gets a delivery, and its parcel goes: the rest of the batch
    /// stays held. What was changed by hand meanwhile is followed. A claim that is left empty goes with its
    /// batch, or when it expires.
    async fn release_claimed(&self, action: ActionId, keys: &[Key]) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let at = now(&mut tx).await?;
        let wanted: HashSet<Uuid> = keys.iter().map(|key| key.id).collect();
        let named = in_flight(&mut tx).await?;
        let tokens: BTreeSet<Token> = named.of(&wanted).map(|(_, token)| token).collect();
        // Locked before they are looked into: nobody settles them meanwhile.
        let claims = lock_claims(&mut tx, &tokens).await?;
        let parcels: Vec<ParcelKey> = claims
            .into_values()
            .flatten()
            .filter(|parcel| keys.contains(&parcel.message))
            .collect();
        let mut parcels = held_parcels(&mut tx, &parcels).await?;
        parcels.retain(|held| !held.is_outranked);
        let mut ids: Vec<Uuid> = wanted.into_iter().collect();
        ids.sort_unstable();
        let mut held = lock_deliveries(&mut tx, &ids, "claim IS NOT NULL", Locking::Wait).await?;
        held.retain(|delivery| keys.contains(&delivery.key));
        let of_parcels = parcels.iter().map(|held| held.parcel.key.message);
        let locked: Vec<Key> = held.iter().map(|held| held.key).chain(of_parcels).collect();
        let locked = lock_messages(&mut tx, &locked, Locking::Wait).await?.recorded;
        let now_due = |id: &Uuid, bytes: i64| {
            let recorded = locked.get(id)?;
            let delivery = Delivery::of(recorded, bytes, Life::First)?;
            Some(if recorded.is_open() { Delivery { due_at: at, ..delivery } } else { delivery })
        };
        // Closed by hand, the message stays so, and the delivery goes with its claim.
        let freed: Vec<Delivery> = held.iter().filter_map(|one| now_due(&one.key.id, 0)).collect();
        let closed: Vec<Uuid> = held
            .iter()
            .map(|held| held.key.id)
            .filter(|id| locked.get(id).is_some_and(|recorded| recorded.state().is_none()))
            .collect();
        let made = parcels.iter().filter_map(|held| {
            let delivery = now_due(&held.parcel.key.message.id, held.parcel.bytes)?;
            Some((held.parcel.key.clone(), delivery))
        });
        let (over, made): (Vec<ParcelKey>, Vec<Delivery>) = made.unzip();
        let count = freed.len() + closed.len() + made.len();
        let seqs = freed.iter().chain(&made).map(|delivery| delivery.key.seq);
        let (list, token) = (literal::numbers(seqs), literal::token(Token::random()));
        let follow = IfThere::Follow {
            wait: Wait::GoesOn,
            rescues: "outbox_delivery.rescues",
            dispatches: 0,
        };
        deliveries::write(&mut tx, freed, follow).await?;
        deliveries::write(&mut tx, made, IfThere::Keep).await?;
        deliveries::remove(&mut tx, &closed).await?;
        end_parcels(&mut tx, &over).await?;
        let time = format!("'{at}'");
        let places = [("at", time.as_str()), ("token", &token), ("seqs", &list)];
        execute(&mut tx, filled(RELEASE, &places)).await?;
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }

    /// Deletes messages for which `old` holds, as long as nobody holds them.
    async fn prune_old(
        &self,
        action: ActionId,
        old: &str,
        limit: usize,
        remembered: Duration,
    ) -> Result<u64, Error> {
        self.follow_any_edits().await?;
        let mut tx = self.begin().await?;
        let found = filled(PRUNE_DEAD, &[("old", old), ("limit", &limit.to_string())]);
        let mut keys = Vec::new();
        for row in fetch(&mut tx, found).await? {
            keys.push(Key { seq: row.try_get(0)?, id: row.try_get::<Hyphenated, _>(1)?.into() });
        }
        let held = held_by_claims(&mut tx, &keys).await?;
        keys.retain(|key| !held.contains(key));
        let mut count = 0;
        for part in keys.chunks(LIST) {
            let mut ids: Vec<Uuid> = part.iter().map(|key| key.id).collect();
            ids.sort_unstable();
            let deliveries = lock_deliveries(&mut tx, &ids, "TRUE", Locking::Wait).await?;
            let claimed: HashSet<Uuid> = deliveries
                .iter()
                .filter(|delivery| delivery.is_claimed)
                .map(|delivery| delivery.key.id)
                .collect();
            let free: Vec<i64> =
                part.iter().filter(|key| !claimed.contains(&key.id)).map(|key| key.seq).collect();
            // They may have been changed since.
            let sql = format!(
                "SELECT seq, id FROM integration_outbox /*row*/ FORCE INDEX (PRIMARY) \
                 WHERE seq IN ({}) AND {old} FOR UPDATE",
                literal::numbers(free)
            );
            let (mut gone, mut seqs) = (Vec::new(), Vec::new());
            for row in fetch(&mut tx, sql).await? {
                seqs.push(row.try_get(0)?);
                gone.push(row.try_get::<Hyphenated, _>(1)?.into());
            }
            deliveries::remove(&mut tx, &gone).await?;
            remembered::remember(&mut tx, &seqs, remembered).await?;
            delete_messages(&mut tx, &seqs).await?;
            count += seqs.len();
        }
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }
}

fn lanes_of(parcels: &[ParcelKey]) -> Vec<&str> {
    let lanes: BTreeSet<&str> = parcels.iter().map(|parcel| &*parcel.integration).collect();
    lanes.into_iter().collect()
}

/// Which of these messages are in parcels that claims hold.
async fn held_by_claims(tx: &mut Session, keys: &[Key]) -> Result<HashSet<Key>, Error> {
    let ids: HashSet<Uuid> = keys.iter().map(|key| key.id).collect();
    let in_flight = in_flight(tx).await?;
    let named: Vec<ParcelKey> = in_flight.of(&ids).map(|(parcel, _)| parcel.clone()).collect();
    let held = held_parcels(tx, &named).await?;
    Ok(held.into_iter().map(|held| held.parcel.key.message).collect())
}

/// Adds to the record of an operation, in the transaction that changed the messages.
async fn note(tx: &mut Session, action: ActionId, count: usize) -> Result<(), Error> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    sqlx::query(NOTE_ACTION).bind(count).bind(action.0).execute(tx).await.map(drop)
}

/// Tries a transaction again when it was lost to a concurrent one: nothing of it remains.
async fn again<T, W: Future<Output = Result<T, Error>> + Send>(
    doing: &str,
    work: impl Fn() -> W + Send + Sync,
) -> StoreResult<T> {
    let mut tries = 1;
    loop {
        let began = Instant::now();
        let error = match work().await {
            Ok(value) => return Ok(value),
            Err(error) => store_error(doing, error),
        };
        let waited = began.elapsed() >= WAIT_LONG;
        if error.kind != StoreErrorKind::Conflict || tries == TRIES || waited {
            return Err(error);
        }
        tries += 1;
    }
}

fn action(row: &MySqlRow) -> Result<Action, Error> {
    Ok(Action {
        id: row.try_get(0)?,
        at: row::time(row, 1)?,
        actor: row.try_get(2)?,
        operation: row.try_get(3)?,
        target: row.try_get(4)?,
        messages: row.try_get(5)?,
    })
}
