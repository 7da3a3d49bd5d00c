//! When messages are due again that their queue has no room for, or that it cannot take now.
//!
//! Whose a message is lies in its content, so that a lane takes messages without regard to tenants
//! and puts those off whose queue is full: others behind them are then reached. Each time costs
//! writes, so it must not happen often to one message, nor to many at once. Those of one queue form
//! a line. They are due again one after the other, at the pace at which the queue drains; where it
//! does not drain at all, the later the longer that has been so.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time that a message is put off.
const LEAST: Duration = Duration::from_secs(1);
/// What does not follow the pace of a queue comes again at this one, over all full queues together:
/// however many messages wait, so many a second are written at most.
const AGAIN_PER_SECOND: f64 = 500.0;
/// A line is a little faster than its queue, so that the queue does not run empty.
const AHEAD: f64 = 1.1;
/// How often a queue's pace is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// What was measured before counts for nothing after so long.
const MEASURED_FOR: Duration = Duration::from_secs(10);

/// How a queue has drained, as far as is known here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Drained {
    /// How many jobs have left it.
    pub(crate) jobs: u64,
    /// Since when that is counted.
    pub(crate) since: Instant,
}

/// The lines of all full queues.
#[derive(Debug)]
pub(crate) struct Postponing {
    /// How far ahead the pace of a queue is trusted: it may be faster by then. Also how long a
    /// message is put off for a queue that does not drain, unless more of them wait than come again
    /// in that time.
    most: Duration,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    by_queue: HashMap<String, Line>,
    forgotten_at: Instant,
}

#[derive(Debug)]
struct Line {
    /// When the last one is due.
    end: Instant,
    /// Jobs a second, lately, once that is known.
    pace: Option<f64>,
    measured: (Instant, Drained),
    /// When it was last seen to drain.
    moved_at: Instant,
    /// Whether the log says that it does not.
    is_told: bool,
}

impl Postponing {
    pub(crate) fn new(claim_time: Duration) -> Self {
        let lines = Lines { by_queue: HashMap::new(), forgotten_at: Instant::now() };
        Self { most: claim_time.max(LEAST), lines: Mutex::new(lines) }
    }

    /// For how long the next `count` messages of a full queue are put off, in their order.
    pub(crate) fn put_off(&self, queue: &str, count: usize, drained: Drained) -> Vec<Duration> {
        let now = Instant::now();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.forget(now, self.most);
        let line =
            lines.by_queue.entry(queue.to_owned()).or_insert_with(|| Line::new(now, drained));
        line.measure(now, drained);
        line.tell(queue, now, self.most);
        let others = lines.by_queue.len();
        let again = AGAIN_PER_SECOND / f64::from(u32::try_from(others).unwrap_or(u32::MAX));
        match lines.by_queue.get_mut(queue) {
            Some(line) => (0..count).map(|_| line.next(now, again, self.most)).collect(),
            None => vec![LEAST; count],
        }
    }
}

impl Lines {
    /// Forgets lines that ended long ago.
    fn forget(&mut self, now: Instant, most: Duration) {
        if now - self.forgotten_at >= MEASURE_EVERY {
            self.forgotten_at = now;
            self.by_queue.retain(|_, line| line.end + most > now);
        }
    }
}

impl Line {
    fn new(now: Instant, drained: Drained) -> Self {
        // It was not full until now: how it has drained so far is all that is known.
        let passed = now - drained.since;
        let pace = (passed >= MEASURE_EVERY).then(|| pace(drained.jobs, passed));
        Self { end: now, pace, measured: (now, drained), moved_at: now, is_told: false }
    }

    fn measure(&mut self, now: Instant, drained: Drained) {
        let (at, before) = self.measured;
        let passed = now - at;
        if passed < MEASURE_EVERY {
            return;
        }
        // Counting restarts once a queue was empty.
        let is_same = before.since == drained.since;
        let jobs = drained.jobs - if is_same { before.jobs.min(drained.jobs) } else { 0 };
        let lately = pace(jobs, passed);
        let before = self.pace.filter(|_| passed < MEASURED_FOR).unwrap_or(lately);
        self.pace = Some((before + lately) / 2.0);
        if jobs > 0 {
            self.moved_at = now;
        }
        self.measured = (now, drained);
    }

    /// Says that a queue stands still: what waits for it has no lag, since it is due later.
    fn tell(&mut self, queue: &str, now: Instant, most: Duration) {
        let stands_still = now - self.moved_at >= most;
        if stands_still && !self.is_told {
            tracing::warn!(
                queue,
                "nothing leaves this queue, and more waits for it: look at its workers"
            );
        } else if !stands_still && self.is_told {
            tracing::info!(queue, "the queue drains again");
        }
        self.is_told = stands_still;
    }

    /// How long the next message is put off.
    fn next(&mut self, now: Instant, again: f64, most: Duration) -> Duration {
        // Until the pace is known, all of them come again as soon as it is.
        let apart = self.pace.map_or(Duration::ZERO, |pace| {
            let is_moving = pace * most.as_secs_f64() >= 1.0;
            let ahead = pace * AHEAD;
            let pace = if is_moving && self.end < now + most { ahead } else { ahead.max(again) };
            Duration::from_secs_f64(1.0 / pace)
        });
        let least = (now - self.moved_at).clamp(LEAST, most);
        self.end = (self.end + apart).max(now + least);
        self.end - now
    }
}

fn pace(jobs: u64, within: Duration) -> f64 {
    let jobs = f64::from(u32::try_from(jobs).unwrap_or(u32::MAX));
    jobs / within.max(MEASURE_EVERY).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    const CLAIM_TIME: Duration = Duration::from_secs(30);
    const TICK: Duration = Duration::from_millis(100);

    /// A lane whose messages are all of one tenant, and that tenant's queue.
    struct Lane {
        postponing: Postponing,
        /// By when they are due, and their number.
        waiting: BinaryHeap<Reverse<(Instant, u32)>>,
        queue: VecDeque<u32>,
        cap: usize,
        drained: Drained,
        done: Vec<u32>,
        /// How often messages were put off, by number.
        put_off: Vec<u32>,
    }

    impl Lane {
        fn new(messages: u32, cap: usize) -> Self {
            let now = Instant::now();
            Self {
                postponing: Postponing::new(CLAIM_TIME),
                waiting: (0..messages).map(|number| Reverse((now, number))).collect(),
                queue: VecDeque::new(),
                cap,
                drained: Drained { jobs: 0, since: now },
                done: Vec::new(),
                put_off: vec![0; messages as usize],
            }
        }

        /// What happens within a tick, when so many messages can be taken and so many jobs be done.
        /// How many messages were put off.
        async fn tick(&mut self, most: usize, jobs: usize) -> usize {
            let now = Instant::now();
            for _ in 0..jobs.min(self.queue.len()) {
                self.done.extend(self.queue.pop_front());
                self.drained.jobs += 1;
            }
            let mut full = Vec::new();
            for _ in 0..most {
                match self.waiting.peek() {
                    Some(Reverse((due, _))) if *due <= now => {}
                    _ => break,
                }
                let Some(Reverse((_, number))) = self.waiting.pop() else { break };
                if self.queue.len() < self.cap {
                    self.queue.push_back(number);
                } else {
                    full.push(number);
                }
            }
            let delays = self.postponing.put_off("acme", full.len(), self.drained);
            for (number, delay) in full.iter().zip(&delays) {
                self.put_off[*number as usize] += 1;
                self.waiting.push(Reverse((now + *delay, *number)));
            }
            tokio::time::advance(TICK).await;
            full.len()
        }

        fn is_anything_due(&self) -> bool {
            let first = self.waiting.peek();
            first.is_some_and(|Reverse((due, _))| *due <= Instant::now() - TICK)
        }
    }

    /// What is behind the messages of a queue that nobody drains is reached after each of them was
    /// put off about once, and they are in nobody's way again afterwards.
    #[tokio::test(start_paused = true)]
    async fn a_queue_that_stands_still_holds_nobody_up_and_costs_little() {
        const MESSAGES: u32 = 300_000;
        let mut lane = Lane::new(MESSAGES, 100);
        let mut until_reached = 0;
        while lane.waiting.peek().is_some_and(|first| first.0.0 <= lane.drained.since) {
            until_reached += lane.tick(500, 0).await;
        }
        assert_eq!(until_reached, MESSAGES as usize - 100);
        // What came due meanwhile is soon done with.
        for _ in 0..1_000 {
            lane.tick(500, 0).await;
        }
        let mut again = 0;
        for tick in 0..5_000 {
            again += lane.tick(500, 0).await;
            assert!(!lane.is_anything_due(), "tick {tick}");
        }
        let a_second = again / 500;
        assert!(a_second <= 510, "{a_second} a second");
        let most = lane.put_off.iter().max().unwrap();
        assert!(*most <= 8, "{most} times");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_messages_come_again_once_in_a_claim_time() {
        let mut lane = Lane::new(110, 100);
        for _ in 0..600 {
            lane.tick(500, 0).await;
        }
        let early: u32 = lane.put_off.iter().sum();
        assert!(early <= 10 * 8, "{early} in the first minute");
        for _ in 0..6_000 {
            lane.tick(500, 0).await;
        }
        let later = lane.put_off.iter().sum::<u32>() - early;
        assert!(later <= 10 * 21, "{later} in ten minutes");
    }

    /// A queue that drains is never without jobs, and its messages are put off once within what is
    /// foreseen of it, a claim's time.
    #[tokio::test(start_paused = true)]
    async fn messages_come_when_their_queue_has_room_and_in_their_order() {
        for (messages, jobs) in [(10_000, 10), (100_000, 200), (2_000, 1)] {
            let mut lane = Lane::new(messages, 1_000);
            let mut ticks = 0;
            while lane.done.len() < messages as usize {
                lane.tick(2_000, jobs).await;
                ticks += 1;
            }
            let needed = messages as usize / jobs;
            assert!(ticks <= needed + needed / 10 + 50, "{ticks} ticks instead of {needed}");
            let times = lane.put_off.iter().sum::<u32>() / messages;
            let waited = u32::try_from(needed).unwrap() / 300;
            assert!(times <= waited + 3, "{times} times each within {waited} claim times");
            let moved = |(place, number): (usize, &u32)| place.abs_diff(*number as usize);
            let moved: usize = lane.done.iter().enumerate().map(moved).sum();
            let far = moved / messages as usize;
            // As many as are done in about a claim's time.
            assert!(far <= 300 * jobs, "{far} places from where they were");
        }
    }

    /// Once somebody drains a queue that stood still, its messages come within a claim time, and as
    /// fast as what stands still may come.
    #[tokio::test(start_paused = true)]
    async fn a_queue_that_moves_again_is_filled() {
        let mut lane = Lane::new(10_000, 100);
        for _ in 0..6_000 {
            lane.tick(500, 0).await;
        }
        let mut ticks = 0;
        while lane.done.len() < 10_000 {
            lane.tick(500, 100).await;
            ticks += 1;
        }
        assert!(ticks <= 300 + 200 + 100, "{ticks} ticks");
    }
}
