//! What a sink's tests provide.

use crate::Proxy;
use postroom_core::{Message, Sink};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

/// A message as an independent client read it at the destination.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// What the receiver deduplicates by.
    pub key: String,
    /// The body.
    pub body: String,
    /// What accompanied it, by name in lower case.
    pub attributes: BTreeMap<String, String>,
}

/// A destination on a real server, and sinks that deliver to it.
pub trait SinkHarness: Sync {
    /// The sink's name, for skips.
    fn name(&self) -> &'static str;

    /// Why there is no server here, in which case every line of the contract is a skip.
    fn missing(&self) -> Option<&str> {
        None
    }

    /// Records that a line of the contract cannot be run.
    fn skip(&self, line: &str, reason: &str) {
        crate::skip(&format!("{}: {line}", self.name()), reason);
    }

    /// Where the server listens.
    fn server(&self) -> SocketAddr;

    /// A proxy before the server, or why there is none.
    ///
    /// # Errors
    /// The reason for the skip.
    fn proxy(&self) -> Result<Proxy, &'static str> {
        Ok(Proxy::start(self.server()))
    }

    /// A sink for this destination that reaches the server at `address`: the server itself, or a
    /// proxy before it. Its own timeouts are a few seconds at most.
    fn sink(&self, address: SocketAddr) -> impl Future<Output = Arc<dyn Sink>> + Send;

    /// Everything that has arrived so far, read by another client than the sink's. What the
    /// protocol itself recognised as a repetition is not in it twice.
    fn received(&self) -> impl Future<Output = Vec<Received>> + Send;

    /// A message that this destination can never accept, or why there is none.
    ///
    /// # Errors
    /// The reason for the skip.
    fn bad(&self) -> Result<Message, &'static str>;

    /// A message that is too large for this destination, or why there is none.
    ///
    /// # Errors
    /// The reason for the skip.
    fn oversized(&self) -> Result<Message, &'static str>;

    /// Whether attributes travel beside the body, or why they do not.
    ///
    /// # Errors
    /// The reason for the skip.
    fn carries_attributes(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether a sink keeps one connection over several deliveries, or why it does not.
    ///
    /// # Errors
    /// The reason for the skip.
    fn keeps_connections(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether a lost connection is made again before anyone asks for it, or why it is not.
    ///
    /// # Errors
    /// The reason for the skip.
    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Err("its client connects when it has something to deliver")
    }
}
