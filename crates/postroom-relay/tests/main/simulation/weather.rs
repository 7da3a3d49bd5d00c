//! What is wrong at the moment, and whom a database call's failure hits.

use super::ms;
use super::plan::{Fault, Plan, within};
use postroom_core::StoreErrorKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How many of the calls that fail get no answer at all.
const SILENT: f64 = 0.2;

/// What a relay does to the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    Take,
    Settle,
    Beat,
    Other,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    /// On its way there, and on the answer's way back.
    pub(super) delays: [Duration; 2],
    pub(super) trouble: Option<(Moment, Trouble)>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    Error(StoreErrorKind),
    /// Its connection is half open, or the server is frozen.
    NeverAnswers,
}

/// When a call fails. After the work, its outcome is unknown to the caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Moment {
    BeforeTheWork,
    AfterTheWork,
}

pub(super) struct Weather(Mutex<State>);

struct State {
    rng: StdRng,
    error_rate: f64,
    /// By relay.
    paused: Vec<Instant>,
    no_heartbeat: Vec<Instant>,
    outage: Instant,
    slow: Instant,
}

impl Weather {
    pub(super) fn new(seed: u64, plan: &Plan) -> Self {
        let now = Instant::now();
        Self(Mutex::new(State {
            // Another stream than the plan's.
            rng: StdRng::seed_from_u64(!seed),
            error_rate: plan.error_rate,
            paused: vec![now; plan.relays.len()],
            no_heartbeat: vec![now; plan.relays.len()],
            outage: now,
            slow: now,
        }))
    }

    /// Begins a fault that is no matter of processes.
    pub(super) fn begin(&self, fault: Fault) {
        let now = Instant::now();
        let state = &mut *self.state();
        let (until, lasts) = match fault {
            Fault::Pause { relay, lasts } => (&mut state.paused[relay], lasts),
            Fault::NoHeartbeat { relay, lasts } => (&mut state.no_heartbeat[relay], lasts),
            Fault::Outage { lasts } => (&mut state.outage, lasts),
            Fault::Slow { lasts } => (&mut state.slow, lasts),
            Fault::Crash { .. } | Fault::Stop { .. } => return,
        };
        *until = (*until).max(now + lasts);
    }

    /// From now on nothing fails without a reason.
    pub(super) fn clear_up(&self) {
        self.state().error_rate = 0.0;
    }

    pub(super) fn lot(&self, relay: usize, call: Call) -> Lot {
        let now = Instant::now();
        let state = &mut *self.state();
        let rng = &mut state.rng;
        let most = if state.slow > now { ms(2_500) } else { ms(3) };
        let mut lot = Lot { delays: [(); 2].map(|()| within(rng, ms(0), most)), trouble: None };
        if state.paused[relay] > now {
            lot.delays[rng.random_range(0..2)] += state.paused[relay] - now;
        }
        let away = state.outage > now || (call == Call::Beat && state.no_heartbeat[relay] > now);
        if away || rng.random_bool(state.error_rate) {
            let moments = [Moment::BeforeTheWork, Moment::AfterTheWork];
            // What reaches a database that is away is the rare last call before it went.
            let moment = moments[usize::from(rng.random_bool(if away { 0.05 } else { 0.5 }))];
            let trouble = if rng.random_bool(SILENT) {
                Trouble::NeverAnswers
            } else {
                Trouble::Error(kind(rng, call, moment))
            };
            lot.trouble = Some((moment, trouble));
        }
        lot
    }

    /// A paused relay's sink makes no progress either.
    pub(super) fn paused_until(&self, relay: usize) -> Instant {
        self.state().paused[relay]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn kind(rng: &mut StdRng, call: Call, moment: Moment) -> StoreErrorKind {
    match (call, moment) {
        (Call::Settle, Moment::BeforeTheWork) if rng.random_bool(0.1) => StoreErrorKind::Refused,
        (_, Moment::BeforeTheWork) if rng.random_bool(0.3) => StoreErrorKind::Conflict,
        _ => StoreErrorKind::Unavailable,
    }
}
