//! What a writer expects of a stream, and what becomes of an append.

use std::error::Error;
use std::io;

/// What a writer expects of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExpectedRevision {
    /// Anything.
    Any,
    /// That it is not there.
    NoStream,
    /// That it is there.
    StreamExists,
    /// That this is the revision of its last event.
    Exact(u64),
}

/// What an append, a deletion or a tombstone did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The revision of the stream's last event; `None` where the stream is still empty.
    pub revision: Option<u64>,
    /// The position of the last event that was appended; `None` where there was none to append.
    pub position: Option<u64>,
}

/// Why nothing was appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The stream is not as expected.
    #[error("the stream is at {}, not at {expected:?}", revision(*.current))]
    WrongExpectedRevision {
        /// What was expected.
        expected: ExpectedRevision,
        /// The revision of its last event; `None` where there is none.
        current: Option<u64>,
    },
    /// The stream is tombstoned.
    #[error("the stream is deleted")]
    StreamDeleted,
    /// The events of one append are larger than the log allows.
    #[error("an append may have {max} bytes")]
    TooLarge {
        /// What it allows.
        max: usize,
    },
    /// The append is malformed: the text says in what.
    #[error("{0}")]
    Invalid(String),
    /// Streams that the log computes take no events.
    #[error("{0} is computed by the log: append to the streams that it is made of")]
    Computed(String),
    /// The log cannot write at the moment, or is being closed.
    #[error("the log cannot write: {0}")]
    Unavailable(String),
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream is tombstoned.
    #[error("the stream is deleted")]
    StreamDeleted,
    /// The disk answered with an error.
    #[error("reading the log")]
    Io(#[from] io::Error),
    /// The index answered with an error.
    #[error("looking up where events stand")]
    Index(#[source] Box<dyn Error + Send + Sync>),
    /// The index leads to other events than it should.
    #[error(
        "the index of the event log is damaged: start the server again, which makes it again from \
         the log"
    )]
    IndexDamaged,
    /// The bytes at this place are not what was written there.
    #[error(
        "the log is damaged at offset {offset} of {segment}: stop the server and run `postroom eventlog check`"
    )]
    Damaged {
        /// The segment's file.
        segment: String,
        /// Where in it.
        offset: u64,
    },
}

fn revision(current: Option<u64>) -> String {
    current.map_or_else(|| "no revision".to_owned(), |revision| format!("revision {revision}"))
}
