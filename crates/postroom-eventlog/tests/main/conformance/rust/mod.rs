//! What the official Rust client can do with a server, one feature after the other.

mod appending;
mod connection;
mod lifetime;
mod links;
mod persistent;
mod reading;
mod sharing;
mod stage;
mod subscriptions;

use super::report::Report;
use super::servers::Servers;
use futures_util::FutureExt as _;
use stage::Stage;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// For all the waits of a feature together.
const FEATURE_LIMIT: Duration = Duration::from_secs(60);

type Proof<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// A feature by its name, and what proves it.
struct Proves {
    feature: &'static str,
    prove: for<'a> fn(&'a mut Stage) -> Proof<'a>,
}

/// Names functions after the features that they prove.
macro_rules! proves {
    ($($feature:literal => $prove:path),+ $(,)?) => {
        &[$(super::Proves { feature: $feature, prove: |stage| Box::pin($prove(stage)) }),+]
    };
}
use proves;

const ALL: &[&[Proves]] = &[
    appending::PROVES,
    reading::PROVES,
    links::PROVES,
    subscriptions::PROVES,
    lifetime::PROVES,
    persistent::PROVES,
    sharing::PROVES,
    connection::PROVES,
];

/// Proves all features, or those that the environment names.
pub(crate) async fn prove_all(servers: Servers) -> Report {
    let mut report = Report::default();
    let mut stage = Stage::new(servers);
    let wanted = std::env::var("POSTROOM_CONFORMANCE_FEATURES").ok();
    for Proves { feature, prove } in ALL.iter().copied().flatten() {
        if wanted.as_ref().is_some_and(|names| !names.split_whitespace().any(|n| n == *feature)) {
            continue;
        }
        let proof = AssertUnwindSafe(timeout(FEATURE_LIMIT, prove(&mut stage)));
        // This client panics on what it does not expect.
        let outcome = match proof.catch_unwind().await {
            Ok(Ok(outcome)) => outcome.map_err(|error| format!("{error:#}")),
            Ok(Err(_)) => Err(format!("no end in {FEATURE_LIMIT:?}")),
            Err(_) => Err("panicked: its message is among the test's output".to_owned()),
        };
        report.add(feature, outcome);
    }
    report
}
