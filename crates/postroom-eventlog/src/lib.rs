//! An embedded event log that speaks KurrentDB's protocol.
//!
//! It is for development, for tests and for single nodes: what is built on it runs with nothing else
//! installed. The production answer is a KurrentDB cluster, to which the same connection string
//! points.
//!
//! [`EventLog`] is the log itself, for use in the same process; [`server::Server`] serves it to the
//! official clients.
//!
//! ```
//! use postroom_eventlog::server::{Server, ServerSettings};
//! use postroom_eventlog::{Direction, EventLog, ExpectedRevision, NewEvent, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let log = EventLog::open(folder, Settings::default())?;
//! let placed = NewEvent::json("order-placed", r#"{"orderId": "ord_1"}"#);
//! log.append("order-ord_1", ExpectedRevision::NoStream, vec![placed]).await?;
//! let page = log.read_stream("$ce-order", 0, Direction::Forwards, 100, true).await?;
//! for read in page.events {
//!     if let Some(event) = read.event {
//!         println!("{} {}", event.stream(), event.event_type());
//!     }
//! }
//!
//! // The same log for others, until the future in `serve` is done.
//! let listen = ([127, 0, 0, 1], 0).into();
//! let server = Server::bind(log.clone(), ServerSettings { listen, ..Default::default() })?;
//! println!("{}", server.connection_string());
//! server.serve(async { /* until Ctrl-C, say */ }).await?;
//! log.close().await;
//! # Ok(())
//! # }
//! ```

mod appender;
mod codec;
mod disk;
mod event;
mod eventlog;
mod expected;
mod filter;
mod index;
mod log;
mod metadata;
pub mod persistent;
#[doc(hidden)]
pub mod proto;
mod reader;
pub mod remote;
pub mod server;
#[cfg(test)]
mod simulation;
mod subscription;
mod threads;
pub mod upkeep;

pub use disk::FolderError;
pub use event::{
    LINK_TYPE, METADATA_TYPE, NewEvent, RecordedEvent, ResolvedEvent, TOMBSTONE_REVISION,
    TOMBSTONE_TYPE,
};
pub use eventlog::{
    AllPage, Direction, EventLog, OpenError, Settings, StreamPage, StreamState, Submitted,
};
pub use expected::{AppendError, Appended, ExpectedRevision, ReadError};
pub use filter::{Filter, FilterOn};
pub use log::recovery::RecoveryError;
pub use subscription::{Notice, Start, Subscription, SubscriptionError};
pub use upkeep::Scavenged;
