//! Recording what became of a batch.

use super::connection::{Connection, Prepared};
use super::error::{met_a_lock, store_error};
use super::transaction::{
    BEGIN_SETTLING, COMMIT, JOIN_BY_HASH, OWN_WRITES, WAIT_BRIEFLY, in_order,
};
use super::{locked, statements};
use deadpool_postgres::Transaction;
use futures_util::FutureExt;
use postroom_core::{
    ATTEMPTS_KEPT, AttemptOutcome, Fate, Fence, Settled, Settlement, StoreError, StoreErrorKind,
    StoreResult, Tried, clip_error,
};
use std::collections::HashSet;
use std::time::Duration;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

const SENT_DELETE: &str = include_str!("sql/settle_sent_delete.sql");
pub(super) const FAILED: &str = concat!(
    include_str!("sql/settle_failed.sql"),
    include_str!("sql/mark_failed.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT seq FROM freed"
);
const RELEASED: &str =
    concat!(include_str!("sql/settle_released.sql"), include_str!("sql/follow_released.sql"));
pub(super) const POSTPONED: &str =
    concat!(include_str!("sql/settle_postponed.sql"), include_str!("sql/put_off.sql"));

pub(super) const DISPATCH_SENT: &str = include_str!("sql/settle_dispatch_sent.sql");
const DISPATCH_SENT_DELETE: &str = include_str!("sql/settle_dispatch_sent_delete.sql");
pub(super) const DISPATCH_FAILED: &str = concat!(
    include_str!("sql/settle_dispatch_failed.sql"),
    include_str!("sql/mark_failed.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT seq FROM freed"
);
const DISPATCH_RELEASED: &str = concat!(
    include_str!("sql/settle_dispatch_released.sql"),
    include_str!("sql/follow_released.sql")
);
const DISPATCH_POSTPONED: &str =
    concat!(include_str!("sql/settle_dispatch_postponed.sql"), include_str!("sql/put_off.sql"));
const ALREADY: &str = include_str!("sql/already_settled.sql");

pub(super) const DOING: &str = "recording outcomes";

type Params<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// One settlement as arrays, the shape the statements take.
#[derive(Default)]
pub(super) struct Columns {
    token: Uuid,
    /// How many dispatches were over when the one began that this is about; `None` for a claim.
    dispatches_over: Option<i32>,
    /// The messages' ids, where nothing else tells them from others that have their numbers by now.
    ids: Vec<Uuid>,
    /// How many attempts had failed before that dispatch, where that is known.
    failed_before: Option<i32>,
    finished: bool,
    sent: Vec<i64>,
    released: Vec<i64>,
    postponed: Vec<i64>,
    /// Of those, in seconds.
    put_off: Vec<f64>,
    failed: Vec<i64>,
    delays: Vec<f64>,
    errors: Vec<String>,
    dead: Vec<bool>,
    outcomes: Vec<Option<&'static str>>,
    took_ms: Vec<i64>,
}

impl Columns {
    pub(super) fn of(settlement: &Settlement) -> Self {
        let mut columns = match settlement.fence {
            Fence::Claim(token) => {
                Self { token: token.0, finished: settlement.finished, ..Self::default() }
            }
            Fence::Dispatch { number, token, failed_before } => {
                let count = |count| i32::try_from(count).unwrap_or(i32::MAX);
                Self {
                    token: token.0,
                    dispatches_over: Some(count(number).saturating_sub(1)),
                    ids: settlement.verdicts.iter().map(|verdict| verdict.id).collect(),
                    failed_before: failed_before.map(count),
                    ..Self::default()
                }
            }
        };
        for verdict in &settlement.verdicts {
            match &verdict.fate {
                Fate::Sent => columns.sent.push(verdict.seq),
                Fate::Released => columns.released.push(verdict.seq),
                Fate::Postponed { delay } => {
                    columns.postponed.push(verdict.seq);
                    columns.put_off.push(delay.as_secs_f64());
                }
                Fate::Failed { delay, error, took } => {
                    let tried = Tried { outcome: AttemptOutcome::Retry, took: *took };
                    columns.fail(verdict.seq, Some(*delay), error, Some(tried));
                }
                Fate::Dead { error, tried, .. } => {
                    columns.fail(verdict.seq, None, error, *tried);
                }
            }
        }
        columns
    }

    /// What `settle_sent.sql` takes, and its like.
    fn sent(&self) -> Params<'_> {
        self.fenced(vec![&self.token, &self.sent])
    }

    /// What `settle_released.sql` takes, and its like.
    fn released(&self) -> Params<'_> {
        self.fenced(vec![&self.token, &self.released])
    }

    /// What `settle_postponed.sql` takes, and its like.
    fn postponed(&self) -> Params<'_> {
        self.fenced(vec![&self.token, &self.postponed, &self.put_off])
    }

    /// Whether anything is joined with what it was given.
    fn joins(&self) -> bool {
        !(self.failed.is_empty() && self.released.is_empty() && self.postponed.is_empty())
    }

    /// What `settle_failed.sql` takes, and its like.
    fn failure<'a>(&'a self, kept: &'a i32) -> Params<'a> {
        let mut params = self.fenced(vec![
            kept,
            &self.token,
            &self.failed,
            &self.delays,
            &self.errors,
            &self.dead,
            &self.outcomes,
            &self.took_ms,
        ]);
        if self.dispatches_over.is_some() {
            params.push(&self.failed_before);
        }
        params
    }

    /// Statements that are fenced by a dispatch take its number, and the ids, after everything
    /// else.
    fn fenced<'a>(&'a self, mut params: Params<'a>) -> Params<'a> {
        if let Some(over) = &self.dispatches_over {
            params.push(over);
            params.push(&self.ids);
        }
        params
    }

    /// Due again after `delay`, or dead without one.
    fn fail(&mut self, seq: i64, delay: Option<Duration>, error: &str, tried: Option<Tried>) {
        self.failed.push(seq);
        self.delays.push(delay.unwrap_or_default().as_secs_f64());
        self.errors.push(clip_error(error));
        self.dead.push(delay.is_none());
        self.outcomes.push(tried.map(|tried| tried.outcome.as_str()));
        let took = tried.map_or(0, |tried| tried.took.as_millis());
        self.took_ms.push(i64::try_from(took).unwrap_or(i64::MAX));
    }
}

/// [`ATTEMPTS_KEPT`], as the statements take it.
pub(super) fn attempts_kept() -> i32 {
    i32::try_from(ATTEMPTS_KEPT).unwrap_or(i32::MAX)
}

/// The statements of one kind of fence.
struct Fenced {
    sent: Prepared,
    failed: Prepared,
    released: Prepared,
    postponed: Prepared,
}

/// The same, as text.
struct Texts {
    sent: &'static str,
    failed: &'static str,
    released: &'static str,
    postponed: &'static str,
}

pub(super) struct Statements {
    claim: Fenced,
    /// Only where a settlement needs them.
    dispatch: Option<Fenced>,
    forget_claim: Prepared,
}

impl Statements {
    pub(super) async fn prepare(
        client: &Connection,
        keep_sent: bool,
        columns: &[Columns],
    ) -> Result<Self, Error> {
        let claim = Texts {
            sent: if keep_sent { statements::SETTLE_SENT } else { SENT_DELETE },
            failed: FAILED,
            released: RELEASED,
            postponed: POSTPONED,
        };
        let mut dispatch = None;
        if columns.iter().any(|c| c.dispatches_over.is_some()) {
            let texts = Texts {
                sent: if keep_sent { DISPATCH_SENT } else { DISPATCH_SENT_DELETE },
                failed: DISPATCH_FAILED,
                released: DISPATCH_RELEASED,
                postponed: DISPATCH_POSTPONED,
            };
            dispatch = Some(Fenced::prepare(client, &texts).await?);
        }
        Ok(Self {
            claim: Fenced::prepare(client, &claim).await?,
            dispatch,
            forget_claim: client.prepare_cached(statements::FORGET_CLAIM).await?,
        })
    }

    fn of(&self, columns: &Columns) -> &Fenced {
        match &self.dispatch {
            Some(dispatch) if columns.dispatches_over.is_some() => dispatch,
            _ => &self.claim,
        }
    }
}

impl Fenced {
    async fn prepare(client: &Connection, texts: &Texts) -> Result<Self, Error> {
        Ok(Self {
            sent: client.prepare_cached(texts.sent).await?,
            failed: client.prepare_cached(texts.failed).await?,
            released: client.prepare_cached(texts.released).await?,
            postponed: client.prepare_cached(texts.postponed).await?,
        })
    }
}

/// Settles everything at once; only when that meets a row that somebody else has locked, what is
/// free.
pub(super) async fn settle(
    client: &mut Connection,
    settlements: &[Settlement],
    keep_sent: bool,
) -> StoreResult<Settled> {
    match apply_all(client, settlements, keep_sent).await {
        Ok(changed) => late(client, settlements, &changed).await,
        Err(error) if met_a_lock(&error) => {
            locked::settle_free(client, settlements, keep_sent).await
        }
        Err(error) => Err(error),
    }
}

/// Applies settlements in one transaction, and says which messages they changed.
async fn apply_all(
    client: &mut Connection,
    settlements: &[Settlement],
    keep_sent: bool,
) -> StoreResult<HashSet<i64>> {
    let columns: Vec<Columns> = settlements.iter().map(Columns::of).collect();
    let statements = Statements::prepare(client, keep_sent, &columns)
        .await
        .map_err(|e| store_error(DOING, e))?;
    if announces(settlements) {
        announcing(client, &statements, settlements, &columns).await
    } else {
        pipelined(client, &statements, &columns).await.map_err(|e| store_error(DOING, e))
    }
}

fn announces(settlements: &[Settlement]) -> bool {
    settlements
        .iter()
        .flat_map(|settlement| &settlement.verdicts)
        .any(|verdict| verdict.fate.is_announced())
}

/// All statements in one transaction and one round trip.
async fn pipelined(
    client: &Connection,
    statements: &Statements,
    columns: &[Columns],
) -> Result<HashSet<i64>, Error> {
    let kept = attempts_kept();
    let nothing = |()| Vec::new();
    let mut steps = vec![async { client.batch_execute(BEGIN_SETTLING).await.map(nothing) }.boxed()];
    for c in columns {
        if !c.sent.is_empty() {
            let sent = &statements.of(c).sent;
            steps.push(async { client.run(sent, &c.sent()).await }.boxed());
        }
    }
    if columns.iter().any(Columns::joins) {
        steps.push(async { client.batch_execute(JOIN_BY_HASH).await.map(nothing) }.boxed());
    }
    for c in columns.iter().filter(|c| !c.released.is_empty()) {
        let released = &statements.of(c).released;
        steps.push(async { client.run(released, &c.released()).await }.boxed());
    }
    for c in columns.iter().filter(|c| !c.postponed.is_empty()) {
        let postponed = &statements.of(c).postponed;
        steps.push(async { client.run(postponed, &c.postponed()).await }.boxed());
    }
    for c in columns.iter().filter(|c| !c.failed.is_empty()) {
        let failed = &statements.of(c).failed;
        steps.push(async { client.run(failed, &c.failure(&kept)).await }.boxed());
    }
    for c in columns.iter().filter(|c| c.finished) {
        steps.push(async { client.run(&statements.forget_claim, &[&c.token]).await }.boxed());
    }
    steps.push(async { client.batch_execute(COMMIT).await.map(nothing) }.boxed());
    let mut changed = HashSet::new();
    for answer in in_order(steps).await {
        for row in answer? {
            changed.insert(row.try_get::<_, i64>(0)?);
        }
    }
    Ok(changed)
}

/// The same, statement by statement: what died is known before its announcement is written.
async fn announcing(
    client: &mut Connection,
    statements: &Statements,
    settlements: &[Settlement],
    columns: &[Columns],
) -> StoreResult<HashSet<i64>> {
    let mut tx = client.transaction().await.map_err(|e| store_error(DOING, e))?;
    tx.batch_execute(WAIT_BRIEFLY).await.map_err(|e| store_error(DOING, e))?;
    let changed = apply_announcing(&mut tx, statements, settlements, columns).await;
    tx.end(DOING, changed).await
}

/// Applies settlements statement by statement, and announces the deaths among them.
pub(super) async fn apply_announcing(
    tx: &mut Transaction<'_>,
    statements: &Statements,
    settlements: &[Settlement],
    columns: &[Columns],
) -> StoreResult<HashSet<i64>> {
    let changed = apply(tx, statements, columns).await.map_err(|e| store_error(DOING, e))?;
    for verdict in settlements.iter().flat_map(|settlement| &settlement.verdicts) {
        if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
            && changed.contains(&verdict.seq)
        {
            postroom::enqueue(&mut **tx, (**announcement).clone()).await.map_err(enqueue_error)?;
        }
    }
    Ok(changed)
}

async fn apply(
    tx: &Transaction<'_>,
    statements: &Statements,
    columns: &[Columns],
) -> Result<HashSet<i64>, Error> {
    let mut rows = Vec::new();
    tx.batch_execute(OWN_WRITES).await?;
    tx.batch_execute(JOIN_BY_HASH).await?;
    for c in columns {
        let fenced = statements.of(c);
        rows.extend(fenced.sent.run_in(tx, &c.sent()).await?);
        rows.extend(fenced.failed.run_in(tx, &c.failure(&attempts_kept())).await?);
        rows.extend(fenced.released.run_in(tx, &c.released()).await?);
        rows.extend(fenced.postponed.run_in(tx, &c.postponed()).await?);
        if c.finished {
            statements.forget_claim.run_in(tx, &[&c.token]).await?;
        }
    }
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its commit had an unknown outcome, and this was the repetition.
pub(super) async fn late(
    client: &Connection,
    settlements: &[Settlement],
    changed: &HashSet<i64>,
) -> StoreResult<Settled> {
    let mut late = Vec::new();
    for settlement in settlements {
        let missing: Vec<_> =
            settlement.verdicts.iter().filter(|verdict| !changed.contains(&verdict.seq)).collect();
        if missing.is_empty() {
            continue;
        }
        let ids: Vec<Uuid> = missing.iter().map(|verdict| verdict.id).collect();
        let rows = client
            .query(ALREADY, &[&settlement.fence.token().0, &ids])
            .await
            .map_err(|e| store_error(DOING, e))?;
        let already: HashSet<i64> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
        late.extend(missing.iter().map(|verdict| verdict.seq).filter(|seq| !already.contains(seq)));
    }
    Ok(Settled { late, locked: Vec::new() })
}

pub(super) fn enqueue_error(error: postroom::EnqueueError) -> StoreError {
    match error {
        postroom::EnqueueError::Database(source) => {
            match source.downcast::<tokio_postgres::Error>() {
                Ok(error) => store_error("enqueueing", *error),
                Err(source) => StoreError::new(StoreErrorKind::Refused, "enqueueing", source),
            }
        }
        refused => StoreError::plain(StoreErrorKind::Refused, refused.to_string()),
    }
}
