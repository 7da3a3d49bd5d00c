//! What was ordered and what arrived, order by order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The books of one run.
pub(super) struct Ledger {
    run: String,
    orders: Mutex<Vec<Order>>,
    /// How many orders there will be.
    pub(super) planned: u64,
    pub(super) committed: AtomicU64,
    pub(super) rolled_back: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) dead: AtomicU64,
}

/// One order's story.
#[derive(Clone, Copy, Default)]
pub(super) struct Order {
    pub(super) committed: Option<Instant>,
    /// The first time it arrived.
    pub(super) received: Option<Instant>,
    /// How often it arrived.
    pub(super) receipts: u32,
}

impl Order {
    /// From the commit to the first receipt. The receiver can be faster than the commit's own
    /// answer; that counts as nothing.
    pub(super) fn latency(&self) -> Option<Duration> {
        Some(self.received?.saturating_duration_since(self.committed?))
    }
}

impl Ledger {
    pub(super) fn new(planned: u64, run: String) -> Self {
        Self {
            run,
            orders: Mutex::default(),
            planned,
            committed: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        }
    }

    /// Opens the books for one more order and returns its number.
    pub(super) fn begin(&self) -> usize {
        let mut orders = self.orders();
        orders.push(Order::default());
        orders.len() - 1
    }

    /// The event id of an order, unique over all runs.
    pub(super) fn event_id(&self, number: usize) -> String {
        format!("{}-{number}", self.run)
    }

    pub(super) fn commit(&self, number: usize) {
        let now = Instant::now();
        if let Some(order) = self.orders().get_mut(number) {
            order.committed = Some(now);
        }
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn roll_back(&self) {
        self.rolled_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes an arrival by its event id.
    pub(super) fn receive(&self, event_id: &str) {
        let now = Instant::now();
        let number = event_id
            .strip_prefix(&self.run)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|number| number.parse::<usize>().ok());
        let mut orders = self.orders();
        let Some(order) = number.and_then(|number| orders.get_mut(number)) else { return };
        order.receipts += 1;
        if order.received.is_none() {
            order.received = Some(now);
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every order so far.
    pub(super) fn read(&self) -> Vec<Order> {
        self.orders().clone()
    }

    fn orders(&self) -> MutexGuard<'_, Vec<Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
