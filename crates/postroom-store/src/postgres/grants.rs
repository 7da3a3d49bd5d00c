//! The rights that producers and relays need, and no more.

use super::MIGRATIONS;

const ROLES: &str = include_str!("../../migrations/postgres/grants.sql");
/// For the tables that migration 0002 brings.
const ADMINISTRATION: &str = include_str!("../../migrations/postgres/grants_administration.sql");

/// The statements that make a role for producers and one for relays.
pub(crate) fn grants() -> String {
    let has_administration = MIGRATIONS.iter().any(|migration| migration.number == 2);
    format!("{ROLES}{}", if has_administration { ADMINISTRATION } else { "" })
}
