//! Transactions of the relay's own, sent in one round trip.

use super::connection::{Connection, Prepared};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

/// The planner walks the indexes made for a statement, whatever the statistics say: a queue's
/// statistics are taken when it is empty as often as when it is full. Where a plan has no other
/// way than one that is off here, its cost looks enormous, and PostgreSQL would compile it, which
/// takes half a second for a statement of a millisecond.
macro_rules! by_index {
    ($set:literal) => {
        concat!(
            $set,
            " jit = off; ",
            $set,
            " enable_seqscan = off; ",
            $set,
            " enable_bitmapscan = off; ",
            $set,
            " enable_sort = off; ",
            $set,
            " enable_hashjoin = off; ",
            $set,
            " enable_mergejoin = off"
        )
    };
}

/// For a transaction that has begun.
pub(super) const BY_INDEX: &str = by_index!("SET LOCAL");

/// How every transaction begins, whatever the role's or the database's default: in a stricter
/// isolation, relays that work side by side would fail for each other.
macro_rules! begin {
    () => {
        "BEGIN ISOLATION LEVEL READ COMMITTED"
    };
}
pub(super) const READ_COMMITTED: &str = begin!();

/// Tells the trigger that follows changes by hand that this is none (`0001_outbox.sql`).
macro_rules! own_writes {
    ($set:literal) => {
        concat!($set, " core_outbox.relay = 'on'")
    };
}
pub(super) const OWN_WRITES: &str = own_writes!("SET LOCAL");

/// How a transaction of the relay's works: by index, and without waiting for anybody's locks for
/// long. Nothing that it looks up comes twice, and to remember it would copy each message. The commit
/// does not wait for the disk: a database that crashes then can forget a claim or a completion, which
/// repeats a delivery and never loses one.
macro_rules! relay_settings {
    ($set:literal, $lock_timeout:literal) => {
        concat!(
            own_writes!($set),
            "; ",
            $set,
            " synchronous_commit = off; ",
            $set,
            " lock_timeout = '",
            $lock_timeout,
            "'; ",
            $set,
            " enable_memoize = off; ",
            by_index!($set)
        )
    };
}

/// For what every batch runs: the plan that fits any values is made once per connection. PostgreSQL would
/// plan a take again for each batch, which took nearly as long as the take itself, and came to the same.
macro_rules! planned_once {
    ($set:literal) => {
        concat!("; ", $set, " plan_cache_mode = force_generic_plan")
    };
}

/// Begins a transaction of the relay's.
pub(super) const BEGIN: &str = concat!(begin!(), "; ", relay_settings!("SET LOCAL", "5s"));

/// How a take works. It ends before long, whatever the rows hold that it meets: `content.rs` looks at
/// them one by one then. A table that somebody has locked is told from that by a shorter limit.
macro_rules! taking {
    ($set:literal) => {
        concat!(
            $set,
            " statement_timeout = '2s'; ",
            relay_settings!($set, "1s"),
            planned_once!($set)
        )
    };
}

/// For a session in which each statement of a take is a transaction of its own.
pub(super) const TAKING_SESSION: &str =
    concat!("SET default_transaction_isolation = 'read committed'; ", taking!("SET"));

/// Begins a sweep in such a session. It reads all that is in flight, and may take its time.
pub(super) const BEGIN_SWEEPING: &str = concat!(begin!(), "; SET LOCAL statement_timeout = 0");

/// Begins a transaction that takes, in any other session.
pub(super) const BEGIN_TAKING: &str = concat!(begin!(), "; ", taking!("SET LOCAL"));

/// Begins one that claims after that, and reads later. Rows that are locked are passed over, so only
/// the lock of a whole table is waited for.
pub(super) const BEGIN_CLAIMING: &str =
    concat!(begin!(), "; ", relay_settings!("SET LOCAL", "1s"), planned_once!("SET LOCAL"));

/// Begins one that settles. Someone who edits a message by hand and goes to lunch holds up that
/// message, and no other: after this short wait `locked.rs` finds out which rows are locked.
pub(super) const BEGIN_SETTLING: &str =
    concat!(begin!(), "; ", relay_settings!("SET LOCAL", "20ms"), planned_once!("SET LOCAL"));

/// The same wait, in a transaction that has begun.
pub(super) const WAIT_BRIEFLY: &str = "SET LOCAL lock_timeout = '20ms'";

/// For a transaction that has begun and settles rows that it has locked already: nothing is left
/// to wait for but a claim that a heartbeat gives up.
pub(super) const SETTLE_LOCKED: &str = relay_settings!("SET LOCAL", "1s");

/// Begins a transaction of an operator's, by index. What it commits has happened. An operator can
/// wait for rows longer than a relay, and not for ever.
pub(super) const BEGIN_DURABLE: &str = concat!(
    begin!(),
    "; ",
    own_writes!("SET LOCAL"),
    "; SET LOCAL lock_timeout = '10s'; ",
    by_index!("SET LOCAL")
);

/// For statements that join what they were given with what they found: with the statistics of an
/// emptied table a nested loop would be quadratic.
pub(super) const JOIN_BY_HASH: &str = "SET LOCAL jit = off; \
     SET LOCAL enable_nestloop = off; \
     SET LOCAL enable_hashjoin = on";

/// Ends what [`BEGIN`] began. After a failed statement it rolls back, without an error.
pub(super) const COMMIT: &str = "COMMIT";

/// Runs futures side by side and starts them strictly in order, so that statements on one
/// connection are sent back to back and executed in that order.
pub(super) async fn in_order<'a, T>(steps: Vec<BoxFuture<'a, T>>) -> Vec<T> {
    let mut steps: Vec<MaybeDone<BoxFuture<'a, T>>> = steps.into_iter().map(maybe_done).collect();
    poll_fn(|context| {
        let mut all_done = true;
        for step in &mut steps {
            all_done &= Pin::new(step).poll(context).is_ready();
        }
        if all_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    steps.iter_mut().filter_map(|step| Pin::new(step).take_output()).collect()
}

/// Runs one statement in a transaction of its own, in one round trip. `begin` is [`BEGIN`] or
/// [`BEGIN_DURABLE`], with more settings where the statement needs them.
pub(super) async fn transact(
    client: &Connection,
    begin: &str,
    statement: &Prepared,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let nothing = |()| Vec::new();
    let mut answers = in_order(vec![
        async { client.batch_execute(begin).await.map(nothing) }.boxed(),
        async { client.run(statement, params).await }.boxed(),
        async { client.batch_execute(COMMIT).await.map(nothing) }.boxed(),
    ])
    .await
    .into_iter();
    answers.next().unwrap_or(Ok(Vec::new()))?;
    let rows = answers.next().unwrap_or(Ok(Vec::new()))?;
    answers.next().unwrap_or(Ok(Vec::new()))?;
    Ok(rows)
}
