//! How core mode learns what the server refuses.
//!
//! To a message without a stream NATS answers only when it refuses it. The client passes that on
//! through a channel of its own, which drops what does not fit. So messages go in rounds, and
//! each round ends with a wish that the server cannot grant: that refusal comes by the same way,
//! behind all others of the round.

use super::classify::Failure;
use super::link::{Event, Events, Link};
use async_nats::{ServerError, Subject};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit, broadcast};

/// A subscription that there cannot be, since nothing may stand behind `>`. To a user who may
/// subscribe to inboxes the server says so without a line in its log.
const IMPOSSIBLE: &str = "_INBOX.>.postroom";

/// How many events fit into the client's channel.
const EVENTS_MAX: u64 = 128;

/// How many messages whose subject may be forbidden are under way at once on one connection. If
/// nobody waits for them any more, they and as many others still fit into the channel.
const UNPROVEN_MAX: usize = 50;

/// How many subjects are remembered as allowed.
const PROVEN_MAX: usize = 10_000;

/// What one connection has asked and heard.
pub(super) struct Rounds {
    /// How many wishes have been sent.
    asked: tokio::sync::Mutex<u64>,
    /// How many of them the server has refused.
    answers: AtomicU64,
    /// How many events of any kind have come.
    heard: AtomicU64,
    /// Whether it has ended, or says nothing reliable any more.
    is_over: AtomicBool,
    unproven: Semaphore,
    /// Subjects of which nothing was refused when they were last used.
    proven: Mutex<HashSet<String>>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            asked: tokio::sync::Mutex::default(),
            answers: AtomicU64::default(),
            heard: AtomicU64::default(),
            is_over: AtomicBool::default(),
            unproven: Semaphore::new(UNPROVEN_MAX),
            proven: Mutex::default(),
        }
    }
}

impl Rounds {
    /// Takes note of what the client says, and passes on what concerns messages.
    pub(super) fn hear(&self, event: async_nats::Event, to: &broadcast::Sender<Event>) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        let event = match event {
            async_nats::Event::ServerError(ServerError::Other(text)) if is_impossible(&text) => {
                Event::Answered(self.answers.fetch_add(1, Ordering::AcqRel) + 1)
            }
            async_nats::Event::ServerError(ServerError::Other(text)) => {
                forbidden_subject(&text).map_or(Event::Unclear, Event::Forbidden)
            }
            async_nats::Event::ServerError(_) => Event::Unclear,
            async_nats::Event::Disconnected | async_nats::Event::Closed => {
                self.give_up();
                Event::Lost
            }
            _ => return,
        };
        // Nobody may be listening.
        let _ = to.send(event);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// How many of these subjects, from the first on, make one round, and how many of those may
    /// turn out to be forbidden.
    fn measure<'a>(&self, subjects: impl Iterator<Item = &'a Subject>) -> (usize, usize) {
        let proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut len, mut unproven) = (0, 0);
        for subject in subjects {
            let is_proven = proven.contains(subject.as_str());
            if !is_proven && unproven == UNPROVEN_MAX {
                break;
            }
            len += 1;
            unproven += usize::from(!is_proven);
        }
        (len, unproven)
    }

    /// Remembers which subjects were refused and which were not.
    fn remember<'a>(&self, used: impl Iterator<Item = &'a Subject>, refused: &HashSet<String>) {
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        if proven.len() > PROVEN_MAX {
            proven.clear();
        }
        for subject in used {
            if refused.contains(subject.as_str()) {
                proven.remove(subject.as_str());
            } else if !proven.contains(subject.as_str()) {
                proven.insert(subject.to_string());
            }
        }
    }
}

/// Messages that are published before the server is asked about them.
pub(super) struct Round<'a> {
    link: &'a Link,
    events: Events,
    /// How many events had come before it.
    heard: u64,
    /// How many messages belong to it.
    pub(super) len: usize,
    _unproven: SemaphorePermit<'a>,
}

impl<'a> Round<'a> {
    /// Begins a round with as many of these subjects' messages as can go at once.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) async fn begin(
        link: &'a Link,
        subjects: impl Iterator<Item = &Subject> + Send,
    ) -> Result<Self, Failure> {
        let (len, unproven) = link.rounds.measure(subjects);
        let permits = u32::try_from(unproven).unwrap_or(u32::MAX);
        let permit = link.rounds.unproven.acquire_many(permits).await;
        Ok(Self {
            link,
            events: link.events(),
            heard: link.rounds.heard.load(Ordering::Acquire),
            len,
            _unproven: permit.map_err(|_| Failure::Lost)?,
        })
    }

    /// Which subjects the server has refused since the round began, the subjects of the
    /// published messages being `used`.
    ///
    /// # Errors
    /// Nothing is known about any of the messages. The connection is not used again.
    pub(super) async fn refused(
        mut self,
        used: impl Iterator<Item = &Subject> + Send,
    ) -> Result<HashSet<String>, Failure> {
        let rounds = &self.link.rounds;
        let number = self.ask().await?;
        let mut refused = HashSet::new();
        while self.link.is_up() {
            let event = self.events.next().await;
            // As long as the channel was never full, it has dropped nothing.
            let is_whole = rounds.heard.load(Ordering::Acquire) - self.heard < EVENTS_MAX;
            match event {
                Event::Lost => break,
                Event::Unclear => return Err(self.unclear()),
                _ if !is_whole => return Err(self.unclear()),
                Event::Forbidden(subject) => {
                    refused.insert(subject);
                }
                Event::Answered(answer) if answer >= number => {
                    rounds.remember(used, &refused);
                    return Ok(refused);
                }
                Event::Answered(_) => {}
            }
        }
        Err(Failure::Lost)
    }

    /// Sends the wish, and returns its number.
    async fn ask(&self) -> Result<u64, Failure> {
        let mut asked = self.link.rounds.asked.lock().await;
        let wish = self.link.client.subscribe(IMPOSSIBLE).await.map_err(|_| Failure::Lost)?;
        *asked += 1;
        // Withdrawn at once: the client would repeat it on a new connection.
        drop(wish);
        Ok(*asked)
    }

    fn unclear(&self) -> Failure {
        self.link.rounds.give_up();
        Failure::Client("it refused something, and it is not known which messages".to_owned())
    }
}

/// Whether the server refuses the wish, for what it is or because this user may not subscribe.
fn is_impossible(text: &str) -> bool {
    let rest = text.strip_prefix("Permissions Violation for Subscription to ");
    let quoted = rest.and_then(|rest| rest.strip_prefix('"'));
    text == "Invalid Subject" || quoted.is_some_and(|name| name.starts_with(IMPOSSIBLE))
}

/// The subject in `Permissions Violation for Publish to "orders"`.
fn forbidden_subject(text: &str) -> Option<String> {
    let quoted = text.strip_prefix("Permissions Violation for Publish to \"")?;
    unquoted(quoted.strip_suffix('"')?)
}

/// What Go has quoted, as far as it can be part of a subject.
fn unquoted(quoted: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = quoted.chars();
    while let Some(next) = rest.next() {
        let digits = match (next, (next == '\\').then(|| rest.next())) {
            (plain, None) => {
                text.push(plain);
                continue;
            }
            (_, Some(Some(mark @ ('"' | '\\')))) => {
                text.push(mark);
                continue;
            }
            (_, Some(Some('u'))) => 4,
            (_, Some(Some('U'))) => 8,
            _ => return None,
        };
        let number = u32::from_str_radix(rest.as_str().get(..digits)?, 16).ok()?;
        text.push(char::from_u32(number)?);
        rest = rest.as_str()[digits..].chars();
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_subject_is_read_from_the_servers_words() {
        let to = |name: &str| format!("Permissions Violation for Publish to \"{name}\"");
        for (said, subject) in [
            ("Orders.v1", "Orders.v1"),
            (r#"a.\"b\\"#, r#"a."b\"#),
            (r"a.\u200bü\U000e0001.c", "a.\u{200b}ü\u{e0001}.c"),
        ] {
            assert_eq!(forbidden_subject(&to(said)).as_deref(), Some(subject));
        }
        for bad in [r"a\", r"a\u20", r"a\n", r"a\ud800"] {
            assert_eq!(forbidden_subject(&to(bad)), None, "{bad}");
        }
        assert_eq!(forbidden_subject("Permissions Violation for Subscription to \"a\""), None);
        assert_eq!(forbidden_subject("Maximum Payload Violation"), None);
    }

    #[test]
    fn the_wish_is_recognised_when_it_is_refused() {
        let may_not = format!("Permissions Violation for Subscription to \"{IMPOSSIBLE}\"");
        for refusal in ["Invalid Subject", &may_not, &format!("{may_not}, too many tokens")] {
            assert!(is_impossible(refusal), "{refusal}");
        }
        for other in [&*format!("Permissions Violation for Publish to \"{IMPOSSIBLE}\""), ""] {
            assert!(!is_impossible(other), "{other}");
        }
    }

    #[test]
    fn a_round_ends_before_too_many_subjects_that_are_new() {
        let rounds = Rounds::default();
        let subjects: Vec<Subject> = (0..60).map(|n| format!("s.{n}").into()).collect();
        assert_eq!(rounds.measure(subjects.iter()), (50, 50));
        let refused = HashSet::from(["s.0".to_owned()]);
        rounds.remember(subjects[..30].iter(), &refused);
        assert_eq!(rounds.measure(subjects.iter()), (60, 31));
        let all = HashSet::from_iter(subjects.iter().map(ToString::to_string));
        rounds.remember(subjects.iter(), &all);
        assert_eq!(rounds.measure(subjects.iter()), (50, 50), "refused means unproven again");
    }
}
