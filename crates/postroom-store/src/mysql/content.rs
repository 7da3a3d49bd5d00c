//! Reading what was taken, after its claim was committed: nothing large is read while a lane is locked.

use super::columns;
use super::deliveries::{self, Delivery, IfThere, Life, Recorded, Wait, lock_messages, recorded};
use super::key::Key;
use super::layout::ledger_id;
use super::literal::{self, filled};
use super::locked::lock_deliveries;
use super::parcel::ParcelKey;
use super::parcels::{end_parcels, held_parcels};
use super::session::Session;
use super::settle::{end_claim, lock_claims};
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, row};
use postroom_core::{Batch, Take, Taken, Token};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row as _};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const CONTENT: &str = include_str!("sql/content.sql");
const VANISHED: &str = include_str!("sql/vanished.sql");

/// A message that is claimed, and not read yet.
#[derive(Clone)]
pub(super) struct Claimed {
    pub(super) token: Token,
    pub(super) lane: Arc<str>,
    pub(super) message: Key,
    pub(super) rescues: u32,
    pub(super) dispatch: u32,
    pub(super) source: Source,
}

/// Where a message was claimed.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Source {
    Delivery,
    Parcel,
}

impl MySqlStore {
    /// Reads what is claimed. What its message says is not to be delivered, or not now, or not there, is put
    /// right and left out; claims of which nothing is left end. Where reading fails, since somebody has locked
    /// the whole table, nothing was handed over, and the claims are given up: otherwise nobody would know of
    /// them until they are a claim time old.
    pub(super) async fn read(
        &self,
        take: &Take<'_>,
        claimed: Vec<Claimed>,
    ) -> Result<Vec<Batch>, Error> {
        let tokens: BTreeSet<Token> = claimed.iter().map(|one| one.token).collect();
        let read = self.read_claimed(take, claimed).await;
        if read.is_err() {
            let tokens: Vec<Token> = tokens.into_iter().collect();
            if let Err(error) = self.give_up(take.relay, &tokens).await {
                tracing::debug!(%error, "claims that could not be read stay until they expire");
            }
        }
        read
    }

    async fn read_claimed(
        &self,
        take: &Take<'_>,
        claimed: Vec<Claimed>,
    ) -> Result<Vec<Batch>, Error> {
        let mut rows = HashMap::with_capacity(claimed.len());
        let columns = filled(
            columns::TAKEN,
            &[
                ("limit", &take.payload_limit.to_string()),
                ("headers_limit", &take.headers_limit().to_string()),
            ],
        );
        let mut seqs: Vec<i64> = claimed.iter().map(|one| one.message.seq).collect();
        seqs.sort_unstable();
        self.close_remembered(&seqs).await?;
        let mut connection = self.pool.acquire().await?;
        for part in seqs.chunks(LIST) {
            let seqs = literal::numbers(part.iter().copied());
            let sql = filled(CONTENT, &[("columns", &columns), ("seqs", &seqs)]);
            for row in fetch(&mut connection, sql).await? {
                rows.insert(row.try_get::<i64, _>(0)?, row);
            }
        }
        connection.answered();
        let mut messages: BTreeMap<Token, Vec<Taken>> = BTreeMap::new();
        let mut left_out = Vec::new();
        for one in claimed {
            let row = rows.get(&one.message.seq);
            let taken = row.map(|row| deliverable(row, &one, take)).transpose()?.flatten();
            match taken {
                Some(taken) => messages.entry(one.token).or_default().push(taken),
                None => left_out.push(one),
            }
        }
        if !left_out.is_empty() {
            let is_empty = |token: &Token| !messages.contains_key(token);
            match self.set_aside(&left_out, is_empty).await {
                // What is in hand is not lost for it: the claim's end finds the rest.
                Err(_) if !messages.is_empty() => {}
                answer => answer?,
            }
        }
        let batch = |(token, mut messages): (Token, Vec<Taken>)| {
            messages.sort_unstable_by_key(|taken| (taken.message.due_at, taken.message.seq));
            Batch { token, messages }
        };
        Ok(messages.into_iter().map(batch).collect())
    }

    /// Makes the ledger say what messages say that were taken and are not to be delivered.
    async fn set_aside(
        &self,
        left_out: &[Claimed],
        is_empty: impl Fn(&Token) -> bool + Send,
    ) -> Result<(), Error> {
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        let vanished = match self.rows {
            Some(_) => forget_vanished(&mut tx, left_out).await?,
            None => BTreeMap::new(),
        };
        let tokens: BTreeSet<Token> = left_out.iter().map(|one| one.token).collect();
        let mut claims = lock_claims(&mut tx, &tokens).await?;
        for (token, named) in &mut claims {
            let of_claim = || left_out.iter().filter(|one| one.token == *token);
            let parcels: Vec<ParcelKey> = of_claim()
                .filter(|one| one.source == Source::Parcel)
                .map(|one| ParcelKey { integration: Arc::clone(&one.lane), message: one.message })
                .collect();
            set_parcels_aside(&mut tx, &parcels).await?;
            named.retain(|parcel| !parcels.contains(parcel));
            let deliveries = of_claim().filter(|one| one.source == Source::Delivery);
            let deliveries: Vec<Uuid> = deliveries.map(|one| one.message.id).collect();
            set_deliveries_aside(&mut tx, *token, &deliveries, locking).await?;
            if is_empty(token) {
                end_claim(&mut tx, *token, named).await?;
            }
        }
        tx.commit().await?;
        for (lane, messages) in vanished {
            self.vanished.note(&lane, messages);
        }
        tracing::info!(
            messages = left_out.len(),
            "left messages out of their batch: deleted, changed by hand, or delivered before"
        );
        Ok(())
    }
}

/// What is handed out of a row; `None` when its message says that it is not to be delivered here and now. A
/// number may be another message's by now, and a delivery outranks a parcel.
fn deliverable(row: &MySqlRow, claimed: &Claimed, take: &Take<'_>) -> Result<Option<Taken>, Error> {
    let (is_due, has_delivery): (bool, bool) = (row.try_get(22)?, row.try_get(23)?);
    let taken = row::taken(row, claimed.rescues, claimed.dispatch, take)?;
    let is_same = ledger_id(&taken.message.id) == claimed.message.id;
    let is_here = *taken.message.integration == *claimed.lane;
    let is_its_own = claimed.source == Source::Delivery || !has_delivery;
    Ok((is_same && is_here && is_due && is_its_own).then_some(taken))
}

/// Which of these are rows that are gone, by lane. Where no trigger saw them leave (TRUNCATE), the ledger still has
/// them: it is told, so that a row of the same key is open again.
async fn forget_vanished(
    tx: &mut Session,
    left_out: &[Claimed],
) -> Result<BTreeMap<Arc<str>, u64>, Error> {
    let ids: Vec<Uuid> = left_out.iter().map(|one| one.message.id).collect();
    let there = recorded(tx, &ids).await?;
    let (mut gone, mut seqs) = (BTreeMap::new(), Vec::new());
    for one in left_out.iter().filter(|one| !there.contains_key(&one.message.id)) {
        *gone.entry(Arc::clone(&one.lane)).or_default() += 1;
        seqs.push(one.message.seq);
    }
    for part in seqs.chunks(LIST) {
        let seqs = literal::numbers(part.iter().copied());
        execute(tx, filled(VANISHED, &[("seqs", &seqs)])).await?;
    }
    Ok(gone)
}

/// Parcels of claims that are locked. The messages are not: of a change that is being made a note is left,
/// which is followed after this.
async fn set_parcels_aside(tx: &mut Session, parcels: &[ParcelKey]) -> Result<(), Error> {
    let held = held_parcels(tx, parcels).await?;
    let there: Vec<ParcelKey> = held.iter().map(|held| held.parcel.key.clone()).collect();
    let ids: Vec<Uuid> = there.iter().map(|parcel| parcel.message.id).collect();
    let mut recorded = recorded(tx, &ids).await?;
    forget_renumbered(tx, &there, &mut recorded).await?;
    let made = recorded
        .values()
        .filter_map(|recorded| Delivery::of(recorded, recorded.bytes, Life::First));
    deliveries::write(tx, made.collect(), IfThere::Keep).await?;
    end_parcels(tx, &there).await
}

/// Leaves out messages that were deleted and inserted again since: under their new number they are in another parcel,
/// which is theirs now.
async fn forget_renumbered(
    tx: &mut Session,
    parcels: &[ParcelKey],
    recorded: &mut HashMap<Uuid, Recorded>,
) -> Result<(), Error> {
    let renumbered = parcels.iter().filter_map(|parcel| {
        let now = recorded.get(&parcel.message.id)?;
        let integration = Arc::from(now.integration.as_str());
        (now.key.seq != parcel.message.seq).then_some(ParcelKey { integration, message: now.key })
    });
    let renumbered: Vec<ParcelKey> = renumbered.collect();
    for held in held_parcels(tx, &renumbered).await? {
        recorded.remove(&held.parcel.key.message.id);
    }
    Ok(())
}

/// Deliveries under a token. Those whose message somebody is changing stay under it, and its end frees them.
async fn set_deliveries_aside(
    tx: &mut Session,
    token: Token,
    ids: &[Uuid],
    locking: Locking,
) -> Result<(), Error> {
    let fence = format!("claim = {}", literal::token(token));
    let held = lock_deliveries(tx, ids, &fence, locking).await?;
    let keys: Vec<Key> = held.iter().map(|held| held.key).collect();
    let locked = lock_messages(tx, &keys, locking).await?;
    let (mut followed, mut over) = (Vec::new(), Vec::new());
    for key in keys.iter().filter(|key| !locked.by_others.contains(&key.id)) {
        let recorded = locked.recorded.get(&key.id);
        match recorded.and_then(|recorded| Delivery::of(recorded, 0, Life::First)) {
            Some(delivery) => followed.push(delivery),
            None => over.push(key.id),
        }
    }
    let free =
        IfThere::Follow { wait: Wait::AsItSays, rescues: "outbox_delivery.rescues", dispatches: 0 };
    deliveries::write(tx, followed, free).await?;
    deliveries::remove(tx, &over).await
}
