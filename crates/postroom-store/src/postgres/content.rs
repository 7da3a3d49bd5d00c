//! Reading what was taken, whatever its content turns out to be.
//!
//! Usually one statement claims and reads. Before a row of some size becomes text, its length is
//! estimated (`growth.rs`); that costs more than the text, so smaller rows are read as they are.
//! When the statement fails because of some row's content, or takes suspiciously long, rows are
//! claimed first and read after that, all with an estimate, and apart from each other where reading
//! still fails. What cannot be read comes with its fault, and holds up nobody.

use super::PgStore;
use super::caution::Caution;
use super::connection::{Connection, Prepared};
use super::error::store_error;
use super::ids::{Id, id};
use super::parcels::HeldParcels;
use super::relays::give_up;
use super::row::{TakenRow, fresh, lacks_content, taken};
use super::settle;
use super::transaction::{BEGIN, BEGIN_CLAIMING, BEGIN_TAKING, COMMIT, in_order, transact};
use chrono::{DateTime, Utc};
use futures_util::{FutureExt, TryStreamExt};
use postroom_core::{
    ContentFault, Fate, Fence, MessageId, Settlement, StoreResult, Take, Token, Verdict,
};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

/// Follows a claim, and reads it.
macro_rules! content {
    () => {
        concat!(
            include_str!("sql/content.sql"),
            "CASE t.caution WHEN 0 THEN o.payload::text WHEN 1 THEN ",
            $crate::postgres::growth::text_within!("o.payload", "$1::int", "NULL"),
            " END AS payload_text, CASE t.caution WHEN 0 THEN o.headers::text WHEN 1 THEN ",
            $crate::postgres::growth::text_within!("o.headers", "greatest($1::int, 65536)", "NULL"),
            " END AS headers_text",
            include_str!("sql/content_of.sql")
        )
    };
}
pub(super) use content;

const READ_CLAIMED: &str = concat!(include_str!("sql/read_claimed.sql"), content!());
const NAMED_BY_PARCELS: &str = include_str!("sql/named_by_parcels.sql");

/// A column of a message in a parcel as text, as far as it is within `$limit`. Of 1 kB that is not
/// compressed PostgreSQL makes 8 MB at most: such text is made and sent without a look at its length, which
/// would cost a subquery for each message. What is too long all the same is left out when it has come.
macro_rules! fresh_text {
    ($column:literal, $limit:literal) => {
        concat!(
            "CASE WHEN core_outbox.content_bytes(m.payload, m.headers) <= 1024 \
             AND pg_column_compression(",
            $column,
            ") IS NULL THEN ",
            $column,
            "::text ELSE (SELECT CASE WHEN octet_length(made.text) <= ",
            $limit,
            " THEN made.text END FROM (SELECT CASE \
             WHEN core_outbox.content_bytes(m.payload, m.headers) <= 16384 \
             AND pg_column_compression(",
            $column,
            ") IS NULL THEN ",
            $column,
            "::text ELSE ",
            $crate::postgres::growth::text_within!($column, $limit, "NULL"),
            " END AS text OFFSET 0) AS made) END"
        )
    };
}
/// The columns of a message that a parcel names.
macro_rules! fresh {
    ($payload:expr, $headers:expr) => {
        concat!(
            include_str!("sql/fresh.sql"),
            $payload,
            " AS payload, ",
            $headers,
            " AS headers",
            include_str!("sql/fresh_of.sql")
        )
    };
}
pub(super) const READ_PARCELS: &str = concat!(
    include_str!("sql/read_parcels.sql"),
    fresh!(
        fresh_text!("m.payload", "$1::int"),
        fresh_text!("m.headers", "greatest($1::int, 65536)")
    ),
    include_str!("sql/read_parcels_of.sql")
);

/// The same for a few messages. Nothing is estimated here, since that would have to be set up each time: what is
/// larger than 16 kB when it is unpacked is left out, and so is what turns out to be longer than `$limit`.
macro_rules! short_text {
    ($column:literal, $limit:literal) => {
        concat!(
            "CASE WHEN pg_column_size(",
            $column,
            " #> '{}') <= 1024 THEN ",
            $column,
            "::text WHEN pg_column_size(",
            $column,
            " #> '{}') <= 16384 THEN CASE WHEN octet_length(",
            $column,
            "::text) <= ",
            $limit,
            " THEN ",
            $column,
            "::text END END"
        )
    };
}
pub(super) const READ_FEW: &str = concat!(
    include_str!("sql/read_few.sql"),
    fresh!(
        short_text!("m.payload", "$2::int"),
        short_text!("m.headers", "greatest($2::int, 65536)")
    ),
    include_str!("sql/read_few_of.sql")
);

/// How carefully `content!()` reads; 0 is as it is.
const ESTIMATE_FIRST: i32 = 1;
const WITHOUT_CONTENT: i32 = 2;

/// A take that lasts longer than this, and found something that is too large, made large texts.
const SUSPICIOUSLY_LONG: Duration = Duration::from_millis(500);

/// How often the bytes that were asked for may be read before the rest is given back: rows are
/// counted by their size in the table, which is an estimate.
const ESTIMATE_OFF_BY: usize = 4;

/// The same claim, followed by its messages or not.
pub(super) struct Claiming {
    pub(super) reading: &'static str,
    pub(super) unread: &'static str,
}

/// What was claimed and read.
#[derive(Default)]
pub(super) struct Read {
    pub(super) rows: Vec<(TakenRow, Token)>,
    /// Claimed, and more than may be held in memory.
    excess: Vec<(Token, Verdict)>,
    bytes: usize,
}

impl PgStore {
    /// Claims and reads; what is beyond the limit in bytes is given back.
    pub(super) async fn claim_and_read(
        &self,
        client: &mut Connection,
        take: &Take<'_>,
        doing: &str,
        claiming: &Claiming,
        params: &[&(dyn ToSql + Sync)],
    ) -> StoreResult<Read> {
        let read = read(client, take, &self.caution, claiming, params).await;
        let mut read = read.map_err(|e| store_error(doing, e))?;
        self.give_back_excess(client, &mut read).await?;
        Ok(read)
    }

    /// Gives back what was claimed beyond the limit in bytes.
    pub(super) async fn give_back_excess(
        &self,
        client: &mut Connection,
        read: &mut Read,
    ) -> StoreResult<()> {
        if !read.excess.is_empty() {
            self.caution.rows_fit(read.rows.len());
            let mut by_token: HashMap<Token, Vec<Verdict>> = HashMap::new();
            for (token, verdict) in read.excess.drain(..) {
                by_token.entry(token).or_default().push(verdict);
            }
            let given_back: Vec<Settlement> = by_token
                .into_iter()
                .map(|(token, verdicts)| Settlement {
                    fence: Fence::Claim(token),
                    verdicts,
                    finished: false,
                })
                .collect();
            settle::settle(client, &given_back, &self.recording).await?;
        }
        Ok(())
    }
}

async fn read(
    client: &Connection,
    take: &Take<'_>,
    caution: &Caution,
    claiming: &Claiming,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Read, Error> {
    if !caution.is_on() {
        let statement = client.prepare_cached(claiming.reading).await?;
        let began = Instant::now();
        match stream(client, BEGIN_TAKING, &statement, params, take, 0).await {
            Ok(read) => {
                caution.suspect(&read, began);
                return Ok(read);
            }
            Err(error) if concerns_content(&error) => caution.begin(),
            Err(error) => return Err(error),
        }
    }
    let statement = client.prepare_cached(claiming.unread).await?;
    let rows = transact(client, BEGIN_CLAIMING, &statement, params).await?;
    let read = read_carefully(client, take, caution, &rows, false).await;
    if read.is_err() {
        // Nothing was handed over. Otherwise nobody would know of the claims until they are a claim time old.
        let claims: Result<HashSet<Uuid>, _> = rows.iter().map(|row| row.try_get(3)).collect();
        let claims: Vec<Uuid> = claims?.into_iter().collect();
        if let Err(error) = give_up(client, take.relay, &claims).await {
            tracing::debug!(%error, "claims that could not be read stay until they expire");
        }
    }
    read
}

/// Reads what a claim on parcels holds, carefully.
pub(super) async fn read_parcels(
    client: &Connection,
    take: &Take<'_>,
    caution: &Caution,
    claim: HeldParcels,
) -> Result<Read, Error> {
    let rows = named_by_parcels(client, claim).await?;
    read_carefully(client, take, caution, &rows, true).await
}

/// The messages that a claim on parcels names.
async fn named_by_parcels(client: &Connection, claim: HeldParcels) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(NAMED_BY_PARCELS).await?;
    transact(client, BEGIN_CLAIMING, &statement, &[&claim.token.0]).await
}

impl Read {
    /// Whether all messages of a claim on parcels were read and are to be delivered.
    pub(super) fn is_whole(&self, claim: HeldParcels) -> bool {
        let is_message = |(row, _): &(TakenRow, Token)| matches!(row, TakenRow::Message(..));
        self.rows.len() == claim.messages
            && self.excess.is_empty()
            && self.rows.iter().all(is_message)
    }

    /// Adds the messages that a claim on parcels names and reading did not find: they are gone, or were
    /// closed by hand. Asks for them only when some are missing.
    pub(super) async fn add_missing(
        &mut self,
        client: &Connection,
        claim: HeldParcels,
    ) -> Result<(), Error> {
        if self.rows.len() + self.excess.len() >= claim.messages {
            return Ok(());
        }
        let read: HashSet<&MessageId> = self
            .rows
            .iter()
            .map(|(row, _)| row.id())
            .chain(self.excess.iter().map(|(_, verdict)| &verdict.id))
            .collect();
        let mut missing = Vec::new();
        for row in named_by_parcels(client, claim).await? {
            let claimed = Claimed::of(&row, true)?;
            if !read.contains(&claimed.message_id) {
                let orphan = TakenRow::Orphan(claimed.message_id);
                missing.push((orphan, Token(claimed.claim)));
            }
        }
        self.rows.extend(missing);
        Ok(())
    }
}

/// Reads what is claimed with an estimate first.
async fn read_carefully(
    client: &Connection,
    take: &Take<'_>,
    caution: &Caution,
    rows: &[Row],
    is_fresh: bool,
) -> Result<Read, Error> {
    let mut claimed: Vec<Claimed> =
        rows.iter().map(|row| Claimed::of(row, is_fresh)).collect::<Result<_, _>>()?;
    claimed.sort_unstable_by(|one, other| {
        (one.due_at, &one.message_id).cmp(&(other.due_at, &other.message_id))
    });
    let read = read_claimed(client, take, claimed).await?;
    if read.excess.is_empty() {
        caution.ease();
    }
    Ok(read)
}

/// A message that is claimed, and not read yet.
struct Claimed {
    message_id: MessageId,
    rescues: i32,
    due_at: DateTime<Utc>,
    claim: Uuid,
    dispatch: i32,
    lane: i64,
    is_fresh: bool,
}

impl Claimed {
    fn of(row: &Row, is_fresh: bool) -> Result<Self, Error> {
        Ok(Self {
            message_id: id(row, 0)?,
            rescues: row.try_get(1)?,
            due_at: row.try_get(2)?,
            claim: row.try_get(3)?,
            dispatch: row.try_get(4)?,
            lane: row.try_get(5)?,
            is_fresh,
        })
    }

    /// Its number is not known here, and nobody asks for it.
    fn given_back(&self) -> (Token, Verdict) {
        (Token(self.claim), Verdict { seq: 0, id: self.message_id.clone(), fate: Fate::Released })
    }
}

/// Reads what is claimed, in halves where that fails, down to the row that makes it fail.
async fn read_claimed(
    client: &Connection,
    take: &Take<'_>,
    claimed: Vec<Claimed>,
) -> Result<Read, Error> {
    let mut read = Read::default();
    let mut parts = vec![claimed];
    while let Some(mut part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        if read.is_full(take) {
            read.excess.extend(part.iter().map(Claimed::given_back));
            continue;
        }
        match read_part(client, take, &part, ESTIMATE_FIRST, read.bytes).await {
            Ok(more) => read.add(more),
            Err(error) if !concerns_content(&error) => return Err(error),
            Err(_) if part.len() > 1 => {
                parts.push(part.split_off(part.len() / 2));
                parts.push(part);
            }
            Err(error) => {
                let mut more = read_part(client, take, &part, WITHOUT_CONTENT, read.bytes).await?;
                more.set_fault(&ContentFault::Unreadable { reason: reason(&error) });
                read.add(more);
            }
        }
    }
    Ok(read)
}

async fn read_part(
    client: &Connection,
    take: &Take<'_>,
    part: &[Claimed],
    caution: i32,
    bytes: usize,
) -> Result<Read, Error> {
    fn column<T>(part: &[Claimed], value: impl Fn(&Claimed) -> T) -> Vec<T> {
        part.iter().map(value).collect()
    }
    let statement = client.prepare_cached(READ_CLAIMED).await?;
    let params: [&(dyn ToSql + Sync); 9] = [
        &clamp_i32(take.payload_limit),
        &column(part, |one| Id(one.message_id.clone())),
        &column(part, |one| one.rescues),
        &column(part, |one| one.due_at),
        &column(part, |one| one.claim),
        &column(part, |one| one.dispatch),
        &column(part, |one| one.lane),
        &caution,
        &part.iter().any(|one| one.is_fresh),
    ];
    stream(client, BEGIN, &statement, &params, take, bytes).await
}

/// Runs a statement that reads messages, in a transaction of its own and one round trip. Rows are
/// taken one by one as they come: however many there are, no more than may be is kept. `bytes` were
/// read before.
async fn stream(
    client: &Connection,
    begin: &str,
    statement: &Prepared,
    params: &[&(dyn ToSql + Sync)],
    take: &Take<'_>,
    bytes: usize,
) -> Result<Read, Error> {
    let nothing = |()| Read::default();
    let rows = client.answer(async {
        let mut read = Read { bytes, ..Read::default() };
        let mut rows = pin!(client.stream(statement, params).await?);
        while let Some(row) = rows.try_next().await? {
            read.push(&row, take)?;
        }
        Ok(read)
    });
    let mut answers = in_order(vec![
        async { client.batch_execute(begin).await.map(nothing) }.boxed(),
        rows.boxed(),
        async { client.batch_execute(COMMIT).await.map(nothing) }.boxed(),
    ])
    .await
    .into_iter();
    answers.next().unwrap_or_else(|| Ok(Read::default()))?;
    let read = answers.next().unwrap_or_else(|| Ok(Read::default()))?;
    answers.next().unwrap_or_else(|| Ok(Read::default()))?;
    Ok(read)
}

/// Reads what a claim on parcels names, row by row, in a session or a transaction that takes. Nothing where
/// the statement is one that `leaves_out` content, and did.
pub(super) async fn read_fresh(
    client: &Connection,
    statement: &Prepared,
    params: &[&(dyn ToSql + Sync)],
    token: Token,
    take: &Take<'_>,
    leaves_out: bool,
) -> Result<Option<Read>, Error> {
    let read = async {
        let mut read = Some(Read::default());
        let mut rows = pin!(client.stream(statement, params).await?);
        while let Some(row) = rows.try_next().await? {
            if leaves_out && lacks_content(&row)? {
                read = None;
            }
            if let Some(read) = &mut read {
                read.add_row(fresh(&row, take)?, token, take);
            }
        }
        Ok(read)
    };
    client.answer(read).await
}

impl Caution {
    /// What was read; nothing where some row's content made that fail, and caution begins. It also does where
    /// that seems to have taken long.
    pub(super) fn unless_content(
        &self,
        read: Result<Option<Read>, Error>,
        began: Instant,
    ) -> Result<Option<Read>, Error> {
        match read {
            Err(error) if concerns_content(&error) => {
                self.begin();
                Ok(None)
            }
            Ok(Some(read)) => {
                self.suspect(&read, began);
                Ok(Some(read))
            }
            read => read,
        }
    }

    /// Begins where reading took suspiciously long, and something was too large.
    fn suspect(&self, read: &Read, began: Instant) {
        if began.elapsed() > SUSPICIOUSLY_LONG && read.has_fault() {
            self.begin();
        }
    }
}

impl Read {
    fn is_full(&self, take: &Take<'_>) -> bool {
        self.bytes > take.bytes.saturating_mul(ESTIMATE_OFF_BY)
    }

    fn push(&mut self, row: &Row, take: &Take<'_>) -> Result<(), Error> {
        let token = Token(row.try_get("token")?);
        self.add_row(taken(row, take)?, token, take);
        Ok(())
    }

    fn add_row(&mut self, row: TakenRow, token: Token, take: &Take<'_>) {
        if let TakenRow::Message(taken, _) = &row {
            let message = &taken.message;
            if self.is_full(take) {
                let (seq, id, fate) = (message.seq, message.id.clone(), Fate::Released);
                self.excess.push((token, Verdict { seq, id, fate }));
                return;
            }
            self.bytes += message.weight();
        }
        self.rows.push((row, token));
    }

    /// Takes out the messages that are not to be delivered, and returns their ids, with their claims.
    pub(super) fn take_left_out(&mut self) -> Vec<(MessageId, Token)> {
        let mut left_out = Vec::new();
        self.rows.retain(|(row, token)| match row {
            TakenRow::Message(..) => true,
            TakenRow::Orphan(id) | TakenRow::Elsewhere(id) => {
                left_out.push((id.clone(), *token));
                false
            }
        });
        left_out
    }

    fn add(&mut self, more: Self) {
        self.rows.extend(more.rows);
        self.excess.extend(more.excess);
        self.bytes = more.bytes;
    }

    fn set_fault(&mut self, fault: &ContentFault) {
        for (row, _) in &mut self.rows {
            if let TakenRow::Message(taken, _) = row {
                taken.fault = Some(fault.clone());
            }
        }
    }

    fn has_fault(&self) -> bool {
        self.rows.iter().any(|(row, _)| match row {
            TakenRow::Message(taken, _) => taken.fault.is_some(),
            TakenRow::Orphan(_) | TakenRow::Elsewhere(_) => false,
        })
    }
}

/// Whether some row's content may be why a statement failed: a text over 1 GB, no memory for it, a
/// value that has no text, a page that cannot be read, or [`BEGIN_TAKING`]'s limit.
pub(super) fn concerns_content(error: &Error) -> bool {
    let Some(code) = error.code() else { return false };
    matches!(code.code(), "53200" | "57014")
        || matches!(code.code().get(..2), Some("22" | "54" | "XX"))
}

/// Why a row cannot be read, without what the server says of its content.
fn reason(error: &Error) -> String {
    let code = error.code().map_or("", |code| code.code());
    format!("PostgreSQL answers with the error {code}")
}

pub(super) fn clamp_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
