//! Places orders, some of which are rolled back.

use super::Stage;
use super::ledger::Ledger;
use super::shop::Ending;
use crate::failure::Failure;
use anyhow::Context;
use postroom::NewMessage;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// One order in this many is rolled back.
const ROLLED_BACK: usize = 20;

/// Places orders until as many as planned are committed, or `halted` says so.
pub(super) async fn run(
    stage: &Stage,
    ledger: &Ledger,
    rate: Option<u32>,
    mut halted: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut shop = stage.shop.lock().await;
    let started = Instant::now();
    let mut committed = 0u64;
    while committed < ledger.planned && !*halted.borrow() {
        if let Some(rate) = rate {
            let due = started + Duration::from_secs_f64(committed as f64 / f64::from(rate));
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                _ = halted.changed() => continue,
            }
        }
        let number = ledger.begin();
        let ending =
            if number % ROLLED_BACK == ROLLED_BACK - 1 { Ending::RollBack } else { Ending::Commit };
        let order = ledger.event_id(number);
        let total = i64::try_from(number % 500).unwrap_or_default() + 1;
        let message = NewMessage::new(&stage.integration, "order.placed.v1")
            .event_id(&order)
            .stream(format!("order-{number}"))
            .source("demo")
            .json(&json!({ "order": order, "total": total, "currency": "EUR" }));
        shop.place(&order, total, message, ending)
            .await
            .with_context(|| format!("cannot place order {number}"))?;
        match ending {
            Ending::Commit => {
                ledger.commit(number);
                committed += 1;
            }
            Ending::RollBack => ledger.roll_back(),
        }
    }
    Ok(())
}
