//! Which statement records which outcome, by what the settlement is fenced by.

use super::columns::{Columns, Kind};
use super::connection::{Connection, Prepared};
use super::recording::Recording;
use super::statements::{FORGET_CLAIM, SETTLE_SENT};
use tokio_postgres::Error;

pub(super) const SENT_DELETE: &str = concat!(
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
pub(super) const PARCELS_SENT_DELETE: &str = concat!(
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
pub(super) const PARCELS_FAILED: &str = concat!(
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

/// A part of a settlement, which has a statement of its own. Of what it was given, each answers with what it
/// changed; only `Sent` of parcels, of which there are many, with what it did not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Sent,
    Failed,
    Released,
    Postponed,
    /// Ends a claim of which nothing is left; no dispatch has one.
    Forget,
}

impl Part {
    const ALL: [Self; 5] =
        [Self::Sent, Self::Failed, Self::Released, Self::Postponed, Self::Forget];

    fn is_in(self, columns: &Columns) -> bool {
        match self {
            Self::Sent => !columns.sent.is_empty(),
            Self::Failed => !columns.failed.is_empty(),
            Self::Released => !columns.released.is_empty(),
            Self::Postponed => !columns.postponed.is_empty(),
            Self::Forget => columns.finished,
        }
    }

    fn text(self, kind: Kind, recording: &Recording) -> Option<&'static str> {
        Some(match (kind, self) {
            (Kind::Deliveries, Self::Sent) => match recording {
                Recording::AtOnce | Recording::Later(_) => SETTLE_SENT,
                Recording::Deleted { .. } => SENT_DELETE,
            },
            (Kind::Deliveries, Self::Failed) => FAILED,
            (Kind::Deliveries, Self::Released) => RELEASED,
            (Kind::Deliveries, Self::Postponed) => POSTPONED,
            (Kind::Deliveries, Self::Forget) => FORGET_CLAIM,
            (Kind::Parcels, Self::Sent) => match recording {
                Recording::AtOnce => PARCELS_SENT,
                Recording::Later(_) => PARCELS_NOTED,
                Recording::Deleted { .. } => PARCELS_SENT_DELETE,
            },
            (Kind::Parcels, Self::Failed) => PARCELS_FAILED,
            (Kind::Parcels, Self::Released) => PARCELS_RELEASED,
            (Kind::Parcels, Self::Postponed) => PARCELS_POSTPONED,
            (Kind::Parcels, Self::Forget) => FORGET_PARCELS,
            (Kind::Dispatch, Self::Sent) => match recording {
                Recording::AtOnce | Recording::Later(_) => DISPATCH_SENT,
                Recording::Deleted { .. } => DISPATCH_SENT_DELETE,
            },
            (Kind::Dispatch, Self::Failed) => DISPATCH_FAILED,
            (Kind::Dispatch, Self::Released) => DISPATCH_RELEASED,
            (Kind::Dispatch, Self::Postponed) => DISPATCH_POSTPONED,
            (Kind::Dispatch, Self::Forget) => return None,
        })
    }
}

/// The statements that some settlements need, and no others: each costs a new connection a round trip, and
/// most connections record SENT alone for a long time.
pub(super) struct Statements(Vec<(Kind, Part, Prepared)>);

impl Statements {
    pub(super) async fn prepare(
        client: &Connection,
        recording: &Recording,
        columns: &[Columns],
    ) -> Result<Self, Error> {
        let mut prepared = Self(Vec::new());
        for c in columns {
            for part in Part::ALL.into_iter().filter(|part| part.is_in(c)) {
                if prepared.of(c, part).is_none()
                    && let Some(text) = part.text(c.kind, recording)
                {
                    prepared.0.push((c.kind, part, client.prepare_cached(text).await?));
                }
            }
        }
        Ok(prepared)
    }

    /// The statement for a part of a settlement that was prepared for; none where it has no such part.
    pub(super) fn of(&self, columns: &Columns, part: Part) -> Option<&Prepared> {
        let is_it = |(kind, of, _): &&(Kind, Part, Prepared)| *kind == columns.kind && *of == part;
        let statement = self.0.iter().find(is_it).map(|(_, _, statement)| statement);
        statement.filter(|_| part.is_in(columns))
    }
}
