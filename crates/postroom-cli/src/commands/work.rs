//! `postroom work`: a worker for integrations that go through BullMQ.

use super::outbox;
use super::run::{end, has_stopped, open, serve, stop_on, transport};
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
    let [database] = &config.databases[..] else {
        // Integrations that go through BullMQ were refused with several.
        return Err(nothing());
    };
    outbox::expect_file(database)?;
    let store = open(&config, database).await?;
    let transport = transport(&config, database, store, Arc::new(Metrics::new()))?;
    let Some(transport) = transport else { return Err(nothing()) };
    let transport = Arc::new(transport);
    let (stop, stopped) = watch::channel(false);
    let server = serve(config.listen, Arc::clone(&transport) as _, stopped.clone()).await?;
    let names: Vec<&str> = config.queued.iter().map(|queued| queued.name.as_str()).collect();
    let named_by = database.named_by.as_deref().unwrap_or("default");
    let database = outbox::shown(&database.url);
    tracing::info!(database, named_by, integrations = names.join(", "), "the worker runs");
    stop_on(signals, stop);
    transport.run(Part::Worker, has_stopped(stopped)).await.map_err(anyhow::Error::from)?;
    end(server);
    Ok(())
}

fn nothing() -> Failure {
    Failure::Failed(anyhow::anyhow!(
        "there is nothing to work on: no integration has transport = \"bullmq\" and workers of its \
         own"
    ))
}
