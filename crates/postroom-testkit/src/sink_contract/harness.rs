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
}

/// What starting a harness came to: a harness, or why there is none here.
pub trait Started {
    /// The harness.
    type Harness: SinkHarness;

    /// The harness, or a skip of this line of the contract.
    fn or_skip(self, line: &str) -> Option<Self::Harness>;
}

impl<H: SinkHarness> Started for H {
    type Harness = H;

    fn or_skip(self, _: &str) -> Option<H> {
        Some(self)
    }
}

impl<H: SinkHarness> Started for Result<H, &'static str> {
    type Harness = H;

    fn or_skip(self, line: &str) -> Option<H> {
        self.map_err(|reason| crate::skip(line, reason)).ok()
    }
}
