//! One operation on some messages, tried again when it lost to a concurrent transaction.

use postroom_core::{
    ActionId, Key, MessageId, NewAction, Operate, Operation, Status, StoreErrorKind, StoreResult,
};
use std::time::Duration;
use tokio::time::Instant;

/// How often a batch is tried again that lost to a concurrent transaction. Not after one that waited
/// this long for a lock: somebody keeps that, and the operator should know.
const CONFLICTS_MAX: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);
const CONFLICT_LONG: Duration = Duration::from_secs(1);

/// What is done to each message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Dead messages again, with all their attempts.
    Redrive,
    /// Sent messages again, as new rows.
    Replay {
        /// Whether they get event ids of their own, so that receivers repeat the effect.
        fresh_ids: bool,
    },
    /// Claimed messages are taken from their relay.
    Release,
    /// Waiting messages become DEAD.
    Cancel,
}

impl Change {
    /// The operation it is on record as.
    #[must_use]
    pub fn operation(self) -> Operation {
        match self {
            Self::Redrive => Operation::Redrive,
            Self::Replay { .. } => Operation::Replay,
            Self::Release => Operation::Release,
            Self::Cancel => Operation::Cancel,
        }
    }

    /// The statuses it applies to; messages with another are left alone.
    #[must_use]
    pub fn statuses(self) -> &'static [Status] {
        match self {
            Self::Redrive => &[Status::Dead],
            Self::Replay { .. } => &[Status::Sent],
            Self::Release => &[Status::Claimed],
            Self::Cancel => &[Status::Pending, Status::Failed],
        }
    }

    pub(super) async fn apply(
        self,
        store: &dyn Operate,
        action: ActionId,
        keys: &[Key],
    ) -> StoreResult<Changed> {
        let mut conflicts = 0;
        loop {
            let began = Instant::now();
            let changed = match self {
                Self::Redrive => store.redrive(action, keys).await.map(Changed::count),
                Self::Release => store.release(action, keys).await.map(Changed::count),
                Self::Cancel => store.cancel(action, keys).await.map(Changed::count),
                Self::Replay { fresh_ids } => store
                    .replay(action, keys, fresh_ids)
                    .await
                    .map(|made| Changed { messages: made.len() as u64, made }),
            };
            match changed {
                Err(error)
                    if error.kind == StoreErrorKind::Conflict
                        && conflicts < CONFLICTS_MAX
                        && began.elapsed() < CONFLICT_LONG =>
                {
                    conflicts += 1;
                    tokio::time::sleep(CONFLICT_PAUSE).await;
                }
                changed => return changed,
            }
        }
    }
}

/// What one change did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changed {
    /// How many messages.
    pub messages: u64,
    /// The new messages of a replay.
    pub made: Vec<MessageId>,
}

impl Changed {
    fn count(messages: u64) -> Self {
        Self { messages, made: Vec::new() }
    }
}

/// Changes one message, on record. Nothing is changed when it is not in the state for it.
///
/// # Errors
/// When the database is away or refuses.
pub async fn change_one(
    store: &dyn Operate,
    actor: &str,
    change: Change,
    key: Key,
) -> StoreResult<(ActionId, Changed)> {
    let target = key.id.to_string();
    let action = NewAction { actor, operation: change.operation(), target: &target };
    let action = store.begin_action(&action).await?;
    Ok((action, change.apply(store, action, &[key]).await?))
}
