//! The jobs that this relay has in queues, and the claims it keeps for them.
//!
//! They can be lost: whatever is not listed here is free once its claim expires, and its job is
//! found again by its id.

use super::names::JobName;
use super::postponing::Drained;
use postroom_core::{MessageId, Token};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many jobs that were settled here are remembered.
const SETTLED_MAX: usize = 20_000;

/// One job that nobody has settled yet, as far as is known here.
#[derive(Clone, Debug)]
struct OutstandingJob {
    dispatch: u32,
    lane: usize,
    queue: String,
    token: Token,
    /// How many attempts had failed before.
    failed_before: u32,
    /// Whether Redis has acknowledged the job: one that is on its way there is not gone.
    is_added: bool,
}

/// What a lane has in one queue.
#[derive(Debug)]
struct InQueue {
    jobs: usize,
    drained: Drained,
}

#[derive(Debug, Default)]
struct State {
    jobs: HashMap<MessageId, OutstandingJob>,
    /// How many jobs each claim holds.
    claims: HashMap<Token, usize>,
    /// Claims that hold nothing any more.
    ended: Vec<Token>,
    /// What a lane has, by queue, while that is anything.
    by_lane: HashMap<usize, HashMap<String, InQueue>>,
    /// Jobs whose outcome was recorded by this process, the oldest first.
    settled: VecDeque<JobName>,
    settled_set: HashSet<JobName>,
}

/// What is outstanding.
#[derive(Debug, Default)]
pub(crate) struct OutstandingJobs {
    state: Mutex<State>,
    /// A job was settled: there is room.
    pub(crate) freed: Notify,
}

impl OutstandingJobs {
    /// Notes a job that is about to be added.
    pub(crate) fn add(
        &self,
        name: &JobName,
        lane: usize,
        queue: &str,
        token: Token,
        failed_before: u32,
    ) {
        let mut state = self.state();
        let (dispatch, queue) = (name.dispatch, queue.to_owned());
        *state.claims.entry(token).or_default() += 1;
        let empty = || InQueue { jobs: 0, drained: Drained { jobs: 0, since: Instant::now() } };
        let queues = state.by_lane.entry(lane).or_default();
        queues.entry(queue.clone()).or_insert_with(empty).jobs += 1;
        let job = OutstandingJob { dispatch, lane, queue, token, failed_before, is_added: false };
        if let Some(before) = state.jobs.insert(name.message.clone(), job) {
            state.let_go(&before);
        }
    }

    /// Whether this relay has put the job into this queue, and nobody has settled it since.
    pub(crate) fn has_in(&self, name: &JobName, queue: &str) -> bool {
        let state = self.state();
        let job = state.jobs.get(&name.message);
        job.is_some_and(|job| job.dispatch == name.dispatch && job.queue == queue)
    }

    /// How many attempts had failed before this dispatch, if this relay has made it.
    pub(crate) fn failed_before(&self, name: &JobName) -> Option<u32> {
        let state = self.state();
        let job = state.jobs.get(&name.message).filter(|job| job.dispatch == name.dispatch)?;
        Some(job.failed_before)
    }

    /// Notes that Redis has the job.
    pub(crate) fn added(&self, name: &JobName) {
        let mut state = self.state();
        let job = state.jobs.get_mut(&name.message);
        if let Some(job) = job.filter(|job| job.dispatch == name.dispatch) {
            job.is_added = true;
        }
    }

    /// Forgets a job that was settled, whoever did it, or whose message was given back.
    pub(crate) fn settled(&self, name: &JobName) {
        let mut state = self.state();
        let is_this = |job: &OutstandingJob| job.dispatch <= name.dispatch;
        if state.jobs.get(&name.message).is_some_and(is_this)
            && let Some(job) = state.jobs.remove(&name.message)
        {
            state.let_go(&job);
            drop(state);
            self.freed.notify_one();
        }
    }

    /// Notes that this process has recorded the outcome of a job: whoever hears of its end later has
    /// nothing to ask the database.
    pub(crate) fn settled_here(&self, name: &JobName) {
        self.settled(name);
        let mut state = self.state();
        if state.settled_set.insert(name.clone()) {
            state.settled.push_back(name.clone());
        }
        if state.settled.len() > SETTLED_MAX
            && let Some(oldest) = state.settled.pop_front()
        {
            state.settled_set.remove(&oldest);
        }
    }

    pub(crate) fn is_settled_here(&self, name: &JobName) -> bool {
        self.state().settled_set.contains(name)
    }

    /// Forgets what claims held that are another relay's by now.
    pub(crate) fn lost(&self, tokens: &[Token]) {
        let tokens: HashSet<&Token> = tokens.iter().collect();
        let mut state = self.state();
        let lost: Vec<MessageId> = state
            .jobs
            .iter()
            .filter(|(_, job)| tokens.contains(&job.token))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            if let Some(job) = state.jobs.remove(&id) {
                state.let_go(&job);
            }
        }
        state.ended.retain(|token| !tokens.contains(token));
        drop(state);
        self.freed.notify_one();
    }

    /// How many jobs a lane has.
    pub(crate) fn of_lane(&self, lane: usize) -> usize {
        self.state()
            .by_lane
            .get(&lane)
            .map_or(0, |queues| queues.values().map(|queue| queue.jobs).sum())
    }

    /// How many jobs a queue has, of whichever lane.
    pub(crate) fn in_queue(&self, queue: &str) -> usize {
        let state = self.state();
        state.by_lane.values().filter_map(|queues| queues.get(queue)).map(|queue| queue.jobs).sum()
    }

    /// How a lane's queue has drained since it was last empty.
    pub(crate) fn drained(&self, lane: usize, queue: &str) -> Drained {
        let state = self.state();
        let found = state.by_lane.get(&lane).and_then(|queues| queues.get(queue));
        found.map_or(Drained { jobs: 0, since: Instant::now() }, |queue| queue.drained)
    }

    /// The jobs that queues have been given, by queue: in one pass, however many there are.
    pub(crate) fn by_queue(&self) -> HashMap<String, Vec<JobName>> {
        let mut by_queue: HashMap<String, Vec<JobName>> = HashMap::new();
        for (id, job) in self.state().jobs.iter().filter(|(_, job)| job.is_added) {
            let name = JobName { message: id.clone(), dispatch: job.dispatch };
            match by_queue.get_mut(&job.queue) {
                Some(names) => names.push(name),
                None => _ = by_queue.insert(job.queue.clone(), vec![name]),
            }
        }
        by_queue
    }

    /// Every claim that holds something.
    pub(crate) fn claims(&self) -> Vec<Token> {
        self.state().claims.keys().copied().collect()
    }

    /// The claims that have ended since the last time.
    pub(crate) fn take_ended(&self) -> Vec<Token> {
        std::mem::take(&mut self.state().ended)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn let_go(&mut self, job: &OutstandingJob) {
        if let Some(queues) = self.by_lane.get_mut(&job.lane)
            && let Some(queue) = queues.get_mut(&job.queue)
        {
            queue.jobs = queue.jobs.saturating_sub(1);
            queue.drained.jobs += 1;
            if queue.jobs == 0 {
                queues.remove(&job.queue);
            }
        }
        if let Some(held) = self.claims.get_mut(&job.token) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.claims.remove(&job.token);
                self.ended.push(job.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn given(outstanding: &OutstandingJobs, queue: &str) -> Vec<JobName> {
        outstanding.by_queue().remove(queue).unwrap_or_default()
    }

    #[test]
    fn a_claim_ends_with_its_last_job_and_a_stale_word_ends_nothing() {
        let outstanding = OutstandingJobs::default();
        let token = Token::random();
        let jobs: Vec<JobName> =
            (0..2).map(|_| JobName { message: Uuid::new_v4().into(), dispatch: 2 }).collect();
        for job in &jobs {
            outstanding.add(job, 0, "q", token, 0);
            assert!(!given(&outstanding, "q").contains(job));
            outstanding.added(job);
        }
        outstanding.settled(&JobName { dispatch: 1, ..jobs[0].clone() });
        assert_eq!((outstanding.of_lane(0), given(&outstanding, "q").len()), (2, 2));
        outstanding.settled(&jobs[0]);
        outstanding.settled(&jobs[0]);
        assert_eq!((outstanding.of_lane(0), outstanding.claims().len()), (1, 1));
        outstanding.settled(&jobs[1]);
        assert_eq!((outstanding.of_lane(0), outstanding.claims().len()), (0, 0));
        assert_eq!(outstanding.take_ended(), [token]);
        assert!(outstanding.take_ended().is_empty());
    }

    #[test]
    fn jobs_are_counted_by_queue() {
        let outstanding = OutstandingJobs::default();
        let job = || JobName { message: Uuid::new_v4().into(), dispatch: 1 };
        let first = job();
        for (name, lane, queue) in
            [(first.clone(), 0, "a"), (job(), 0, "a"), (job(), 0, "b"), (job(), 1, "b")]
        {
            outstanding.add(&name, lane, queue, Token::random(), 0);
        }
        assert_eq!(
            (outstanding.of_lane(0), outstanding.in_queue("a"), outstanding.in_queue("b")),
            (3, 2, 2)
        );
        assert!(outstanding.by_queue().is_empty());
        outstanding.added(&first);
        assert_eq!(outstanding.by_queue(), HashMap::from([("a".to_owned(), vec![first.clone()])]));
        assert_eq!(outstanding.drained(0, "a").jobs, 0);
        outstanding.settled(&first);
        assert_eq!(
            (outstanding.of_lane(0), outstanding.in_queue("a"), outstanding.in_queue("b")),
            (2, 1, 2)
        );
        assert_eq!((outstanding.drained(0, "a").jobs, outstanding.drained(0, "b").jobs), (1, 0));
        assert_eq!(outstanding.in_queue("c"), 0);
    }

    #[test]
    fn what_was_settled_here_is_remembered_for_a_while() {
        let outstanding = OutstandingJobs::default();
        let first = JobName { message: Uuid::new_v4().into(), dispatch: 1 };
        outstanding.settled_here(&first);
        assert!(outstanding.is_settled_here(&first));
        assert!(!outstanding.is_settled_here(&JobName { dispatch: 2, ..first.clone() }));
        for _ in 0..SETTLED_MAX {
            outstanding.settled_here(&JobName { message: Uuid::new_v4().into(), dispatch: 1 });
        }
        assert!(!outstanding.is_settled_here(&first));
        let state = outstanding.state();
        assert_eq!((state.settled.len(), state.settled_set.len()), (SETTLED_MAX, SETTLED_MAX));
    }

    #[test]
    fn a_message_that_comes_again_is_counted_once() {
        let outstanding = OutstandingJobs::default();
        let job = JobName { message: Uuid::new_v4().into(), dispatch: 1 };
        let (first, second) = (Token::random(), Token::random());
        outstanding.add(&job, 0, "q", first, 0);
        outstanding.add(&JobName { dispatch: 2, ..job.clone() }, 0, "q", second, 0);
        assert_eq!((outstanding.of_lane(0), outstanding.claims()), (1, vec![second]));
        outstanding.lost(&[second]);
        assert_eq!((outstanding.of_lane(0), given(&outstanding, "q").len()), (0, 0));
    }

    #[test]
    fn what_is_in_a_queue_is_known_by_its_number() {
        let outstanding = OutstandingJobs::default();
        let job = JobName { message: Uuid::new_v4().into(), dispatch: 1 };
        outstanding.add(&job, 0, "q", Token::random(), 7);
        assert!(outstanding.has_in(&job, "q") && !outstanding.has_in(&job, "other"));
        assert!(!outstanding.has_in(&JobName { dispatch: 2, ..job.clone() }, "q"));
        assert_eq!(outstanding.failed_before(&job), Some(7));
        assert_eq!(outstanding.failed_before(&JobName { dispatch: 2, ..job.clone() }), None);
    }
}
