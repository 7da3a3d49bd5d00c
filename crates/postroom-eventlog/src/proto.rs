//! The messages of the protocol, generated from the definitions in `proto/`.

#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

pub use event_store::client as shared;
pub use event_store::client::{
    gossip, operations, persistent_subscriptions, server_features, streams,
};
