//! The arguments of `postroom eventlog`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What can be done with an event log.
#[derive(Debug, Subcommand)]
pub(crate) enum Eventlog {
    /// Serve an event log to the clients of KurrentDB, until stopped
    #[command(after_help = "It is for development, tests and single nodes.\n\nExamples:
  postroom eventlog serve
  postroom eventlog serve --data /var/lib/postroom/eventlog --listen 0.0.0.0:2113 \\
    --tls-certificate server.pem --tls-key server.key --users users.txt")]
    Serve(Serve),
    /// Read every record, and say what is damaged; no server may have the log open
    Check(Look),
    /// Keep what is whole of a damaged log, so that it starts again
    Repair(Look),
    /// Free the space of events that nobody can read any more
    #[command(after_help = "Examples:
  postroom eventlog scavenge --data /var/lib/postroom/eventlog
  postroom eventlog scavenge --url 'esdb://admin:secret@127.0.0.1:2113?tls=false'")]
    Scavenge(Scavenge),
    /// Copy the log to a new folder, also while a server has it open
    #[command(after_help = "Example:
  postroom eventlog backup /backup/eventlog-2030-01-31 --data /var/lib/postroom/eventlog")]
    Backup(Backup),
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected an IP address and a port, such as 127.0.0.1:2113 or 0.0.0.0:2113";
    text.parse().map_err(|_| expected.to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct Data {
    /// The folder of the log
    #[arg(long, value_name = "DIR", default_value = "postroom-eventlog")]
    pub(crate) data: PathBuf,
}

#[derive(Args, Debug)]
#[cfg_attr(not(feature = "eventlog"), allow(dead_code, reason = "parsed to name the feature"))]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) data: Data,

    /// The address to listen at
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2113", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// The certificate of the server as PEM, for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// Its private key as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// A file with a line name:password for each user; without it, anyone may do anything
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[cfg_attr(not(feature = "eventlog"), allow(dead_code, reason = "parsed to name the feature"))]
pub(crate) struct Look {
    #[command(flatten)]
    pub(crate) data: Data,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[cfg_attr(not(feature = "eventlog"), allow(dead_code, reason = "parsed to name the feature"))]
pub(crate) struct Scavenge {
    #[command(flatten)]
    pub(crate) data: Data,

    /// A running server, by its connection string, instead of a folder
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) url: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[cfg_attr(not(feature = "eventlog"), allow(dead_code, reason = "parsed to name the feature"))]
pub(crate) struct Backup {
    /// The folder of the copy, which is made, or empty
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,

    #[command(flatten)]
    pub(crate) data: Data,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
