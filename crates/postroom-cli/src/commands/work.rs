//! `postroom work`: a worker for integrations that go through BullMQ.

use super::outbox;
use super::run::{has_stopped, open, serve, stop_on, transport};
use super::stop::StopSignals;
use crate::config::{Origin, QueuedWorkers};
use crate::failure::Failure;
use postroom_bullmq::Part;
use postroom_relay::Metrics;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) async fn run(origin: &Origin<'_>) -> Result<(), Failure> {
    let mut config = origin.config()?;
    // The jobs of the others are not ours to run.
    config.queued.retain(|queued| matches!(queued.workers, QueuedWorkers::Own { .. }));
    let signals = StopSignals::listen()?;
    outbox::expect_file(&config.database)?;
    let store = open(&config).await?;
    let Some(transport) = transport(&config, store, Arc::new(Metrics::new()))? else {
        return Err(Failure::Failed(anyhow::anyhow!(
            "there is nothing to work on: no integration has transport = \"bullmq\" and workers \
             of its own"
        )));
    };
    let transport = Arc::new(transport);
    let (stop, stopped) = watch::channel(false);
    let server = serve(config.listen, Arc::clone(&transport) as _, stopped.clone()).await?;
    let names: Vec<&str> = config.queued.iter().map(|queued| queued.name.as_str()).collect();
    let database = outbox::shown(&config.database.url);
    let named_by = config.database.named_by.as_deref().unwrap_or("default");
    tracing::info!(database, named_by, integrations = names.join(", "), "the worker runs");
    stop_on(signals, stop);
    transport.run(Part::Worker, has_stopped(stopped)).await.map_err(anyhow::Error::from)?;
    if let Some(server) = server {
        // A client that keeps its connection busy must not keep the process.
        server.abort();
    }
    tracing::info!("stopped");
    Ok(())
}
