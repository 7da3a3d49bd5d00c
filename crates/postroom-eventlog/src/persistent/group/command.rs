//! What a group is asked to do.

use crate::expected::ReadError;
use crate::persistent::message::ConsumerId;
use crate::persistent::subscriber::{Deliveries, Ended, Identity, Presence};
use crate::proto::persistent_subscriptions::SubscriptionInfo;
use tokio::sync::oneshot;
use uuid::Uuid;

/// What a group is asked to do.
#[derive(Debug)]
pub(in crate::persistent) enum Command {
    /// Another consumer joins, with room for this many messages.
    Subscribe {
        identity: Identity,
        slots: usize,
        reply: oneshot::Sender<Result<Subscribed, Refused>>,
    },
    /// A consumer has worked on these.
    Ack { consumer: ConsumerId, ids: Vec<Uuid> },
    /// A consumer could not work on these.
    Nack { consumer: ConsumerId, ids: Vec<Uuid>, action: NackAction, reason: String },
    /// A consumer will not acknowledge anything any more, though it still listens.
    Retire { consumer: ConsumerId },
    /// A consumer is sent away.
    Dismiss { consumer: ConsumerId, why: Ended },
    /// What there is to know about the group.
    Info { reply: oneshot::Sender<Result<SubscriptionInfo, ReadError>> },
    /// Deliver parked messages again: this many, or all.
    Replay { count: Option<u64>, reply: oneshot::Sender<Result<(), ReadError>> },
    /// The end. Everything is stored once the group's task has ended.
    Stop { why: StopReason },
}

/// What becomes of a message that a consumer could not work on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::persistent) enum NackAction {
    /// It is delivered again, to any consumer.
    Retry,
    /// It is parked.
    Park,
    /// It is done with.
    Skip,
    /// It is delivered again, to another consumer: this one is sent away.
    Stop,
}

/// Why a group stops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::persistent) enum StopReason {
    /// It is deleted: nothing is stored.
    Deleted,
    /// It goes on at once, perhaps with other settings. Consumers have to subscribe again.
    Restarted,
    /// The server stops.
    Closing,
}

/// A consumer that has joined.
#[derive(Debug)]
pub(in crate::persistent) struct Subscribed {
    pub(in crate::persistent) consumer: ConsumerId,
    pub(in crate::persistent) deliveries: Deliveries,
    pub(in crate::persistent) presence: Presence,
}

/// Why a consumer could not join.
#[derive(Debug, Eq, PartialEq)]
pub(in crate::persistent) enum Refused {
    /// There are as many as there may be.
    Full,
    /// The group cannot go on.
    Failed(String),
}
