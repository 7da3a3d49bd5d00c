//! Taking, and handing settlements on.

use super::connection::Connection;
use super::content::{Claiming, Read, clamp_i32};
use super::error::store_error;
use super::ids::Id;
use super::layout::Foreign;
use super::marks::{Place, is_from_start};
use super::parcels::{Edits, FoundParcels, TAKE_FOLLOWS_FOR, Which};
use super::row::TakenRow;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::{PgStore, statements};
use crate::parcel_token::parcel_token;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Batch, Claims, ContentFault, Fate, Fence, MessageId, Quota, RawJson, Rescued, Settled,
    Settlement, StoreResult, Take, Taken, Token, Vanished, Wake,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

const TAKE: Claiming = Claiming {
    reading: statements::TAKE,
    unread: concat!(include_str!("sql/take.sql"), include_str!("sql/claimed.sql")),
};
const TAKE_RESCUED: Claiming = Claiming {
    reading: statements::TAKE_RESCUED,
    unread: concat!(include_str!("sql/take_rescued.sql"), include_str!("sql/claimed.sql")),
};
const FORGET_ORPHANS: &str = include_str!("sql/forget_orphans.sql");

#[async_trait]
impl Claims for PgStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        self.mend_restore().await?;
        self.poll_when_due().await?;
        loop {
            let client = self.connection().await?;
            self.know_lanes(&client, take.quotas).await?;
            drop(client);
            let taken = match take.for_queue {
                true => self.take_for_queue(take).await?,
                false => self.take_directly(take).await?,
            };
            // Where a lane turned out to have no cursor after all, it has not been looked at.
            if !taken.is_empty() || self.lanes.unknown(take.quotas).is_empty() {
                return Ok(taken);
            }
        }
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        self.mend_restore().await?;
        let mut client = self.connection().await?;
        let tokens: Vec<Uuid> = take.quotas.iter().map(|_| Token::random().0).collect();
        let params: [&(dyn ToSql + Sync); 10] = [
            &clamp_i32(take.payload_limit),
            &integrations(take.quotas),
            &tokens,
            &rows_per_lane(take.quotas),
            &take.worker,
            &take.relay.0,
            &clamp_i64(take.rows),
            &clamp_i64(take.bytes),
            &(which == Rescued::Alone),
            &take.for_queue,
        ];
        let mut read =
            self.claim_and_read(&mut client, take, doing, &TAKE_RESCUED, &params).await?;
        let orphans = ids(read.take_left_out());
        self.forget(&client, &orphans).await?;
        let batches = checked(client.foreign(), batches(read));
        if !orphans.is_empty() {
            let held = |token: &Uuid| batches.iter().any(|batch| batch.token.0 == *token);
            let empty = tokens.iter().filter(|token| !held(token)).map(|token| Token(*token));
            self.end(&mut client, empty).await?;
        }
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        let mut client = self.connection().await?;
        let settled = super::settle::settle(&mut client, settlements, &self.recording).await;
        // Only what is SENT leaves no delivery behind.
        let mut fates = settlements.iter().flat_map(|one| &one.verdicts).map(|one| &one.fate);
        if fates.any(|fate| !matches!(fate, Fate::Sent)) {
            self.lanes.expect_due(true);
        }
        settled
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    fn vanished(&self) -> Vec<Vanished> {
        self.vanished.tell(self.layout.as_ref().and_then(|layout| layout.vanished))
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        let target = self.listens_on.clone()?;
        Some(super::wake::listen(
            target,
            Arc::clone(&self.hurry),
            super::wake::Signals::of(&self.schema()),
        ))
    }
}

/// What a take of deliveries found.
enum Found {
    Nothing,
    NothingAboveMark,
    OnlyOrphans,
    Batch(Batch),
}

impl PgStore {
    /// Takes for a queue: what is in one is settled one by one, by whoever delivered it.
    async fn take_for_queue(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "making deliveries for a queue";
        let client = self.connection().await?;
        self.unpack(&client, take.quotas).await.map_err(|e| store_error(doing, e))?;
        let edits = Edits::InLanes(take.quotas);
        let followed = self.follow_any_edits(&client, edits, TAKE_FOLLOWS_FOR).await;
        followed.map_err(|e| store_error("following changes by hand", e))?;
        drop(client);
        Ok(self.take_deliveries(take).await?.into_iter().collect())
    }

    /// Takes for this relay's own lanes.
    async fn take_directly(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        if self.hurry.begin() && !self.lanes.expects_due() && !self.caution.is_on() {
            let mut taken = Vec::new();
            self.take_of(take, &mut taken, (Which::Few, false)).await?;
            if !taken.is_empty() {
                self.hurry.owe_look();
                return Ok(taken);
            }
        }
        self.take_both(take).await
    }

    /// Takes due deliveries and fresh messages. Neither keeps the other waiting: where deliveries are due
    /// they have half of the room first, parcels what is left, and deliveries the rest.
    async fn take_both(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        loop {
            let mut taken = Vec::new();
            let mut is_more_due = None;
            if self.lanes.expects_due() {
                let halves = self.halves(take.quotas);
                let part = Take { quotas: &halves, ..*take };
                taken.extend(self.take_deliveries(&part).await?);
                let is_more = is_limited(&halves, &taken);
                self.lanes.expect_due(is_more || !taken.is_empty());
                is_more_due = Some(is_more);
            }
            let may_be_more = match self.take_fresh(take, &mut taken, is_more_due).await {
                Err(error) if taken.is_empty() => return Err(error),
                Err(error) => {
                    // What is in hand is not lost for that.
                    tracing::warn!(%error, "some messages were taken, and others could not be");
                    false
                }
                Ok(may_be_more) => may_be_more,
            };
            if !taken.is_empty() || !may_be_more {
                return Ok(taken);
            }
        }
    }

    /// Takes parcels, and does what that leads to: changes by hand are followed, parcels that do not fit
    /// unpacked, deliveries taken for the room that is left. `is_more_due` says whether there are more of
    /// these, where somebody has looked. Whether there may be more, though nothing was taken: all of it may
    /// have been closed by hand, or what was changed may be due now.
    async fn take_fresh(
        &self,
        take: &Take<'_>,
        taken: &mut Vec<Batch>,
        is_more_due: Option<bool>,
    ) -> StoreResult<bool> {
        let doing = "taking fresh messages";
        let left = room_left(take.quotas, taken);
        if left.is_empty() || within_limits(take, taken).rows == 0 {
            // Deliveries had everything: the next time parcels come first.
            self.lanes.expect_due(false);
            return Ok(false);
        }
        let which = if self.lanes.is_to_sweep(&left) { Which::Late } else { Which::Fresh };
        let mut found = self.take_of(take, taken, (which, is_more_due.is_none())).await?;
        let mut may_be_more = found.claim.is_some();
        self.lanes.swept(&left, &found.full_lanes, found.has_late);
        if found.has_late && which == Which::Fresh {
            let late = self.take_of(take, taken, (Which::Late, false)).await?;
            may_be_more |= late.claim.is_some();
            found.is_one_too_large |= late.is_one_too_large;
            self.lanes.swept(&left, &[], late.has_late);
        }
        let left = room_left(take.quotas, taken);
        if found.has_edits {
            let client = self.connection().await?;
            let followed =
                self.follow_edits(&client, Edits::InLanes(take.quotas), TAKE_FOLLOWS_FOR).await;
            let followed = followed.map_err(|e| store_error("following changes by hand", e))?;
            may_be_more |= followed > 0;
        }
        if self.lanes.is_to_rise(take.quotas, !taken.is_empty()) {
            let client = self.connection().await?;
            self.rise(&client, take.quotas).await.map_err(|e| store_error(doing, e))?;
        }
        if found.is_one_too_large {
            let client = self.connection().await?;
            self.unpack(&client, &left).await.map_err(|e| store_error(doing, e))?;
        }
        if found.has_due {
            self.lanes.expect_due(true);
        }
        let is_more_due = is_more_due.unwrap_or(found.has_due);
        if !left.is_empty() && (found.is_one_too_large || is_more_due) {
            let rest = Take { quotas: &left, ..within_limits(take, taken) };
            taken.extend(self.take_deliveries(&rest).await?);
        }
        Ok(may_be_more)
    }

    /// Takes parcels for the room that is left, and reads them.
    async fn take_of(
        &self,
        take: &Take<'_>,
        taken: &mut Vec<Batch>,
        what: (Which, bool),
    ) -> StoreResult<FoundParcels> {
        let left = room_left(take.quotas, taken);
        let limits = within_limits(take, taken);
        if left.is_empty() || limits.rows == 0 {
            return Ok(FoundParcels::default());
        }
        if what.0 == Which::Late {
            self.lanes.sweeping(&left);
        }
        // Large deliveries do not keep out parcels, which would all be unpacked.
        let bytes = limits.bytes.max(take.bytes / 2);
        let within = Take { quotas: &left, bytes, ..limits };
        let (is_careful, token) = (self.caution.is_on(), parcel_token());
        let found = {
            let client = match is_careful {
                true => self.connection().await?,
                false => self.taking_connection().await?,
            };
            self.take_parcels(&client, &within, token, what, !is_careful).await
        };
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                self.let_go(token).await;
                return Err(store_error("taking fresh messages", error));
            }
        };
        let Some(claim) = found.claim else { return Ok(found) };
        let read = match found.read.take() {
            Some(read) if read.is_whole(claim) => read,
            read => {
                let read = async {
                    let mut client = self.connection().await?;
                    self.read_parcels(&mut client, take, claim, read).await
                };
                match read.await {
                    Ok(read) => read,
                    Err(error) => {
                        self.let_go(claim.token).await;
                        return Err(error);
                    }
                }
            }
        };
        match checked(self.foreign(), batches(read)).pop() {
            Some(batch) => taken.push(batch),
            None => {
                // Nothing is left to deliver of it.
                let mut client = self.connection().await?;
                self.end(&mut client, [claim.token].into_iter()).await?;
            }
        }
        Ok(found)
    }

    /// Half of each quota; of an odd one the larger half every other time.
    fn halves(&self, quotas: &[Quota]) -> Vec<Quota> {
        let odd = self.takes.fetch_add(1, Ordering::Relaxed) % 2;
        let half = |quota: &Quota| Quota { rows: (quota.rows + odd) / 2, ..quota.clone() };
        quotas.iter().map(half).collect()
    }

    /// Ends claims that hold nothing. One that does stays.
    async fn end(
        &self,
        client: &mut Connection,
        tokens: impl Iterator<Item = Token> + Send,
    ) -> StoreResult<()> {
        let ended: Vec<Settlement> = tokens
            .map(|token| Settlement {
                fence: Fence::Claim(token),
                verdicts: Vec::new(),
                finished: true,
            })
            .collect();
        if !ended.is_empty() {
            super::settle::settle(client, &ended, &self.recording).await?;
        }
        Ok(())
    }

    /// Takes due deliveries, row by row, under a claim of their own: should reading them fail, that claim is
    /// given up whole.
    async fn take_deliveries(&self, take: &Take<'_>) -> StoreResult<Option<Batch>> {
        if take.rows == 0 || take.quotas.iter().all(|quota| quota.rows == 0) {
            return Ok(None);
        }
        // Deliveries without a message are removed and do not count, and below the place where the last take
        // ended there may be more: go on until something deliverable or nothing at all is found.
        loop {
            match self.take_once(take).await? {
                Found::Nothing => return Ok(None),
                Found::NothingAboveMark | Found::OnlyOrphans => {}
                Found::Batch(batch) => return Ok(Some(batch)),
            }
        }
    }

    async fn take_once(&self, take: &Take<'_>) -> StoreResult<Found> {
        let token = Token::random();
        let mut client = self.connection().await?;
        let began_at = Instant::now();
        let began = self.marks.begin(take.quotas);
        let limited = Take { rows: take.rows.min(self.caution.rows_max()), ..*take };
        let params = TakeParams::of(&limited, token, &began);
        let read = self
            .claim_and_read(&mut client, take, "taking due messages", &TAKE, &params.list())
            .await?;
        self.sort_out(&mut client, take, token, (&began, began_at), read).await
    }

    /// Removes deliveries whose message is gone or was closed by hand. Those that are gone are counted.
    async fn forget(&self, client: &Connection, orphans: &[Id]) -> StoreResult<()> {
        let looked = self.vanished.look_for(client, orphans).await;
        looked.map_err(|e| store_error("looking for messages that are gone", e))?;
        forget(client, orphans).await
    }

    /// What was taken of deliveries; notes where the next take may begin.
    async fn sort_out(
        &self,
        client: &mut Connection,
        take: &Take<'_>,
        token: Token,
        (began, began_at): (&[Place], Instant),
        mut read: Read,
    ) -> StoreResult<Found> {
        let is_empty = read.rows.is_empty();
        let orphans = ids(read.take_left_out());
        let mut found: HashMap<&str, (Place, usize)> = HashMap::new();
        for (row, _) in &read.rows {
            let TakenRow::Message(taken, due) = row else { continue };
            let place = (*due, taken.message.seq);
            let (last, rows) = found.entry(&taken.message.integration).or_insert((place, 0));
            *last = place.max(*last);
            *rows += 1;
        }
        self.marks.note(take.quotas, began, began_at, &found);
        self.forget(client, &orphans).await?;
        if is_empty {
            let from_start = is_from_start(began);
            return Ok(if from_start { Found::Nothing } else { Found::NothingAboveMark });
        }
        if let Some(batch) = checked(client.foreign(), batches(read)).pop() {
            return Ok(Found::Batch(batch));
        }
        self.end(client, [token].into_iter()).await?;
        Ok(Found::OnlyOrphans)
    }
}

/// A message with the due time of its delivery or its own.
type Due = (DateTime<Utc>, Box<Taken>);

/// What was read, by claim.
fn batches(read: Read) -> Vec<Batch> {
    let mut claims: BTreeMap<Token, Vec<Due>> = BTreeMap::new();
    for (row, token) in read.rows {
        if let TakenRow::Message(message, due) = row {
            claims.entry(token).or_default().push((due, message));
        }
    }
    let batch = |(token, messages)| Batch { token, messages: by_due(messages) };
    claims.into_iter().map(batch).collect()
}

/// Bodies that are texts in a table that somebody else made may be anything.
fn checked(foreign: Option<&Foreign>, mut batches: Vec<Batch>) -> Vec<Batch> {
    if foreign.is_some_and(Foreign::has_texts) {
        for taken in batches.iter_mut().flat_map(|batch| &mut batch.messages) {
            let payload = taken.message.payload.as_str();
            if taken.fault.is_none()
                && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(payload)
            {
                let reason = format!(
                    "the body is no JSON, at line {} column {}",
                    error.line(),
                    error.column()
                );
                taken.fault = Some(ContentFault::Unreadable { reason });
                taken.message.payload = RawJson::trusted("null");
            }
        }
    }
    batches
}

/// The wish for what is left of its limits.
fn within_limits<'a>(take: &Take<'a>, taken: &[Batch]) -> Take<'a> {
    let messages = || taken.iter().flat_map(|batch| &batch.messages);
    let bytes: usize = messages().map(|taken| taken.message.weight()).sum();
    Take {
        rows: take.rows.saturating_sub(messages().count()),
        bytes: take.bytes.saturating_sub(bytes),
        ..take.clone()
    }
}

/// How many of these batches are of one integration.
fn of(integration: &str, batches: &[Batch]) -> usize {
    let messages = batches.iter().flat_map(|batch| &batch.messages);
    messages.filter(|taken| taken.message.integration == integration).count()
}

/// What is left of quotas; only those of which something is.
fn room_left(quotas: &[Quota], taken: &[Batch]) -> Vec<Quota> {
    let left = quotas.iter().map(|quota| Quota {
        rows: quota.rows.saturating_sub(of(&quota.integration, taken)),
        ..quota.clone()
    });
    left.filter(|quota| quota.rows > 0).collect()
}

/// Whether some lane may have more deliveries than were asked for.
fn is_limited(halves: &[Quota], taken: &[Batch]) -> bool {
    halves.iter().any(|half| of(&half.integration, taken) >= half.rows)
}

/// What `take.sql` takes.
struct TakeParams<'a> {
    payload_limit: i32,
    token: Uuid,
    worker: &'a str,
    relay: Uuid,
    integrations: Vec<&'a str>,
    quotas: Vec<i32>,
    due_marks: Vec<DateTime<Utc>>,
    seq_marks: Vec<i64>,
    rows: i64,
    bytes: i64,
    for_queue: bool,
}

impl<'a> TakeParams<'a> {
    /// For a take after `places`, one for each quota.
    fn of(take: &'a Take<'_>, token: Token, places: &[Place]) -> Self {
        let (due_marks, seq_marks) = places.iter().copied().unzip();
        Self {
            payload_limit: clamp_i32(take.payload_limit),
            token: token.0,
            worker: take.worker,
            relay: take.relay.0,
            integrations: integrations(take.quotas),
            quotas: rows_per_lane(take.quotas),
            due_marks,
            seq_marks,
            rows: clamp_i64(take.rows),
            bytes: clamp_i64(take.bytes),
            for_queue: take.for_queue,
        }
    }

    /// In the statement's order.
    fn list(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.payload_limit,
            &self.token,
            &self.worker,
            &self.relay,
            &self.integrations,
            &self.quotas,
            &self.due_marks,
            &self.seq_marks,
            &self.rows,
            &self.bytes,
            &self.for_queue,
        ]
    }
}

pub(super) async fn forget(client: &Connection, orphans: &[Id]) -> StoreResult<()> {
    if orphans.is_empty() {
        return Ok(());
    }
    let doing = "removing deliveries whose message is gone";
    let statement =
        client.prepare_cached(FORGET_ORPHANS).await.map_err(|e| store_error(doing, e))?;
    let removed = transact(client, &format!("{BEGIN}; {JOIN_BY_HASH}"), &statement, &[&orphans])
        .await
        .map_err(|e| store_error(doing, e))?
        .len();
    tracing::info!(removed, "removed deliveries whose message was deleted or closed by hand");
    Ok(())
}

fn ids(left_out: Vec<(MessageId, Token)>) -> Vec<Id> {
    left_out.into_iter().map(|(id, _)| Id(id)).collect()
}

fn integrations(quotas: &[Quota]) -> Vec<&str> {
    quotas.iter().map(|quota| quota.integration.as_str()).collect()
}

fn rows_per_lane(quotas: &[Quota]) -> Vec<i32> {
    quotas.iter().map(|quota| clamp_i32(quota.rows)).collect()
}

/// Messages in the order in which they were due.
fn by_due(mut messages: Vec<Due>) -> Vec<Taken> {
    messages.sort_unstable_by_key(|(due, taken)| (*due, taken.message.seq));
    messages.into_iter().map(|(_, taken)| *taken).collect()
}

fn clamp_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
