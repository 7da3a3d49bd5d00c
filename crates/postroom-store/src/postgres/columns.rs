//! One settlement as arrays, the shape that the statements take.

use super::ids::Id;
use super::recording::Recording;
use crate::parcel_token::holds_parcels;
use postroom_core::{AttemptOutcome, Fate, Fence, MessageId, Settlement, Tried, clip_error};
use std::time::Duration;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

pub(super) type Params<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// What a settlement is fenced by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Kind {
    /// A claim on deliveries.
    #[default]
    Deliveries,
    /// A claim on parcels.
    Parcels,
    /// The number of a dispatch.
    Dispatch,
}

/// What the statement that records SENT takes besides.
#[derive(Default)]
enum Recorded {
    #[default]
    AtOnce,
    /// The integrations whose messages in parcels say SENT later.
    Later(Vec<String>),
    /// For how many seconds their events are remembered.
    Deleted(f64),
}

/// One settlement as arrays, the shape the statements take.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) token: Uuid,
    pub(super) kind: Kind,
    /// How many dispatches were over when the one began that this is about; 0 for a claim.
    dispatches_over: i32,
    /// How many attempts had failed before that dispatch, where that is known.
    failed_before: Option<i32>,
    pub(super) finished: bool,
    recorded: Recorded,
    pub(super) sent: Vec<Id>,
    pub(super) released: Vec<Id>,
    pub(super) postponed: Vec<Id>,
    /// Of those, in seconds.
    put_off: Vec<f64>,
    pub(super) failed: Vec<Id>,
    delays: Vec<f64>,
    errors: Vec<String>,
    dead: Vec<bool>,
    outcomes: Vec<Option<&'static str>>,
    took_ms: Vec<i64>,
}

impl Columns {
    pub(super) fn of(settlement: &Settlement, recording: &Recording) -> Self {
        let mut columns = match settlement.fence {
            Fence::Claim(token) => {
                let kind = if holds_parcels(token) { Kind::Parcels } else { Kind::Deliveries };
                let finished = settlement.finished;
                Self { token: token.0, kind, finished, ..Self::default() }
            }
            Fence::Dispatch { number, token, failed_before } => {
                let count = |count| i32::try_from(count).unwrap_or(i32::MAX);
                Self {
                    token: token.0,
                    kind: Kind::Dispatch,
                    dispatches_over: count(number).saturating_sub(1),
                    failed_before: failed_before.map(count),
                    ..Self::default()
                }
            }
        };
        columns.recorded = match recording {
            Recording::Later(later) if columns.kind == Kind::Parcels => {
                Recorded::Later(later.clone())
            }
            Recording::AtOnce | Recording::Later(_) => Recorded::AtOnce,
            Recording::Deleted { remembered } => Recorded::Deleted(remembered.as_secs_f64()),
        };
        for verdict in &settlement.verdicts {
            let id = || Id(verdict.id.clone());
            match &verdict.fate {
                Fate::Sent => columns.sent.push(id()),
                Fate::Released => columns.released.push(id()),
                Fate::Postponed { delay } => {
                    columns.postponed.push(id());
                    columns.put_off.push(delay.as_secs_f64());
                }
                Fate::Failed { delay, error, took } => {
                    let tried = Tried { outcome: AttemptOutcome::Retry, took: *took };
                    columns.fail(&verdict.id, Some(*delay), error, Some(tried));
                }
                Fate::Dead { error, tried, .. } => {
                    columns.fail(&verdict.id, None, error, *tried);
                }
            }
        }
        // A note lists them in order.
        columns.sent.sort_unstable();
        columns
    }

    /// What `settle_sent.sql` takes, and its like.
    pub(super) fn sent(&self) -> Params<'_> {
        let mut params: Params<'_> = vec![&self.token, &self.sent];
        match &self.recorded {
            Recorded::AtOnce => {}
            Recorded::Later(later) => params.push(later),
            Recorded::Deleted(remembered) => params.push(remembered),
        }
        self.fenced(params)
    }

    /// What `settle_released.sql` takes, and its like.
    pub(super) fn released(&self) -> Params<'_> {
        self.fenced(vec![&self.token, &self.released])
    }

    /// What `settle_postponed.sql` takes, and its like.
    pub(super) fn postponed(&self) -> Params<'_> {
        self.fenced(vec![&self.token, &self.postponed, &self.put_off])
    }

    /// Whether this may be a batch that was delivered as a whole, whose SENT is recorded in the
    /// background.
    pub(super) fn may_be_noted_whole(&self) -> bool {
        matches!(self.recorded, Recorded::Later(_)) && self.may_end_by_itself()
    }

    /// Whether recording SENT mostly ends the claim, which is on parcels: everything else that it held, if
    /// anything, was recorded before.
    pub(super) fn may_end_by_itself(&self) -> bool {
        self.kind == Kind::Parcels && self.finished && !self.sent.is_empty() && !self.joins()
    }

    /// Whether anything is joined with what it was given.
    pub(super) fn joins(&self) -> bool {
        !(self.failed.is_empty() && self.released.is_empty() && self.postponed.is_empty())
    }

    /// What `settle_failed.sql` takes, and its like.
    pub(super) fn failure<'a>(&'a self, kept: &'a i32) -> Params<'a> {
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
        if self.kind == Kind::Dispatch {
            params.push(&self.failed_before);
        }
        params
    }

    /// Statements that are fenced by a dispatch take its number after everything else.
    fn fenced<'a>(&'a self, mut params: Params<'a>) -> Params<'a> {
        if self.kind == Kind::Dispatch {
            params.push(&self.dispatches_over);
        }
        params
    }

    /// Due again after `delay`, or dead without one.
    fn fail(&mut self, id: &MessageId, delay: Option<Duration>, error: &str, tried: Option<Tried>) {
        self.failed.push(Id(id.clone()));
        self.delays.push(delay.unwrap_or_default().as_secs_f64());
        self.errors.push(clip_error(error));
        self.dead.push(delay.is_none());
        self.outcomes.push(tried.map(|tried| tried.outcome.as_str()));
        let took = tried.map_or(0, |tried| tried.took.as_millis());
        self.took_ms.push(i64::try_from(took).unwrap_or(i64::MAX));
    }
}
