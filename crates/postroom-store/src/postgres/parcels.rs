//! Parcels of fresh messages: taking them, reading what they name, making deliveries of it.
//!
//! A take locks the cursors of its lanes and reads the parcels above their marks; what committed late lies
//! below, and is swept up whenever a take that follows no signal found less than it was asked for, and once a
//! second. A claim names its parcels and writes to none of them. Whatever is not delivered out of a parcel gets
//! a delivery, so a parcel is inserted once and deleted once. It goes back to its lane only where nobody could
//! read it.

use super::PgStore;
use super::connection::Connection;
use super::content::{
    READ_FEW, READ_PARCELS, Read, clamp_i32, concerns_content, read_fresh, read_parcels,
};
use super::error::store_error;
use super::ids::Id;
use super::lanes::Lanes;
use super::transaction::{
    BEGIN, BEGIN_CLAIMING, BEGIN_SWEEPING, BEGIN_TAKING, COMMIT, in_order, transact,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postroom_core::{MessageId, Quota, StoreResult, Take, Token};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

pub(super) const TAKE_PARCELS: &str =
    concat!(include_str!("sql/take_parcels.sql"), include_str!("sql/claim_parcels.sql"));
pub(super) const TAKE_FEW: &str = include_str!("sql/take_few.sql");
pub(super) const SWEEP: &str =
    concat!(include_str!("sql/sweep.sql"), include_str!("sql/claim_parcels.sql"));
pub(super) const UNPACK: &str = concat!(
    include_str!("sql/unpack.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*), EXISTS (
         SELECT FROM unnest($1::text[]) AS wanted (integration)
         WHERE core_outbox.lane_of(integration)
               <> ALL (ARRAY(SELECT lane FROM core_outbox.lane_cursor))
     ) FROM gone"
);
pub(super) const RESCUE_PARCELS: &str = concat!(
    include_str!("sql/rescue_parcels.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*) FILTER (WHERE is_lost) FROM named"
);
pub(super) const LOCK_LANES: &str = include_str!("sql/lock_lanes.sql");
const LET_GO: &str = "DELETE FROM core_outbox.claim WHERE token = $1 RETURNING token";
const RISE: &str = include_str!("sql/rise.sql");
const MAKE_CURSORS: &str = "INSERT INTO core_outbox.lane_cursor (lane) \
    SELECT DISTINCT core_outbox.lane_of(unnest($1::text[])) AS lane ORDER BY lane \
    ON CONFLICT DO NOTHING";
const ANY_EDIT_AT_ALL: &str = "SELECT EXISTS (SELECT FROM core_outbox.pending_edit)";
const EDITED: &str = concat!(
    include_str!("sql/edits.sql"),
    include_str!("sql/undecided.sql"),
    "AND e.id > $3 ORDER BY e.id LIMIT $2"
);
/// Ends statements that make cursors for lanes `named` by messages. Only for lanes with a parcel: a parcel is
/// committed with its messages, so it is there by now, and a cursor in an outbox without parcels would hide that
/// a restore left the ledger out.
macro_rules! that_have_parcels {
    () => {
        "WHERE EXISTS (SELECT FROM core_outbox.parcel p WHERE p.lane = named.lane) \
         ORDER BY lane ON CONFLICT DO NOTHING"
    };
}
pub(super) use that_have_parcels;

/// A lane that no relay has served has no cursor, and could not be locked. $1 lanes.
const MAKE_CURSORS_OF: &str = concat!(
    "INSERT INTO core_outbox.lane_cursor (lane) SELECT lane FROM (
         SELECT DISTINCT unnest($1::bigint[]) AS lane
     ) AS named ",
    that_have_parcels!()
);
/// $1 lanes.
const LOCK_LANE_NUMBERS: &str =
    "SELECT lane FROM core_outbox.lane_cursor WHERE lane = ANY ($1) ORDER BY lane FOR UPDATE";
pub(super) const UNPACK_NAMED: &str = concat!(
    include_str!("sql/unpack_named.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*) FROM gone"
);
pub(super) const FOLLOW: &str = include_str!("sql/follow.sql");
const CLOSE_LEFT_OUT: &str = include_str!("sql/close_left_out.sql");

/// How many edits are followed in one transaction.
const EDITS: i64 = 1_000;
/// For how long a take follows them: lanes without any wait for it too.
pub(super) const TAKE_FOLLOWS_FOR: Duration = Duration::from_millis(250);
/// The most stored bytes of content that are taken in a hurry.
const FEW_BYTES: i64 = 16_384;

/// Which parcels of their lanes are taken.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Which {
    /// All above the marks, if they are few; nothing is looked for besides.
    Few,
    /// Those above the marks, which nobody has had.
    Fresh,
    /// Those as well that committed after younger ones had been taken. They lie among what is in flight.
    Late,
}

impl Which {
    fn statement(self) -> &'static str {
        match self {
            Self::Few => TAKE_FEW,
            Self::Fresh => TAKE_PARCELS,
            Self::Late => SWEEP,
        }
    }

    /// What reads it.
    fn reading(self) -> &'static str {
        match self {
            Self::Few => READ_FEW,
            Self::Fresh | Self::Late => READ_PARCELS,
        }
    }
}

/// Which changes by hand are followed.
#[derive(Clone, Copy)]
pub(super) enum Edits<'a> {
    All,
    InLanes(&'a [Quota]),
    OfMessages(&'a [Id<&'a MessageId>]),
}

/// What the statements of a take are given.
struct Wish<'a> {
    token: Token,
    worker: &'a str,
    relay: Uuid,
    integrations: Vec<&'a str>,
    rows: Vec<i32>,
    rows_max: i64,
    /// As many as every lane has room for.
    few_rows: i64,
    bytes_max: i64,
    few_bytes: i64,
    look_at: i32,
    looks_for_due: bool,
    payload_limit: i32,
}

impl<'a> Wish<'a> {
    fn of(take: &'a Take<'_>, token: Token, looks_for_due: bool, lanes: &Lanes) -> Self {
        let rows: Vec<i32> = take.quotas.iter().map(|quota| clamp_i32(quota.rows)).collect();
        let (rows_max, bytes_max) = (clamp_i64(take.rows), clamp_i64(take.bytes));
        Self {
            token,
            worker: take.worker,
            relay: take.relay.0,
            integrations: take.quotas.iter().map(|quota| quota.integration.as_str()).collect(),
            look_at: lanes.look_at(rows.iter().copied().max().unwrap_or(0)),
            few_rows: rows.iter().map(|rows| i64::from(*rows)).min().unwrap_or(0).min(rows_max),
            rows,
            rows_max,
            bytes_max,
            few_bytes: FEW_BYTES.min(bytes_max),
            looks_for_due,
            payload_limit: clamp_i32(take.payload_limit),
        }
    }

    /// What the statement that claims is given.
    fn taking(&self, which: Which) -> Vec<&(dyn ToSql + Sync)> {
        let mut given: Vec<&(dyn ToSql + Sync)> =
            vec![&self.token.0, &self.worker, &self.relay, &self.integrations];
        match which {
            Which::Few => given.extend([&self.few_rows as &(dyn ToSql + Sync), &self.few_bytes]),
            Which::Fresh | Which::Late => given.extend([
                &self.rows as &(dyn ToSql + Sync),
                &self.rows_max,
                &self.bytes_max,
                &self.look_at,
                &self.looks_for_due,
            ]),
        }
        given
    }

    /// What the statement that reads is given.
    fn reading(&self, which: Which) -> Vec<&(dyn ToSql + Sync)> {
        match which {
            Which::Few => vec![&self.token.0, &self.payload_limit],
            Which::Fresh | Which::Late => vec![&self.payload_limit, &self.token.0],
        }
    }
}

/// What a step of a round trip answers.
enum Answer {
    Nothing,
    Rows(Vec<Row>),
    Read(Result<Option<Read>, Error>),
}

/// A claim on parcels, and how many messages they name.
#[derive(Clone, Copy)]
pub(super) struct HeldParcels {
    pub(super) token: Token,
    pub(super) messages: usize,
}

/// What a take found in parcels, and what it saw besides.
#[derive(Default)]
pub(super) struct FoundParcels {
    /// The claim that was made.
    pub(super) claim: Option<HeldParcels>,
    /// What it holds, where that was read in the same round trip.
    pub(super) read: Option<Read>,
    /// The lanes that have more than there is room for, by their place among the quotas. Nobody has looked
    /// for their late parcels.
    pub(super) full_lanes: Vec<usize>,
    /// Nothing was taken of some lane, since not even its first parcel fits: it is to be unpacked.
    pub(super) is_one_too_large: bool,
    /// Parcels came late: some were taken, or are to be looked for.
    pub(super) has_late: bool,
    /// Somebody has changed messages of these lanes by hand.
    pub(super) has_edits: bool,
    /// There may be deliveries that are due.
    pub(super) has_due: bool,
}

impl PgStore {
    /// Makes sure that every lane has its cursor.
    pub(super) async fn know_lanes(
        &self,
        client: &Connection,
        quotas: &[Quota],
    ) -> StoreResult<()> {
        let unknown = self.lanes.unknown(quotas);
        if unknown.is_empty() {
            return Ok(());
        }
        let doing = "preparing to take from a lane";
        let statement =
            client.prepare_cached(MAKE_CURSORS).await.map_err(|e| store_error(doing, e))?;
        transact(client, BEGIN, &statement, &[&unknown])
            .await
            .map_err(|e| store_error(doing, e))?;
        self.lanes.learn(unknown);
        Ok(())
    }

    /// Gives back a claim on parcels of which nothing was handed over: with the claim gone, they are parcels
    /// that nobody has had. Otherwise nobody would know of it until it is a claim time old.
    pub(super) async fn let_go(&self, token: Token) {
        let gone = async {
            let client = self.connection().await?;
            let failed = |error| store_error("giving back a claim", error);
            let statement = client.prepare_cached(LET_GO).await.map_err(failed)?;
            transact(&client, BEGIN, &statement, &[&token.0]).await.map_err(failed)
        };
        match gone.await {
            Ok(claims) if claims.is_empty() => {}
            Ok(_) => self.lanes.expect_late(),
            Err(error) => tracing::debug!(%error, "a claim stays until it expires"),
        }
    }

    /// Takes parcels under `token`, and `reads` what they name in the same round trip. Content that cannot be
    /// read so is left to whoever reads with caution. Where this fails, parcels may be claimed all the same: see
    /// [`let_go`](Self::let_go).
    pub(super) async fn take_parcels(
        &self,
        client: &Connection,
        take: &Take<'_>,
        token: Token,
        (which, looks_for_due): (Which, bool),
        reads: bool,
    ) -> Result<FoundParcels, Error> {
        let wish = Wish::of(take, token, looks_for_due, &self.lanes);
        let began = Instant::now();
        let (claimed, read) = match claim(client, &wish, take, which, reads).await {
            Err(error) if concerns_content(&error) => {
                // It took longer than a take may. With caution it has more time.
                self.caution.begin();
                return Err(error);
            }
            claimed => claimed?,
        };
        let Some(row) = claimed.first() else { return Ok(FoundParcels::default()) };
        let (parcels, messages): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let mut found = match which {
            Which::Few => FoundParcels::default(),
            Which::Fresh | Which::Late => self.besides(row)?,
        };
        if parcels > 0 {
            if which == Which::Fresh {
                self.lanes.took(parcels, messages);
            }
            let messages = usize::try_from(messages).unwrap_or(0);
            found.claim = Some(HeldParcels { token: wish.token, messages });
            found.read = self.caution.unless_content(read, began)?;
        }
        Ok(found)
    }

    /// What a take saw besides the parcels it took.
    fn besides(&self, row: &Row) -> Result<FoundParcels, Error> {
        if row.try_get("lacks_cursor")? {
            self.lanes.forget();
        }
        let places: Vec<i64> = row.try_get("full_lanes")?;
        Ok(FoundParcels {
            claim: None,
            read: None,
            full_lanes: places.iter().filter_map(|n| usize::try_from(n - 1).ok()).collect(),
            is_one_too_large: row.try_get("is_one_too_large")?,
            has_late: row.try_get("has_late")?,
            has_edits: row.try_get("has_edits")?,
            has_due: row.try_get("has_due")?,
        })
    }

    /// What a claim on parcels holds that was read, or not yet: that is done with caution.
    pub(super) async fn read_parcels(
        &self,
        client: &mut Connection,
        take: &Take<'_>,
        claim: HeldParcels,
        read: Option<Read>,
    ) -> StoreResult<Read> {
        let read = match read {
            Some(mut read) => read.add_missing(client, claim).await.map(|()| read),
            None => read_parcels(client, take, &self.caution, claim).await,
        };
        let read = read.map_err(|e| store_error("reading fresh messages", e))?;
        self.set_aside(client, read).await
    }

    /// Gives back what was read beyond the limit, and gives what is not to be delivered out of its parcel
    /// its delivery.
    async fn set_aside(&self, client: &mut Connection, mut read: Read) -> StoreResult<Read> {
        self.give_back_excess(client, &mut read).await?;
        let mut left_out: HashMap<Token, Vec<Id>> = HashMap::new();
        for (id, token) in read.take_left_out() {
            left_out.entry(token).or_default().push(Id(id));
        }
        for (token, ids) in left_out {
            let looked = self.vanished.look_for(client, &ids).await;
            looked.map_err(|e| store_error("looking for messages that are gone", e))?;
            let no_edits: Vec<i64> = Vec::new();
            let steps: [Step<'_>; 2] = [
                (FOLLOW, &[&ids, &false, &no_edits, &no_edits]),
                (CLOSE_LEFT_OUT, &[&token.0, &ids]),
            ];
            one_by_one(client, BEGIN, &steps)
                .await
                .map_err(|e| store_error("setting messages aside", e))?;
        }
        Ok(read)
    }

    /// Makes deliveries of fresh messages: for lanes that are claimed row by row, and of parcels that are
    /// larger than the room there is. Whether there was a parcel.
    pub(super) async fn unpack(
        &self,
        client: &Connection,
        quotas: &[Quota],
    ) -> Result<bool, Error> {
        let integrations: Vec<&str> =
            quotas.iter().map(|quota| quota.integration.as_str()).collect();
        let rows: Vec<i32> = quotas.iter().map(|quota| clamp_i32(quota.rows)).collect();
        let steps: [Step<'_>; 2] =
            [(LOCK_LANES, &[&integrations]), (UNPACK, &[&integrations, &rows])];
        let unpacked = one_by_one(client, BEGIN, &steps).await?;
        let Some(row) = unpacked.first() else { return Ok(false) };
        if row.try_get(1)? {
            self.lanes.forget();
        }
        Ok(row.try_get::<_, i64>(0)? > 0)
    }

    /// Follows changes by hand in one step after another, of which none begins after so long; how many. What
    /// is left is followed the next time.
    pub(super) async fn follow_edits(
        &self,
        client: &Connection,
        which: Edits<'_>,
        within: Duration,
    ) -> Result<u64, Error> {
        let (integrations, messages) = match which {
            Edits::InLanes(quotas) => {
                (Some(quotas.iter().map(|one| one.integration.as_str()).collect::<Vec<_>>()), None)
            }
            Edits::OfMessages(ids) => (None, Some(ids)),
            Edits::All => (None, None),
        };
        let find = client.prepare_cached(EDITED).await?;
        let began = Instant::now();
        let (mut after, mut followed) = (0_i64, 0);
        loop {
            let params: [&(dyn ToSql + Sync); 4] = [&integrations, &EDITS, &after, &messages];
            let edits = transact(client, BEGIN, &find, &params).await?;
            let column = |index| edits.iter().map(move |row| row.try_get::<_, i64>(index));
            let numbers: Vec<i64> = column(0).collect::<Result<_, _>>()?;
            let lanes: Vec<i64> = column(1).collect::<Result<_, _>>()?;
            let ids: Vec<Id> = edits.iter().map(|row| row.try_get(2)).collect::<Result<_, _>>()?;
            let Some(last) = numbers.last() else { return Ok(followed) };
            after = *last;
            let steps: [Step<'_>; 4] = [
                (MAKE_CURSORS_OF, &[&lanes]),
                (LOCK_LANE_NUMBERS, &[&lanes]),
                (UNPACK_NAMED, &[&ids, &lanes]),
                (FOLLOW, &[&ids, &true, &lanes, &numbers]),
            ];
            let over = one_by_one(client, BEGIN, &steps).await?;
            let over: i64 = over.first().map_or(Ok(0), |row| row.try_get(0))?;
            followed += over.unsigned_abs();
            if began.elapsed() >= within {
                return Ok(followed);
            }
        }
    }

    /// The same, where there are changes by hand at all.
    pub(super) async fn follow_any_edits(
        &self,
        client: &Connection,
        which: Edits<'_>,
        within: Duration,
    ) -> Result<u64, Error> {
        let row = client.query_one(ANY_EDIT_AT_ALL, &[]).await?;
        if row.try_get(0)? { self.follow_edits(client, which, within).await } else { Ok(0) }
    }

    /// Raises the low-water marks.
    pub(super) async fn rise(&self, client: &Connection, quotas: &[Quota]) -> Result<(), Error> {
        let integrations: Vec<&str> =
            quotas.iter().map(|quota| quota.integration.as_str()).collect();
        let steps: [Step<'_>; 2] = [(LOCK_LANES, &[&integrations]), (RISE, &[&integrations])];
        one_by_one(client, BEGIN, &steps).await?;
        Ok(())
    }
}

/// What claiming answered, and what was read.
type Claimed = (Vec<Row>, Result<Option<Read>, Error>);

/// Runs the statements of a take in one round trip: one transaction that claims, and one that reads. Nothing
/// large is returned while lanes are locked: a client that stops reading would keep them so.
async fn claim(
    client: &Connection,
    wish: &Wish<'_>,
    take: &Take<'_>,
    which: Which,
    reads: bool,
) -> Result<Claimed, Error> {
    let claim = client.prepare_cached(which.statement()).await?;
    // A cursor that somebody else makes between the lock and the look would not be locked.
    let first = match which {
        Which::Few | Which::Fresh => Vec::new(),
        Which::Late => vec![
            client.prepare_cached(MAKE_CURSORS).await?,
            client.prepare_cached(LOCK_LANES).await?,
        ],
    };
    let read = client.prepare_cached(which.reading()).await?;
    let (taking, reading) = (wish.taking(which), wish.reading(which));
    let say =
        |sql| async move { client.batch_execute(sql).await.map(|()| Answer::Nothing) }.boxed();
    // Where a session has the settings of a take, a single statement is a transaction of its own.
    let is_set = client.is_for_taking();
    let begin = match (is_set, which) {
        (true, Which::Few | Which::Fresh) => None,
        (true, Which::Late) => Some(BEGIN_SWEEPING),
        (false, _) => Some(BEGIN_CLAIMING),
    };
    let mut steps: Vec<BoxFuture<'_, Result<Answer, Error>>> = Vec::new();
    steps.extend(begin.map(say));
    for statement in &first {
        let done = async { client.run(statement, &[&wish.integrations]).await };
        steps.push(done.map(|rows| rows.map(|_| Answer::Nothing)).boxed());
    }
    steps.push(async { client.run(&claim, &taking).await.map(Answer::Rows) }.boxed());
    steps.extend(begin.map(|_| say(COMMIT)));
    if reads {
        steps.extend((!is_set).then(|| say(BEGIN_TAKING)));
        let leaves_out = which == Which::Few;
        let read = read_fresh(client, &read, &reading, wish.token, take, leaves_out);
        steps.push(read.map(|read| Ok(Answer::Read(read))).boxed());
        steps.extend((!is_set).then(|| say(COMMIT)));
    }
    let mut answer: Claimed = (Vec::new(), Ok(None));
    for step in in_order(steps).await {
        match step? {
            Answer::Nothing => {}
            Answer::Rows(rows) => answer.0 = rows,
            Answer::Read(read) => answer.1 = read,
        }
    }
    Ok(answer)
}

/// One statement of a transaction, and its parameters.
pub(super) type Step<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// Runs statements in one transaction and one round trip; what the last of them answers. Locks
/// come first, as statements of their own: one that waited for a lock still reads its old snapshot.
pub(super) async fn one_by_one(
    client: &Connection,
    begin: &str,
    statements: &[Step<'_>],
) -> Result<Vec<Row>, Error> {
    let mut prepared = Vec::with_capacity(statements.len());
    for (sql, params) in statements {
        prepared.push((client.prepare_cached(sql).await?, *params));
    }
    let nothing = |()| Vec::new();
    let mut steps = vec![async { client.batch_execute(begin).await.map(nothing) }.boxed()];
    for (statement, params) in &prepared {
        steps.push(async { client.run(statement, params).await }.boxed());
    }
    steps.push(async { client.batch_execute(COMMIT).await.map(nothing) }.boxed());
    let mut answers: Vec<Vec<Row>> = in_order(steps).await.into_iter().collect::<Result<_, _>>()?;
    answers.pop();
    Ok(answers.pop().unwrap_or_default())
}

fn clamp_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
