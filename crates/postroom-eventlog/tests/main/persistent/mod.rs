//! Persistent subscriptions, over gRPC as clients use them.

mod client;
mod delivery;
mod groups;
mod parking;
mod restart;
mod server;
mod strategies;
mod stress;
