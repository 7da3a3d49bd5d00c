//! Lists of messages, whose cost follows what is shown or what is open, and not the history.
//!
//! What is open is found in the ledger: numbers first, newest first, and then the messages of these numbers
//! that the filter finds, until there are enough.

use super::columns;
use super::literal::{self, filled};
use super::row::record;
use super::{LIST, MySqlStore, fetch};
use postroom_core::{Filter, Record, Status};
use sqlx::{Error, MySql, QueryBuilder, Row as _};

const OPEN: &str = include_str!("sql/list_open.sql");
const DEAD: &str = include_str!("sql/list_dead.sql");

/// How many numbers are read at first. Where few of them are shown, four times as many each time.
const NUMBERS: usize = 1_000;

impl MySqlStore {
    /// The messages of a filter, newest first.
    pub(super) async fn list_messages(&self, filter: &Filter) -> Result<Vec<Record>, Error> {
        let Some(numbers) = open_numbers(filter.status) else {
            return self.matching(filter, None, filter.limit).await;
        };
        // An event is found by its key.
        if filter.event_id.is_some() {
            return self.matching(filter, None, filter.limit).await;
        }
        let (mut found, mut below, mut rows) = (Vec::new(), filter.before, NUMBERS);
        while found.len() < filter.limit {
            let page = self.open_page(numbers, below, rows).await?;
            let Some(last) = page.last() else { break };
            below = Some(*last);
            for part in page.chunks(LIST) {
                let room = filter.limit.saturating_sub(found.len());
                if room > 0 {
                    found.extend(self.matching(filter, Some(part), room).await?);
                }
            }
            rows = rows.saturating_mul(4);
        }
        Ok(found)
    }

    /// Numbers of open messages below one, newest first.
    async fn open_page(
        &self,
        sql: &str,
        below: Option<i64>,
        rows: usize,
    ) -> Result<Vec<i64>, Error> {
        let (below, rows) = (below.unwrap_or(i64::MAX).to_string(), rows.to_string());
        let sql = filled(sql, &[("below", &below), ("rows", &rows)]);
        let mut connection = self.pool.acquire().await?;
        let page = fetch(&mut connection, sql).await?;
        connection.answered();
        page.iter().map(|row| row.try_get(0)).collect()
    }

    /// The messages that a filter finds, among these numbers or among all.
    async fn matching(
        &self,
        filter: &Filter,
        numbers: Option<&[i64]>,
        rows: usize,
    ) -> Result<Vec<Record>, Error> {
        let mut query = QueryBuilder::new(format!(
            "SELECT {} FROM outbox_messages AS m WHERE TRUE",
            columns::RECORD
        ));
        if let Some(numbers) = numbers {
            let numbers = literal::numbers(numbers.iter().copied());
            query.push(format!(" AND m.seq IN ({numbers})"));
        }
        conditions(&mut query, filter);
        query.push(" ORDER BY m.seq DESC LIMIT ");
        query.push_bind(i64::try_from(rows).unwrap_or(i64::MAX));
        let rows = query.build().persistent(false).fetch_all(&self.pool).await?;
        rows.iter().map(record).collect()
    }
}

/// The statement that finds the numbers of open messages; `None` where what is not open may be meant.
fn open_numbers(status: Option<Status>) -> Option<&'static str> {
    match status? {
        Status::Sent => None,
        Status::Dead => Some(DEAD),
        Status::Pending | Status::Failed | Status::Claimed => Some(OPEN),
    }
}

/// Where all messages of a status are looked for at once, as `m`.
pub(super) fn open_ones(status: Option<Status>) -> String {
    let Some(sql) = open_numbers(status) else { return "outbox_messages AS m".to_owned() };
    let (all, most) = (i64::MAX.to_string(), u64::MAX.to_string());
    let numbers = filled(sql, &[("below", &all), ("rows", &most)]);
    format!("({numbers}) AS open STRAIGHT_JOIN outbox_messages AS m ON m.seq = open.seq")
}

/// What a filter asks of `outbox_messages AS m`.
pub(super) fn conditions(query: &mut QueryBuilder<MySql>, filter: &Filter) {
    if let Some(status) = filter.status {
        query.push(" AND m.status = ").push_bind(status.as_str());
    }
    let texts = [
        ("integration_type", &filter.integration),
        ("tenant_id", &filter.tenant),
        ("event_type", &filter.event_type),
        ("correlation_id", &filter.correlation),
        ("source_event_id", &filter.event_id),
        ("source_stream_id", &filter.stream),
    ];
    for (column, wanted) in texts {
        if let Some(wanted) = wanted {
            query.push(format!(" AND m.{column} = ")).push_bind(wanted.clone());
        }
    }
    if let Some(since) = filter.since {
        query.push(" AND m.created_at >= ").push_bind(since.naive_utc());
    }
    if let Some(until) = filter.until {
        query.push(" AND m.created_at < ").push_bind(until.naive_utc());
    }
    if let Some(before) = filter.before {
        query.push(" AND m.seq < ").push_bind(before);
    }
    if let Some(error) = &filter.error {
        query.push(" AND LOCATE(LOWER(").push_bind(error.clone());
        query.push("), LOWER(m.last_error)) > 0");
    }
}
