//! Statistics about a queue mislead: taken while it was nearly empty, they make SQLite read whole
//! tables where it should look up rows. So those about the outbox's tables are thrown away, and
//! the planner goes by its defaults, which suit a long queue. Nobody has any unless an
//! application runs ANALYZE, or `PRAGMA optimize`, on its file.

use super::layout::Names;
use sqlx::{AssertSqlSafe, Error, SqliteConnection};

const TABLES: &str =
    "SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')";

/// Those of our tables that a take or a settlement reads.
macro_rules! ours {
    ($statement:literal) => {
        concat!(
            $statement,
            " WHERE tbl IN ('integration_outbox', 'outbox_parcel', 'outbox_delivery', 'outbox_claim', \
             'outbox_lane_cursor', 'outbox_relay', 'outbox_attempt')"
        )
    };
}
const COUNT: &str = ours!("SELECT count(*) FROM sqlite_stat1");
const FORGET_1: &str = ours!("DELETE FROM sqlite_stat1");
const FORGET_4: &str = ours!("DELETE FROM sqlite_stat4");
/// Reads the statistics again, without taking new ones.
const RELOAD: &str = "ANALYZE sqlite_schema";

/// Throws away what statistics there are, and makes this connection plan without them.
pub(super) async fn forget(connection: &mut SqliteConnection, names: &Names) -> Result<(), Error> {
    let ours = |sql| AssertSqlSafe(names.put(sql));
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *connection).await?;
    if !tables.iter().any(|name| name == "sqlite_stat1") {
        return Ok(());
    }
    if sqlx::query_scalar::<_, i64>(ours(COUNT)).fetch_one(&mut *connection).await? == 0 {
        return Ok(());
    }
    sqlx::query(ours(FORGET_1)).execute(&mut *connection).await?;
    if tables.iter().any(|name| name == "sqlite_stat4") {
        sqlx::query(ours(FORGET_4)).execute(&mut *connection).await?;
    }
    sqlx::query(RELOAD).execute(&mut *connection).await?;
    tracing::info!("threw away SQLite's statistics about the outbox: they mislead its planner");
    Ok(())
}
