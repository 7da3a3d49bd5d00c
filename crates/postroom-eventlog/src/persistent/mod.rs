//! Persistent subscriptions: the server keeps their state, consumers share the work.
//!
//! A group reads a stream or the whole log and delivers each event to one of its consumers, again
//! and again until one acknowledges it, or until it is parked. Delivery is at least once.
//!
//! Everything that must survive is in the log's own streams, so that a backup of the log has it:
//! - `$persistentSubscriptionConfig`: the groups and their settings;
//! - `$persistentsubscription-STREAM::GROUP-checkpoint`: where a group goes on after a restart. No
//!   event at this place or before it is unfinished;
//! - `$persistentsubscription-STREAM::GROUP-parked`: links to the events that were parked.
//!
//! How it is built: the service checks requests and asks the registry for the group, which is a task
//! of its own. Only that task touches the group's state. It reads only while there are consumers
//! and only as much as its buffers have room for.
//!
//! What groups hold in memory is bounded for each of them and for all together: a group then reads
//! no further until messages are acknowledged.
//!
//! Where KurrentDB leaves room, or does something else:
//! - there may be 1,000 groups, with 1,000 consumers each; a group's name has 1 to 255 bytes, no
//!   `::` in it and no `:` at its beginning;
//! - a group that begins at the end begins where the end was when it was made, also after restarts;
//! - a group of the whole log does not deliver the events in which groups keep their state;
//! - links whose event is gone are passed over;
//! - `stop_at` of a replay is how many messages to replay. A replayed message is hidden from later
//!   replays; it is there twice only if the server was killed meanwhile. What a replay has not
//!   finished when the group stops is parked again;
//! - a consumer whose messages timed out before it has read them gets no others until it has;
//! - an acknowledgement or refusal has at most 10,000 ids;
//! - somebody may tombstone a stream in which a group keeps its state. Once the group has to write
//!   there, its consumers hear that it failed, and so does who subscribes later, until the group is
//!   started again. It has to be deleted; one of the same name cannot be created any more;
//! - a consumer that answers `stop` is sent away, and its messages go to others.

mod checkpoint;
mod config;
mod consumers;
mod consumption;
mod error;
mod flight;
mod group;
mod group_id;
mod held;
mod message;
mod parked;
mod progress;
mod registry;
mod requests;
mod responses;
mod service;
mod settings;
mod source;
mod statistics;
mod status;
mod stream_metadata;
mod subscriber;
mod waiting;

pub use consumption::Messages;
pub use service::Service;
