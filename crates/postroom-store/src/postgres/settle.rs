//! Recording what became of a batch.

use super::columns::{Columns, Kind, Params};
use super::connection::{Connection, Prepared};
use super::error::{met_a_lock, store_error};
use super::recording::Recording;
use super::transaction::{
    BEGIN_SETTLING, COMMIT, JOIN_BY_HASH, OWN_WRITES, WAIT_BRIEFLY, in_order,
};
use super::{locked, noted, statements};
use deadpool_postgres::Transaction;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postroom_core::{
    ATTEMPTS_KEPT, Fate, Settled, Settlement, StoreError, StoreErrorKind, StoreResult, Verdict,
};
use std::collections::HashSet;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const SENT_DELETE: &str = concat!(
    include_str!("sql/settle_sent_delete.sql"),
    include_str!("sql/remember.sql"),
    "SELECT message_id FROM gone"
);
pub(super) const FAILED: &str = concat!(
    include_str!("sql/settle_failed.sql"),
    include_str!("sql/mark_failed.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT message_id FROM freed"
);
const RELEASED: &str =
    concat!(include_str!("sql/settle_released.sql"), include_str!("sql/follow_released.sql"));
pub(super) const POSTPONED: &str =
    concat!(include_str!("sql/settle_postponed.sql"), include_str!("sql/put_off.sql"));

pub(super) const DISPATCH_SENT: &str = include_str!("sql/settle_dispatch_sent.sql");
const DISPATCH_SENT_DELETE: &str = concat!(
    include_str!("sql/settle_dispatch_sent_delete.sql"),
    include_str!("sql/remember.sql"),
    "SELECT message_id FROM gone"
);
pub(super) const DISPATCH_FAILED: &str = concat!(
    include_str!("sql/settle_dispatch_failed.sql"),
    include_str!("sql/mark_failed.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT message_id FROM freed"
);
const DISPATCH_RELEASED: &str = concat!(
    include_str!("sql/settle_dispatch_released.sql"),
    include_str!("sql/follow_released.sql")
);
const DISPATCH_POSTPONED: &str =
    concat!(include_str!("sql/settle_dispatch_postponed.sql"), include_str!("sql/put_off.sql"));
pub(super) const PARCELS_SENT: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_sent.sql"),
    include_str!("sql/end_parcels.sql"),
    include_str!("sql/unchanged.sql")
);
const PARCELS_SENT_DELETE: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_sent_delete.sql"),
    include_str!("sql/end_parcels.sql"),
    ",",
    include_str!("sql/remember.sql"),
    include_str!("sql/unchanged.sql")
);
pub(super) const PARCELS_NOTED: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_noted.sql"),
    include_str!("sql/end_parcels.sql"),
    include_str!("sql/unchanged.sql")
);
const PARCELS_FAILED: &str = concat!(
    include_str!("sql/settle_parcels_failed.sql"),
    include_str!("sql/mark_failed.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT message_id FROM freed"
);
const PARCELS_RELEASED: &str =
    concat!(include_str!("sql/held_parcels.sql"), include_str!("sql/settle_parcels_released.sql"));
const PARCELS_POSTPONED: &str =
    concat!(include_str!("sql/held_parcels.sql"), include_str!("sql/settle_parcels_postponed.sql"));
pub(super) const FORGET_PARCELS: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/forget_parcels.sql"),
    include_str!("sql/end_parcels.sql"),
    // It changes no message.
    "SELECT NULL::uuid WHERE false"
);
pub(super) const LOCK_CLAIM: &str =
    "SELECT token FROM core_outbox.claim WHERE token = $1 FOR UPDATE";
const ALREADY: &str = include_str!("sql/already_settled.sql");

pub(super) const DOING: &str = "recording outcomes";

/// [`ATTEMPTS_KEPT`], as the statements take it.
pub(super) fn attempts_kept() -> i32 {
    i32::try_from(ATTEMPTS_KEPT).unwrap_or(i32::MAX)
}

/// The statements of one kind of fence. Of what it was given, each answers with what it changed; only
/// `sent` of parcels, of which there are many, with what it did not.
struct Fenced {
    sent: Prepared,
    failed: Prepared,
    released: Prepared,
    postponed: Prepared,
    /// Ends a claim of which nothing is left; no dispatch has one.
    forget: Option<Prepared>,
}

/// The same, as text.
struct Texts {
    sent: &'static str,
    failed: &'static str,
    released: &'static str,
    postponed: &'static str,
    forget: Option<&'static str>,
}

/// The statements that some settlements need.
pub(super) struct Statements(Vec<(Kind, Fenced)>);

impl Kind {
    fn texts(self, recording: &Recording) -> Texts {
        match self {
            Self::Deliveries => Texts {
                sent: match recording {
                    Recording::AtOnce | Recording::Later(_) => statements::SETTLE_SENT,
                    Recording::Deleted { .. } => SENT_DELETE,
                },
                failed: FAILED,
                released: RELEASED,
                postponed: POSTPONED,
                forget: Some(statements::FORGET_CLAIM),
            },
            Self::Parcels => Texts {
                sent: match recording {
                    Recording::AtOnce => PARCELS_SENT,
                    Recording::Later(_) => PARCELS_NOTED,
                    Recording::Deleted { .. } => PARCELS_SENT_DELETE,
                },
                failed: PARCELS_FAILED,
                released: PARCELS_RELEASED,
                postponed: PARCELS_POSTPONED,
                forget: Some(FORGET_PARCELS),
            },
            Self::Dispatch => Texts {
                sent: match recording {
                    Recording::AtOnce | Recording::Later(_) => DISPATCH_SENT,
                    Recording::Deleted { .. } => DISPATCH_SENT_DELETE,
                },
                failed: DISPATCH_FAILED,
                released: DISPATCH_RELEASED,
                postponed: DISPATCH_POSTPONED,
                forget: None,
            },
        }
    }
}

impl Statements {
    pub(super) async fn prepare(
        client: &Connection,
        recording: &Recording,
        columns: &[Columns],
    ) -> Result<Self, Error> {
        let mut prepared: Vec<(Kind, Fenced)> = Vec::new();
        for c in columns {
            if prepared.iter().all(|(kind, _)| *kind != c.kind) {
                let fenced = Fenced::prepare(client, &c.kind.texts(recording)).await?;
                prepared.push((c.kind, fenced));
            }
        }
        Ok(Self(prepared))
    }

    /// The statements for a settlement, which were prepared with it.
    fn of(&self, columns: &Columns) -> Option<&Fenced> {
        self.0.iter().find(|(kind, _)| *kind == columns.kind).map(|(_, fenced)| fenced)
    }
}

impl Fenced {
    async fn prepare(client: &Connection, texts: &Texts) -> Result<Self, Error> {
        Ok(Self {
            sent: client.prepare_cached(texts.sent).await?,
            failed: client.prepare_cached(texts.failed).await?,
            released: client.prepare_cached(texts.released).await?,
            postponed: client.prepare_cached(texts.postponed).await?,
            forget: match texts.forget {
                Some(forget) => Some(client.prepare_cached(forget).await?),
                None => None,
            },
        })
    }
}

/// Messages that settlements left unchanged, each with the token of its settlement: a message may be in two
/// of them, of which one came too late.
pub(super) type Unchanged = HashSet<(Uuid, Uuid)>;

/// The messages that an answer names.
fn named(rows: &[Row]) -> Result<Vec<Uuid>, Error> {
    rows.iter().filter_map(|row| row.try_get(0).transpose()).collect()
}

/// Whether recording SENT did not end a claim on parcels, by its answer.
fn stays(answer: &[Row]) -> Result<bool, Error> {
    answer
        .iter()
        .try_fold(false, |stays, row| Ok(stays || row.try_get::<_, Option<Uuid>>(0)?.is_none()))
}

/// What a statement left unchanged of the messages it was `given`, from those that it `changed`.
fn all_but(given: &[Uuid], changed: &[Row]) -> Result<Vec<Uuid>, Error> {
    let changed: HashSet<Uuid> = named(changed)?.into_iter().collect();
    Ok(given.iter().filter(|id| !changed.contains(id)).copied().collect())
}

/// What recording SENT left unchanged, from its answer.
fn unsent(c: &Columns, answer: &[Row]) -> Result<Vec<Uuid>, Error> {
    match c.kind {
        Kind::Parcels => named(answer),
        Kind::Deliveries | Kind::Dispatch => all_but(&c.sent, answer),
    }
}

fn of_settlement(c: &Columns, unchanged: Vec<Uuid>) -> Vec<(Uuid, Uuid)> {
    unchanged.into_iter().map(|id| (c.token, id)).collect()
}

/// Runs a statement that answers with what it changed; what it left unchanged of the messages it was
/// `given`.
async fn changing(
    client: &Connection,
    statement: &Prepared,
    params: Params<'_>,
    (c, given): (&Columns, &[Uuid]),
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
    unchanged: Vec<(Uuid, Uuid)>,
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
    let mut all: Vec<(&Columns, &Fenced)> =
        columns.iter().filter_map(|c| Some((c, statements.of(c)?))).collect();
    let lock = client.prepare_cached(LOCK_CLAIM).await?;
    let say =
        |sql| async move { client.batch_execute(sql).await.map(|()| Done::default()) }.boxed();
    let mut steps: Vec<BoxFuture<'_, Step>> = vec![say(BEGIN_SETTLING)];
    // Claims on parcels are locked before anything is looked at: a statement that waits for a claim would
    // not see the delivery that whoever had it has made.
    for (c, _) in all.iter().filter(|(c, _)| c.kind == Kind::Parcels) {
        steps.push(unanswered(client, &lock, c).boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.sent.is_empty()) {
        let sent = async {
            let answer = client.run(&fenced.sent, &c.sent()).await?;
            let to_forget = (c.may_end_by_itself() && stays(&answer)?).then_some(c.token);
            Ok(Done { unchanged: of_settlement(c, unsent(c, &answer)?), to_forget })
        };
        steps.push(sent.boxed());
    }
    if columns.iter().any(Columns::joins) {
        steps.push(say(JOIN_BY_HASH));
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.released.is_empty()) {
        steps.push(changing(client, &fenced.released, c.released(), (c, &c.released)).boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.postponed.is_empty()) {
        steps.push(changing(client, &fenced.postponed, c.postponed(), (c, &c.postponed)).boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.failed.is_empty()) {
        steps.push(changing(client, &fenced.failed, c.failure(&kept), (c, &c.failed)).boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| c.finished && !c.may_end_by_itself()) {
        if let Some(forget) = &fenced.forget {
            steps.push(unanswered(client, forget, c).boxed());
        }
    }
    steps.push(say(COMMIT));
    let mut unchanged = Unchanged::new();
    let mut to_forget = Vec::new();
    for answer in in_order(steps).await {
        let done = answer?;
        unchanged.extend(done.unchanged);
        to_forget.extend(done.to_forget);
    }
    all.retain(|(c, _)| to_forget.contains(&c.token));
    if let Err(error) = forget(client, &lock, &all).await {
        // What they held is recorded. The next heartbeat gives them up.
        tracing::debug!(%error, "claims that are over could not be removed");
    }
    Ok(unchanged)
}

/// Ends claims that recording SENT did not end, unless something is held under them.
async fn forget(
    client: &Connection,
    lock: &Prepared,
    left: &[(&Columns, &Fenced)],
) -> Result<(), Error> {
    if left.is_empty() {
        return Ok(());
    }
    let say =
        |sql| async move { client.batch_execute(sql).await.map(|()| Done::default()) }.boxed();
    let mut steps: Vec<BoxFuture<'_, Step>> = vec![say(BEGIN_SETTLING)];
    for (c, fenced) in left {
        steps.push(unanswered(client, lock, c).boxed());
        steps.extend(fenced.forget.iter().map(|forget| unanswered(client, forget, c).boxed()));
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
    tx: &mut Transaction<'_>,
    statements: &Statements,
    settlements: &[Settlement],
    columns: &[Columns],
) -> StoreResult<Unchanged> {
    let unchanged = apply(tx, statements, columns).await.map_err(|e| store_error(DOING, e))?;
    for settlement in settlements {
        let token = settlement.fence.token().0;
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
                && !unchanged.contains(&(token, verdict.id))
            {
                let announcement = (**announcement).clone();
                postroom::enqueue(&mut **tx, announcement).await.map_err(enqueue_error)?;
            }
        }
    }
    Ok(unchanged)
}

async fn apply(
    tx: &Transaction<'_>,
    statements: &Statements,
    columns: &[Columns],
) -> Result<Unchanged, Error> {
    let mut unchanged = Unchanged::new();
    tx.batch_execute(OWN_WRITES).await?;
    tx.batch_execute(JOIN_BY_HASH).await?;
    // What is planned under these settings is not for others to keep.
    tx.batch_execute("SET LOCAL plan_cache_mode = force_custom_plan").await?;
    for c in columns {
        let Some(fenced) = statements.of(c) else { continue };
        if c.kind == Kind::Parcels {
            tx.query_typed(LOCK_CLAIM, &[(&c.token, Type::UUID)]).await?;
        }
        let mut left = unsent(c, &fenced.sent.run_in(tx, &c.sent()).await?)?;
        let failed = fenced.failed.run_in(tx, &c.failure(&attempts_kept())).await?;
        left.extend(all_but(&c.failed, &failed)?);
        left.extend(all_but(&c.released, &fenced.released.run_in(tx, &c.released()).await?)?);
        let postponed = fenced.postponed.run_in(tx, &c.postponed()).await?;
        left.extend(all_but(&c.postponed, &postponed)?);
        unchanged.extend(of_settlement(c, left));
        if let Some(forget) = fenced.forget.as_ref().filter(|_| c.finished) {
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
        let is_missing = |verdict: &&Verdict| unchanged.contains(&(token, verdict.id));
        let missing: Vec<_> = settlement.verdicts.iter().filter(is_missing).collect();
        if missing.is_empty() {
            continue;
        }
        let ids: Vec<Uuid> = missing.iter().map(|verdict| verdict.id).collect();
        let rows =
            client.query(ALREADY, &[&token, &ids]).await.map_err(|e| store_error(DOING, e))?;
        let already: HashSet<Uuid> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
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
