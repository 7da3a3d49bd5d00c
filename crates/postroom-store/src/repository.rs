//! The outbox message by message, for code that works one at a time.
//!
//! Each call is made by the worker that claimed the message, and finds its token by it; the late
//! word of a worker that has lost its claim changes nothing and is an error.
//!
//! There is no heartbeat here. Each call that claims has a relay's row of its own, which lasts for one
//! claim time: what one call claimed neither outlives that nor ends because of the next call.

use chrono::{DateTime, Utc};
use postroom_core::{
    AttemptOutcome, ContentFault, Enqueued, Fate, Fence, Heartbeat, Limits, Message, MessageId,
    NewMessage, Quota, RelayId, Rescued, Settled, Settlement, Store, StoreError, StoreErrorKind,
    StoreResult, Take, Token, Tried, Verdict,
};
use std::time::Duration;

/// How often, and how long after each other, an outcome is tried again whose message another
/// transaction has locked.
const LOCKED_TRIES: u32 = 50;
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// Single-message calls over a store.
#[derive(Clone, Copy)]
pub struct Repository<'a> {
    store: &'a dyn Store,
    claim_time: Duration,
}

impl<'a> Repository<'a> {
    /// A repository whose claims last `claim_time`.
    #[must_use]
    pub fn new(store: &'a dyn Store, claim_time: Duration) -> Self {
        Self { store, claim_time }
    }

    /// Enqueues a message in a transaction of its own.
    ///
    /// # Errors
    /// When the message is refused or the database is away.
    pub async fn enqueue(&self, message: &NewMessage) -> StoreResult<Enqueued> {
        self.store.enqueue(message).await
    }

    /// Claims up to `limit` due messages of any integration for `worker`, by due time within
    /// each. Of rescued messages fewer come each time they are lost, and in the end one with nothing
    /// beside it, as everywhere; what cannot be delivered at all goes DEAD instead.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn claim_due_batch(&self, worker: &str, limit: usize) -> StoreResult<Vec<Message>> {
        let quotas: Vec<Quota> = self
            .store
            .integrations()
            .await?
            .into_iter()
            .map(|integration| Quota { integration, rows: limit })
            .collect();
        if quotas.is_empty() {
            return Ok(Vec::new());
        }
        let relay = RelayId::random();
        // It serves no lane: the row goes once it has expired and nothing is claimed under it.
        let beat =
            Heartbeat { relay, name: worker, lanes: 0, held: &[], claim_time: self.claim_time };
        self.store.beat(&beat).await?;
        let mut take = Take {
            worker,
            relay,
            quotas: &quotas,
            rows: limit,
            bytes: usize::MAX,
            payload_limit: Limits::default().payload_bytes,
            for_queue: false,
        };
        let mut batches = self.store.take(&take).await?;
        take.rows -= batches.iter().map(|batch| batch.messages.len()).sum::<usize>().min(limit);
        if take.rows > 0 {
            batches.extend(self.store.take_rescued(&take, Rescued::Together).await?);
        }
        if batches.is_empty() {
            take.rows = limit.min(1);
            batches.extend(self.store.take_rescued(&take, Rescued::Alone).await?);
        }
        if batches.is_empty() {
            self.store.leave(relay).await?;
        }
        let mut claimed = Vec::new();
        for batch in batches {
            for taken in batch.messages {
                match taken.fault {
                    None => claimed.push(taken.message),
                    Some(fault) => self.bury(batch.token, &taken.message, &fault).await?,
                }
            }
        }
        Ok(claimed)
    }

    /// Records that the message was acknowledged.
    ///
    /// # Errors
    /// When `worker` does not hold it, or the database is away.
    pub async fn mark_sent(&self, worker: &str, id: &MessageId) -> StoreResult<()> {
        self.settle(worker, id, Fate::Sent).await
    }

    /// Records a failed attempt; the message is due again at `next_due_at`.
    ///
    /// # Errors
    /// When `worker` does not hold it, or the database is away.
    pub async fn mark_failed(
        &self,
        worker: &str,
        id: &MessageId,
        error: &str,
        next_due_at: DateTime<Utc>,
    ) -> StoreResult<()> {
        // By the database's clock, since that is what the due time is compared with.
        let delay = (next_due_at - self.store.now().await?).to_std().unwrap_or_default();
        self.settle(
            worker,
            id,
            Fate::Failed { delay, error: error.to_owned(), took: Duration::ZERO },
        )
        .await
    }

    /// Records that the message will not be tried again.
    ///
    /// # Errors
    /// When `worker` does not hold it, or the database is away.
    pub async fn dead_letter(&self, worker: &str, id: &MessageId, error: &str) -> StoreResult<()> {
        let tried = Tried { outcome: AttemptOutcome::Reject, took: Duration::ZERO };
        let fate = Fate::Dead { error: error.to_owned(), tried: Some(tried), announcement: None };
        self.settle(worker, id, fate).await
    }

    /// Gives the message back, untouched.
    ///
    /// # Errors
    /// When `worker` does not hold it, or the database is away.
    pub async fn release(&self, worker: &str, id: &MessageId) -> StoreResult<()> {
        self.settle(worker, id, Fate::Released).await
    }

    /// Content that cannot be delivered goes DEAD with its reason, as in a relay.
    async fn bury(&self, token: Token, message: &Message, fault: &ContentFault) -> StoreResult<()> {
        let fate = Fate::Dead { error: fault.to_string(), tried: None, announcement: None };
        let verdict = Verdict { seq: message.seq, id: message.id.clone(), fate };
        let settlement =
            Settlement { fence: Fence::Claim(token), verdicts: vec![verdict], finished: true };
        self.settle_when_free(settlement).await.map(drop)
    }

    async fn settle(&self, worker: &str, id: &MessageId, fate: Fate) -> StoreResult<()> {
        let not_held = || {
            StoreError::plain(
                StoreErrorKind::Refused,
                format!("{worker} holds no claim on message {id}: it expired, or was settled"),
            )
        };
        let (token, seq) = self.store.claim_of(worker, id).await?.ok_or_else(not_held)?;
        // Where the rest of the batch is still held, the claim stays for it.
        let verdicts = vec![Verdict { seq, id: id.clone(), fate }];
        let settlement = Settlement { fence: Fence::Claim(token), verdicts, finished: true };
        let settled = self.settle_when_free(settlement).await?;
        if settled.late.is_empty() { Ok(()) } else { Err(not_held()) }
    }

    /// Settles one message, and waits a while for whoever has locked it.
    async fn settle_when_free(&self, settlement: Settlement) -> StoreResult<Settled> {
        let settlement = [settlement];
        for _ in 0..LOCKED_TRIES {
            let settled = self.store.settle(&settlement).await?;
            if settled.locked.is_empty() {
                return Ok(settled);
            }
            tokio::time::sleep(LOCKED_PAUSE).await;
        }
        Err(StoreError::plain(
            StoreErrorKind::Conflict,
            "recording an outcome: another transaction has locked the message; end that, or try \
             again later",
        ))
    }
}
