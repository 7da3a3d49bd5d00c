//! Recording what became of a batch.

use super::columns::{Columns, Kind, Params};
use super::connection::{Connection, OpenTransaction, Prepared};
use super::error::{met_a_lock, store_error};
use super::ids::{Id, as_ids};
use super::outcomes::{Part, Statements};
use super::recording::Recording;
use super::transaction::{
    BEGIN_SETTLING, COMMIT, JOIN_BY_HASH, OWN_WRITES, WAIT_BRIEFLY, in_order,
};
use super::{locked, noted};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postroom_core::{
    ATTEMPTS_KEPT, Fate, MessageId, Settled, Settlement, StoreError, StoreErrorKind, StoreResult,
    Verdict,
};
use std::collections::HashSet;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

pub(super) const LOCK_CLAIM: &str =
    "SELECT token FROM core_outbox.claim WHERE token = $1 FOR UPDATE";
const ALREADY: &str = include_str!("sql/already_settled.sql");

pub(super) const DOING: &str = "recording outcomes";

/// [`ATTEMPTS_KEPT`], as the statements take it.
pub(super) fn attempts_kept() -> i32 {
    i32::try_from(ATTEMPTS_KEPT).unwrap_or(i32::MAX)
}

/// Messages that settlements left unchanged, each with the token of its settlement: a message may be in two
/// of them, of which one came too late.
pub(super) type Unchanged = HashSet<(Uuid, MessageId)>;

/// The messages that an answer names.
fn named(rows: &[Row]) -> Result<Vec<MessageId>, Error> {
    let id = |row: &Row| row.try_get::<_, Option<Id>>(0).transpose();
    rows.iter().filter_map(|row| Some(id(row)?.map(|Id(id)| id))).collect()
}

/// Whether recording SENT did not end a claim on parcels, by its answer.
fn stays(answer: &[Row]) -> Result<bool, Error> {
    answer
        .iter()
        .try_fold(false, |stays, row| Ok(stays || row.try_get::<_, Option<Id>>(0)?.is_none()))
}

/// What a statement left unchanged of the messages it was `given`, from those that it `changed`.
fn all_but(given: &[Id], changed: &[Row]) -> Result<Vec<MessageId>, Error> {
    let changed: HashSet<MessageId> = named(changed)?.into_iter().collect();
    let unchanged = given.iter().map(|Id(id)| id).filter(|id| !changed.contains(id));
    Ok(unchanged.cloned().collect())
}

/// What recording SENT left unchanged, from its answer.
fn unsent(c: &Columns, answer: &[Row]) -> Result<Vec<MessageId>, Error> {
    match c.kind {
        Kind::Parcels => named(answer),
        Kind::Deliveries | Kind::Dispatch => all_but(&c.sent, answer),
    }
}

fn of_settlement(c: &Columns, unchanged: Vec<MessageId>) -> Vec<(Uuid, MessageId)> {
    unchanged.into_iter().map(|id| (c.token, id)).collect()
}

/// Runs a statement that answers with what it changed; what it left unchanged of the messages it was
/// `given`.
async fn changing(
    client: &Connection,
    statement: &Prepared,
    params: Params<'_>,
    (c, given): (&Columns, &[Id]),
) -> Step {
    let unchanged = all_but(given, &client.run(statement, &params).await?)?;
    Ok(Done { unchanged: of_settlement(c, unchanged), to_forget: None })
}

/// Settles everything at once; only when that meets a row that somebody else has locked, what is
/// free.
pub(super) async fn settle(
    client: &mut Connection,
    settlements: &[Settlement],
    recording: &Recording,
) -> StoreResult<Settled> {
    match apply_all(client, settlements, recording).await {
        Ok(unchanged) => late(client, settlements, &unchanged).await,
        Err(error) if met_a_lock(&error) => {
            locked::settle_free(client, settlements, recording).await
        }
        Err(error) => Err(error),
    }
}

/// Applies settlements, whole notes first and the others in one transaction, and says which of their
/// messages they left unchanged.
async fn apply_all(
    client: &mut Connection,
    settlements: &[Settlement],
    recording: &Recording,
) -> StoreResult<Unchanged> {
    let mut columns: Vec<Columns> =
        settlements.iter().map(|one| Columns::of(one, recording)).collect();
    noted::note_whole(client, &mut columns).await.map_err(|e| store_error(DOING, e))?;
    if columns.is_empty() {
        return Ok(Unchanged::new());
    }
    let statements = Statements::prepare(client, recording, &columns)
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

/// What a statement of a settlement did.
#[derive(Default)]
struct Done {
    /// What it left unchanged.
    unchanged: Vec<(Uuid, MessageId)>,
    /// A claim on parcels of which nothing may be left, and which is still there.
    to_forget: Option<Uuid>,
}

type Step = Result<Done, Error>;

/// All statements in one transaction and one round trip.
async fn pipelined(
    client: &Connection,
    statements: &Statements,
    columns: &[Columns],
) -> Result<Unchanged, Error> {
    let kept = attempts_kept();
    let lock = client.prepare_cached(LOCK_CLAIM).await?;
    let of = |part| columns.iter().filter_map(move |c| Some((c, statements.of(c, part)?)));
    let say =
        |sql| async move { client.batch_execute(sql).await.map(|()| Done::default()) }.boxed();
    let mut steps: Vec<BoxFuture<'_, Step>> = vec![say(BEGIN_SETTLING)];
    // Claims on parcels are locked before anything is looked at: a statement that waits for a claim would
    // not see the delivery that whoever had it has made.
    for c in columns.iter().filter(|c| c.kind == Kind::Parcels) {
        steps.push(unanswered(client, &lock, c).boxed());
    }
    for (c, sent) in of(Part::Sent) {
        let sent = async {
            let answer = client.run(sent, &c.sent()).await?;
            let to_forget = (c.may_end_by_itself() && stays(&answer)?).then_some(c.token);
            Ok(Done { unchanged: of_settlement(c, unsent(c, &answer)?), to_forget })
        };
        steps.push(sent.boxed());
    }
    if columns.iter().any(Columns::joins) {
        steps.push(say(JOIN_BY_HASH));
    }
    for (c, released) in of(Part::Released) {
        steps.push(changing(client, released, c.released(), (c, &c.released)).boxed());
    }
    for (c, postponed) in of(Part::Postponed) {
        steps.push(changing(client, postponed, c.postponed(), (c, &c.postponed)).boxed());
    }
    for (c, failed) in of(Part::Failed) {
        steps.push(changing(client, failed, c.failure(&kept), (c, &c.failed)).boxed());
    }
    for (c, forget) in of(Part::Forget).filter(|(c, _)| !c.may_end_by_itself()) {
        steps.push(unanswered(client, forget, c).boxed());
    }
    steps.push(say(COMMIT));
    let mut unchanged = Unchanged::new();
    let mut to_forget = Vec::new();
    for answer in in_order(steps).await {
        let done = answer?;
        unchanged.extend(done.unchanged);
        to_forget.extend(done.to_forget);
    }
    let left: Vec<(&Columns, &Prepared)> =
        of(Part::Forget).filter(|(c, _)| to_forget.contains(&c.token)).collect();
    if let Err(error) = forget(client, &lock, &left).await {
        // What they held is recorded. The next heartbeat gives them up.
        tracing::debug!(%error, "claims that are over could not be removed");
    }
    Ok(unchanged)
}

/// Ends claims that recording SENT did not end, unless something is held under them.
async fn forget(
    client: &Connection,
    lock: &Prepared,
    left: &[(&Columns, &Prepared)],
) -> Result<(), Error> {
    if left.is_empty() {
        return Ok(());
    }
    let say =
        |sql| async move { client.batch_execute(sql).await.map(|()| Done::default()) }.boxed();
    let mut steps: Vec<BoxFuture<'_, Step>> = vec![say(BEGIN_SETTLING)];
    for (c, forget) in left {
        steps.push(unanswered(client, lock, c).boxed());
        steps.push(unanswered(client, forget, c).boxed());
    }
    steps.push(say(COMMIT));
    in_order(steps).await.into_iter().try_for_each(|step| step.map(|_| ()))
}

/// Runs a statement on a settlement's claim that leaves nothing unchanged.
async fn unanswered(client: &Connection, statement: &Prepared, c: &Columns) -> Step {
    client.run(statement, &[&c.token]).await?;
    Ok(Done::default())
}

/// The same, statement by statement: what died is known before its announcement is written.
async fn announcing(
    client: &mut Connection,
    statements: &Statements,
    settlements: &[Settlement],
    columns: &[Columns],
) -> StoreResult<Unchanged> {
    let mut tx = client.transaction().await.map_err(|e| store_error(DOING, e))?;
    tx.batch_execute(WAIT_BRIEFLY).await.map_err(|e| store_error(DOING, e))?;
    let unchanged = apply_announcing(&mut tx, statements, settlements, columns).await;
    tx.end(DOING, unchanged).await
}

/// Applies settlements statement by statement, and announces the deaths among them.
pub(super) async fn apply_announcing(
    tx: &mut OpenTransaction<'_>,
    statements: &Statements,
    settlements: &[Settlement],
    columns: &[Columns],
) -> StoreResult<Unchanged> {
    let unchanged = apply(tx, statements, columns).await.map_err(|e| store_error(DOING, e))?;
    for settlement in settlements {
        let token = settlement.fence.token().0;
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
                && !unchanged.contains(&(token, verdict.id.clone()))
            {
                let announcement = (**announcement).clone();
                postroom::enqueue(&mut ***tx, announcement).await.map_err(enqueue_error)?;
            }
        }
    }
    Ok(unchanged)
}

async fn apply(
    tx: &OpenTransaction<'_>,
    statements: &Statements,
    columns: &[Columns],
) -> Result<Unchanged, Error> {
    let mut unchanged = Unchanged::new();
    tx.batch_execute(OWN_WRITES).await?;
    tx.batch_execute(JOIN_BY_HASH).await?;
    // What is planned under these settings is not for others to keep.
    tx.batch_execute("SET LOCAL plan_cache_mode = force_custom_plan").await?;
    for c in columns {
        if c.kind == Kind::Parcels {
            tx.query_typed(LOCK_CLAIM, &[(&c.token, Type::UUID)]).await?;
        }
        let mut left = Vec::new();
        if let Some(sent) = statements.of(c, Part::Sent) {
            left.extend(unsent(c, &sent.run_in(tx, &c.sent()).await?)?);
        }
        if let Some(failed) = statements.of(c, Part::Failed) {
            let changed = failed.run_in(tx, &c.failure(&attempts_kept())).await?;
            left.extend(all_but(&c.failed, &changed)?);
        }
        if let Some(released) = statements.of(c, Part::Released) {
            left.extend(all_but(&c.released, &released.run_in(tx, &c.released()).await?)?);
        }
        if let Some(postponed) = statements.of(c, Part::Postponed) {
            left.extend(all_but(&c.postponed, &postponed.run_in(tx, &c.postponed()).await?)?);
        }
        unchanged.extend(of_settlement(c, left));
        if let Some(forget) = statements.of(c, Part::Forget) {
            forget.run_in(tx, &[&c.token]).await?;
        }
    }
    Ok(unchanged)
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its commit had an unknown outcome, and this was the repetition.
pub(super) async fn late(
    client: &Connection,
    settlements: &[Settlement],
    unchanged: &Unchanged,
) -> StoreResult<Settled> {
    if unchanged.is_empty() {
        return Ok(Settled::default());
    }
    let mut late = Vec::new();
    for settlement in settlements {
        let token = settlement.fence.token().0;
        let is_missing = |verdict: &&Verdict| unchanged.contains(&(token, verdict.id.clone()));
        let missing: Vec<_> = settlement.verdicts.iter().filter(is_missing).collect();
        if missing.is_empty() {
            continue;
        }
        let given = as_ids(missing.iter().map(|verdict| &verdict.id));
        let rows =
            client.query(ALREADY, &[&token, &given]).await.map_err(|e| store_error(DOING, e))?;
        let already = named(&rows).map_err(|e| store_error(DOING, e))?;
        let missing = missing.iter().filter(|verdict| !already.contains(&verdict.id));
        late.extend(missing.map(|verdict| verdict.seq));
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
