//! `postroom messages tail`: what is delivered and what fails, live.
//!
//! No index knows when a message was last changed, since that would cost every delivery. So the
//! messages that come next are followed: the new ones, and those that are due soonest.

use crate::args::Tail;
use crate::commands::each::{Answer, Named, each_open};
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Colour};
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{Filter, Message, Record, Status, Store, StoreResult, with_causes};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many new messages, and how many that are due next, are followed at once.
const FOLLOWED: usize = 2_000;

/// The most messages that are followed.
const FOLLOWED_MAX: usize = 3 * FOLLOWED;

/// How far below the newest number is looked: numbers are given before transactions commit.
const OUT_OF_ORDER: i64 = 1_000;

/// How much earlier than its commit a change may say it was made.
const COMMIT_TAKES: TimeDelta = TimeDelta::seconds(2);

/// Looking may take this share of the time at most.
const SHARE: u32 = 4;

pub(super) async fn run(args: &Tail, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    let answers = each_open(&databases, async |store| {
        let filter = Filter { status: args.status, ..super::filter(&args.which, &*store).await? };
        let followed = Followed::begin(&*store).await?;
        Ok(Watched { store, filter, followed })
    })
    .await?;
    if answers.each.is_empty() {
        return answers.end();
    }
    if let Some(failed) = answers.failed() {
        eprintln!("not followed: {failed}");
    }
    let mut watched = answers.each;
    let mut shown = 0;
    loop {
        let began = Instant::now();
        for Answer { name, found } in &mut watched {
            let name = name.as_deref();
            let events = match found.followed.look(&*found.store).await {
                Ok(events) => events,
                // A database that goes away is news too: the next look tries again.
                Err(error) => {
                    let place = name.map_or_else(String::new, |name| format!("{name}: "));
                    eprintln!("{place}{}; trying again", with_causes(&error));
                    continue;
                }
            };
            for record in events.records.iter().filter(|record| found.filter.matches(record)) {
                if !output::print_live(&line(name, record, args.json))? {
                    return Ok(());
                }
                shown += 1;
                if args.count.is_some_and(|count| shown >= count) {
                    return Ok(());
                }
            }
            if events.is_partial {
                eprintln!("… more messages go through than can be followed");
            }
        }
        let pause = args.interval.max(began.elapsed() * SHARE);
        tokio::time::sleep(pause.min(Duration::from_secs(60))).await;
    }
}

/// An outbox that is followed.
struct Watched {
    store: Arc<dyn Store>,
    filter: Filter,
    followed: Followed,
}

/// What was seen of a message: another failure has another number of attempts.
type State = (String, u32);

/// The messages that are followed, by number.
#[derive(Default)]
struct Followed {
    known: BTreeMap<i64, State>,
    last_seq: i64,
    /// The look before, by the database's clock.
    looked_at: Option<DateTime<Utc>>,
}

/// What has happened since the look before.
struct Events {
    /// In the order in which it happened.
    records: Vec<Record>,
    /// Whether there may be more.
    is_partial: bool,
}

impl Followed {
    /// Notes what is there: nothing of it is news.
    async fn begin(store: &dyn Store) -> StoreResult<Self> {
        let mut followed = Self { last_seq: store.last_seq().await?, ..Self::default() };
        followed.look(store).await?;
        Ok(followed)
    }

    async fn look(&mut self, store: &dyn Store) -> StoreResult<Events> {
        let now = store.now().await?;
        let after = self.last_seq.saturating_sub(OUT_OF_ORDER);
        let upcoming = store.upcoming(after, FOLLOWED).await?;
        let new = upcoming.iter().filter(|seq| **seq > self.last_seq).count();
        let open = self.known.values().filter(|(status, _)| !is_settled(status)).count();
        let seqs: BTreeSet<i64> = self.known.keys().copied().chain(upcoming).collect();
        let seqs: Vec<i64> = seqs.into_iter().collect();
        let mut records = Vec::new();
        let mut settled = 0;
        let mut next = BTreeMap::new();
        for record in store.states(&seqs).await? {
            let seq = record.message.seq;
            let state = (record.status.clone(), record.message.attempts);
            let was_open = self.known.get(&seq).is_some_and(|(status, _)| !is_settled(status));
            settled += usize::from(was_open && is_settled(&record.status));
            if is_outcome(&record.status) && self.is_news(&record, &state) {
                records.push(record);
            }
            next.insert(seq, state);
        }
        self.last_seq = next.last_key_value().map_or(0, |(seq, _)| *seq).max(self.last_seq);
        self.keep(next);
        self.looked_at = Some(now);
        records.sort_by_key(|record| (record.updated_at, record.message.seq));
        // All that were followed have gone: others may have gone with them.
        let is_partial = new >= FOLLOWED || open >= FOLLOWED && settled == open;
        Ok(Events { records, is_partial })
    }

    /// Whether a message has come to this state since the look before.
    fn is_news(&self, record: &Record, state: &State) -> bool {
        let Some(looked_at) = self.looked_at else { return false };
        match self.known.get(&record.message.seq) {
            Some(known) => known != state,
            // It may have been so for long, and only comes into view.
            None => record.updated_at + COMMIT_TAKES >= looked_at,
        }
    }

    /// Follows what is not settled, and remembers what is new. Of too many, those that wait for
    /// longest are followed again when their turn comes.
    fn keep(&mut self, mut next: BTreeMap<i64, State>) {
        let recent = self.last_seq.saturating_sub(OUT_OF_ORDER);
        next.retain(|seq, (status, _)| *seq > recent || !is_settled(status));
        let open = next.iter().rev().filter(|(_, (status, _))| !is_settled(status));
        let surplus = next.len().saturating_sub(FOLLOWED_MAX);
        let forgotten: Vec<i64> = open.map(|(seq, _)| *seq).take(surplus).collect();
        for seq in forgotten {
            next.remove(&seq);
        }
        self.known = next;
    }
}

/// Whether an attempt ended so.
fn is_outcome(status: &str) -> bool {
    matches!(Status::parse(status), Some(Status::Sent | Status::Failed | Status::Dead))
}

/// Whether nothing more happens to it by itself.
fn is_settled(status: &str) -> bool {
    matches!(Status::parse(status), Some(Status::Sent | Status::Dead))
}

fn line(database: Option<&str>, record: &Record, is_json: bool) -> String {
    let message = &record.message;
    // What a message that was sent in the end failed of before is history.
    let error = record.last_error.as_deref().filter(|_| record.status != Status::Sent.as_str());
    if is_json {
        let object = json!({
            "at": record.updated_at,
            "status": record.status,
            "id": message.id,
            "integration": message.integration,
            "event_type": message.event_type,
            "event_id": message.event_id,
            "attempts": message.attempts,
            "error": error,
        });
        let line = serde_json::to_string(&Named { database, object });
        return line.unwrap_or_default() + "\n";
    }
    let status = format!("{:<6}", record.status);
    let place = database.map_or_else(String::new, |name| format!("{name}  "));
    let Message { id, integration, event_type, event_id, .. } = message;
    let Some(width) = output::terminal_width() else {
        let at = output::time(record.updated_at);
        let rest = format!(
            "{place}{integration}  {event_type}  {event_id}  {}",
            error.unwrap_or_default()
        );
        return format!("{at}  {status}  {id}  {}\n", output::printable(rest.trim_end()));
    };
    // Why it failed says more than which event it was.
    let last = error.unwrap_or(event_id);
    let rest = output::printable(&format!("{place}{integration}  {event_type}  {last}"));
    let at = record.updated_at.format("%H:%M:%S");
    let room = width.saturating_sub(format!("{at}  {status}  {id}  ").len());
    let rest = if rest.chars().count() > room {
        rest.chars().take(room.saturating_sub(1)).chain(['…']).collect()
    } else {
        rest
    };
    let colour = Colour::of(&record.status).filter(|_| output::wants_colour());
    let status = colour.map_or(status.clone(), |colour| colour.paint(&status));
    format!("{at}  {status}  {id}  {rest}\n")
}
