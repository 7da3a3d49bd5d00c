//! The outbox on PostgreSQL, MariaDB/MySQL, SQLite and in memory.
//!
//! [`open`] gives the [`Store`](postroom_core::Store) at a URL, [`migrate`] makes its tables.
//! Every store keeps what was said, the messages with their recorded state, apart from what is still to
//! be done, the ledger: parcels of fresh messages, deliveries of all others that are not SENT, and the
//! claims on both. Everything that is searched for while working is found in the ledger, so the cost of
//! work follows the backlog and never the history.

pub mod bulk;
mod content_fault;
mod intake;
pub mod layout;
mod lost_group;
pub mod memory;
mod migrations;
pub mod mysql;
mod open;
mod own_claims;
mod parcel_token;
pub mod postgres;
mod prunable;
mod remembered;
mod repository;
mod round;
pub mod sqlite;
mod vanished;

pub use layout::Layout;
pub use migrations::{
    MigrateOptions, Migrated, Migration, Planned, grants, migrate, migrate_with, migrations, plan,
    propose_layout, remove_ledger, set_notify,
};
pub use open::{OpenOptions, has_background_recording, open};
pub use repository::Repository;

/// What to do about a right that the database's user lacks.
pub(crate) const MISSING_RIGHT: &str = "the user of the database URL lacks a right; \
    `postroom migrate --print-grants` prints the statements that give it";
