//! What the sinks for Amazon's services have in common: how they log in, how a message becomes an
//! entry of a request, and what the services' codes mean.

mod access;
mod classify;
mod entry;
mod sink;

pub(crate) use access::{Access, LOGIN};
pub(crate) use classify::{Failure, Target, classify};
pub(crate) use entry::{Entry, Make, read_wrapping};
pub(crate) use sink::{AwsSink, Post};
