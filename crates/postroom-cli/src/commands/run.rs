//! `postroom run`: the relay.

use super::outbox;
use super::stop::StopSignals;
use crate::args::Run;
use crate::config::{Config, Integration, Listen, Origin};
use crate::failure::Failure;
use crate::output;
use anyhow::Context;
use postroom_core::Store;
use postroom_relay::{Lane, Pass, Relay};
use postroom_store::OpenOptions;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How much longer than its sink a lane waits: the sink's own timeout says more about the cause.
const LANE_GRACE: Duration = Duration::from_millis(500);

pub(super) async fn run(args: &Run, origin: &Origin<'_>) -> Result<(), Failure> {
    let config = origin.config()?;
    let mut signals = StopSignals::listen()?;
    let store = open(&config).await?;
    let lanes = config.integrations.iter().map(lane).collect::<Result<Vec<_>, _>>()?;
    let relay = Arc::new(Relay::new(store, config.relay.clone(), lanes));
    if args.once {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let pass = tokio::select! {
            pass = relay.tick(limit) => pass?,
            () = signals.next() => return Err(Failure::Failed(anyhow::anyhow!(
                "stopped in the middle of the pass: what it held is free again after {:?}",
                config.relay.claim_time
            ))),
        };
        return Ok(print_pass(pass, args.json)?);
    }

    let (stop, stopped) = watch::channel(false);
    let server = serve(config.listen, &relay, stopped.clone()).await?;
    announce(&config);
    tokio::spawn(async move {
        signals.next().await;
        tracing::info!("stopping: finishing what is in flight; a second signal ends at once");
        stop.send_replace(true);
        signals.next().await;
        tracing::warn!("ended at once: what was in flight is delivered again after its claim time");
        std::process::exit(1);
    });
    relay.run(has_stopped(stopped)).await?;
    if let Some(server) = server {
        // A client that keeps its connection busy must not keep the process.
        server.abort();
    }
    tracing::info!("stopped");
    Ok(())
}

async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    outbox::migrate_embedded(&config.database).await?;
    let options =
        OpenOptions { keep_sent: !config.relay.keep_sent.is_zero(), ..config.database.options() };
    Ok(postroom_store::open(&config.database.url, &options).await?)
}

/// The lane of an integration.
pub(super) fn lane(integration: &Integration) -> Result<Lane, Failure> {
    let sink = integration
        .sink
        .clone()
        .build()
        .with_context(|| format!("cannot set up the integration {}", integration.name))?;
    Ok(Lane {
        integration: integration.name.clone(),
        sink,
        concurrency: integration.concurrency,
        batch_size: integration.batch_size,
        timeout: integration.timeout + LANE_GRACE,
        retry: integration.retry,
    })
}

async fn serve(
    listen: Listen,
    relay: &Arc<Relay>,
    stopped: watch::Receiver<bool>,
) -> Result<Option<tokio::task::JoinHandle<std::io::Result<()>>>, Failure> {
    let Listen { address, asked_for } = listen;
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) if !asked_for => {
            tracing::warn!(
                %address, %error,
                "no health endpoint: set [server] listen to an address that is free"
            );
            return Ok(None);
        }
        Err(error) => {
            return Err(Failure::Failed(anyhow::Error::new(error).context(format!(
                "cannot listen on {address}: set [server] listen to an address that is free"
            ))));
        }
    };
    let address = listener.local_addr()?;
    tracing::info!(%address, "serving /healthz, /readyz and /metrics");
    let serving = postroom_server::serve(listener, Arc::clone(relay), has_stopped(stopped));
    Ok(Some(tokio::spawn(serving)))
}

async fn has_stopped(mut stopped: watch::Receiver<bool>) {
    // The sender lives in a task that ends with the process.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn announce(config: &Config) {
    let database = outbox::shown(&config.database.url);
    let names: Vec<&str> = config.integrations.iter().map(|one| one.name.as_str()).collect();
    let integrations = names.join(", ");
    match &config.file {
        Some(file) => {
            tracing::info!(config = %file.display(), database, integrations, "the relay runs");
        }
        None => tracing::info!(database, integrations, "the relay runs, without a configuration"),
    }
    if names.is_empty() {
        tracing::warn!("no integrations are configured: nothing will be delivered");
    }
}

fn print_pass(pass: Pass, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&pass);
    }
    let Pass { taken, sent, failed, dead, released } = pass;
    let text = format!(
        "{taken} taken: {sent} sent, {failed} to be tried again, {dead} dead, {released} given back"
    );
    // Standard output belongs to the sink of that name.
    eprintln!("{text}");
    Ok(())
}
