//! Recording what became of a batch.

use super::columns::{Columns, Kind};
use super::connection::{Connection, Prepared};
use super::error::{met_a_lock, store_error};
use super::recording::Recording;
use super::transaction::{
    BEGIN_SETTLING, COMMIT, JOIN_BY_HASH, OWN_WRITES, WAIT_BRIEFLY, in_order,
};
use super::{locked, statements};
use deadpool_postgres::Transaction;
use futures_util::FutureExt;
use postroom_core::{
    ATTEMPTS_KEPT, Fate, Settled, Settlement, StoreError, StoreErrorKind, StoreResult,
};
use std::collections::HashSet;
use tokio_postgres::Error;
use tokio_postgres::types::Type;
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
    "SELECT id FROM marked"
);
const PARCELS_SENT_DELETE: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_sent_delete.sql"),
    include_str!("sql/end_parcels.sql"),
    ",",
    include_str!("sql/remember.sql"),
    "SELECT id FROM changed"
);
pub(super) const PARCELS_NOTED: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_noted.sql"),
    include_str!("sql/end_parcels.sql"),
    "SELECT id FROM marked UNION ALL SELECT id FROM noted"
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
const FORGET_PARCELS: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/forget_parcels.sql"),
    include_str!("sql/end_parcels.sql"),
    // It changes no message.
    "SELECT NULL::uuid WHERE false"
);
const LOCK_CLAIM: &str = "SELECT token FROM core_outbox.claim WHERE token = $1 FOR UPDATE";
const ALREADY: &str = include_str!("sql/already_settled.sql");

pub(super) const DOING: &str = "recording outcomes";

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

/// Settles everything at once; only when that meets a row that somebody else has locked, what is
/// free.
pub(super) async fn settle(
    client: &mut Connection,
    settlements: &[Settlement],
    recording: &Recording,
) -> StoreResult<Settled> {
    match apply_all(client, settlements, recording).await {
        Ok(changed) => late(client, settlements, &changed).await,
        Err(error) if met_a_lock(&error) => {
            locked::settle_free(client, settlements, recording).await
        }
        Err(error) => Err(error),
    }
}

/// Applies settlements in one transaction, and says which messages they changed.
async fn apply_all(
    client: &mut Connection,
    settlements: &[Settlement],
    recording: &Recording,
) -> StoreResult<HashSet<Uuid>> {
    let columns: Vec<Columns> = settlements.iter().map(|one| Columns::of(one, recording)).collect();
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

/// All statements in one transaction and one round trip.
async fn pipelined(
    client: &Connection,
    statements: &Statements,
    columns: &[Columns],
) -> Result<HashSet<Uuid>, Error> {
    let kept = attempts_kept();
    let nothing = |()| Vec::new();
    let all: Vec<(&Columns, &Fenced)> =
        columns.iter().filter_map(|c| Some((c, statements.of(c)?))).collect();
    let lock = client.prepare_cached(LOCK_CLAIM).await?;
    let mut steps = vec![async { client.batch_execute(BEGIN_SETTLING).await.map(nothing) }.boxed()];
    // Claims on parcels are locked before anything is looked at: a statement that waits for a claim would
    // not see the delivery that whoever had it has made.
    for (c, _) in all.iter().filter(|(c, _)| c.kind == Kind::Parcels) {
        steps.push(async { client.run(&lock, &[&c.token]).await.map(|_| Vec::new()) }.boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.sent.is_empty()) {
        steps.push(async { client.run(&fenced.sent, &c.sent()).await }.boxed());
    }
    if columns.iter().any(Columns::joins) {
        steps.push(async { client.batch_execute(JOIN_BY_HASH).await.map(nothing) }.boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.released.is_empty()) {
        steps.push(async { client.run(&fenced.released, &c.released()).await }.boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.postponed.is_empty()) {
        steps.push(async { client.run(&fenced.postponed, &c.postponed()).await }.boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| !c.failed.is_empty()) {
        steps.push(async { client.run(&fenced.failed, &c.failure(&kept)).await }.boxed());
    }
    for (c, fenced) in all.iter().filter(|(c, _)| c.finished) {
        if let Some(forget) = &fenced.forget {
            steps.push(async { client.run(forget, &[&c.token]).await }.boxed());
        }
    }
    steps.push(async { client.batch_execute(COMMIT).await.map(nothing) }.boxed());
    let mut changed = HashSet::new();
    for answer in in_order(steps).await {
        for row in answer? {
            changed.insert(row.try_get::<_, Uuid>(0)?);
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
) -> StoreResult<HashSet<Uuid>> {
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
) -> StoreResult<HashSet<Uuid>> {
    let changed = apply(tx, statements, columns).await.map_err(|e| store_error(DOING, e))?;
    for verdict in settlements.iter().flat_map(|settlement| &settlement.verdicts) {
        if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
            && changed.contains(&verdict.id)
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
) -> Result<HashSet<Uuid>, Error> {
    let mut rows = Vec::new();
    tx.batch_execute(OWN_WRITES).await?;
    tx.batch_execute(JOIN_BY_HASH).await?;
    for c in columns {
        let Some(fenced) = statements.of(c) else { continue };
        if c.kind == Kind::Parcels {
            tx.query_typed(LOCK_CLAIM, &[(&c.token, Type::UUID)]).await?;
        }
        rows.extend(fenced.sent.run_in(tx, &c.sent()).await?);
        rows.extend(fenced.failed.run_in(tx, &c.failure(&attempts_kept())).await?);
        rows.extend(fenced.released.run_in(tx, &c.released()).await?);
        rows.extend(fenced.postponed.run_in(tx, &c.postponed()).await?);
        if let Some(forget) = fenced.forget.as_ref().filter(|_| c.finished) {
            forget.run_in(tx, &[&c.token]).await?;
        }
    }
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its commit had an unknown outcome, and this was the repetition.
pub(super) async fn late(
    client: &Connection,
    settlements: &[Settlement],
    changed: &HashSet<Uuid>,
) -> StoreResult<Settled> {
    let mut late = Vec::new();
    for settlement in settlements {
        let missing: Vec<_> =
            settlement.verdicts.iter().filter(|verdict| !changed.contains(&verdict.id)).collect();
        if missing.is_empty() {
            continue;
        }
        let ids: Vec<Uuid> = missing.iter().map(|verdict| verdict.id).collect();
        let rows = client
            .query(ALREADY, &[&settlement.fence.token().0, &ids])
            .await
            .map_err(|e| store_error(DOING, e))?;
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
