//! `postroom run`: the relay.

use super::stop::StopSignals;
use super::{fleet, outbox};
use crate::args::Run;
use crate::config::{Config, Database, Integration, Listen, Origin, Queued, QueuedWorkers};
use crate::failure::Failure;
use crate::output;
use anyhow::Context;
use postroom_bullmq::{Delivery, Part, QueueLane, Redis, Transport, Workers};
use postroom_core::Store;
use postroom_relay::{Lane, Metrics, Observed, Pass, Relay, RelayError};
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
    if args.once {
        config.databases.iter().for_each(|database| outbox::announce(database, args.json));
    }
    // Those that have names are a fleet, be it of one: its metrics and its log name them.
    let [database] = &config.databases[..] else { return fleet::run(args, &config, signals).await };
    if database.name.is_some() {
        return fleet::run(args, &config, signals).await;
    }
    outbox::migrate_embedded(database).await?;
    let store = open(&config, database).await?;
    let relay =
        Arc::new(Relay::new(Arc::clone(&store), config.settings(database), lanes(&config)?));
    if args.once {
        if !config.queued.is_empty() {
            tracing::warn!("integrations that go through BullMQ are left out of a single pass");
        }
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let pass = tokio::select! {
            pass = relay.tick(limit) => pass.map_err(|error| pass_failed(error, database))?,
            () = signals.next() => return Err(cut_off(&config)),
        };
        return Ok(print_pass(pass, args.json)?);
    }

    let (stop, stopped) = watch::channel(false);
    let transport = transport(&config, database, store, relay.counters())?
        .map(|transport| Arc::new(transport.sharing(relay.presence())));
    if let Some(transport) = &transport {
        relay.show_external_lanes(Arc::clone(transport) as _);
    }
    let server = serve(config.listen, Arc::clone(&relay) as _, stopped.clone()).await?;
    announce(&config);
    stop_on(signals, stop.clone());
    let through_queues = async {
        let Some(transport) = &transport else { return Ok(()) };
        let outcome = transport.run(Part::Relay, has_stopped(stopped.clone())).await;
        // As below.
        stop.send_replace(true);
        outcome
    };
    let direct = async {
        let outcome = relay.run(has_stopped(stopped.clone())).await;
        // It may have ended by itself, and the rest goes with it.
        stop.send_replace(true);
        outcome
    };
    let (direct, through_queues) = tokio::join!(direct, through_queues);
    direct?;
    through_queues.map_err(anyhow::Error::from)?;
    end(server);
    Ok(())
}

/// What ends with the process.
pub(super) fn end(server: Option<Server>) {
    if let Some(server) = server {
        // A client that keeps its connection busy must not keep the process.
        server.abort();
    }
    tracing::info!("stopped");
}

/// Why a pass over one outbox failed.
pub(super) fn pass_failed(error: RelayError, database: &Database) -> Failure {
    match error {
        RelayError::Store(error) => outbox::failed(error, &database.url),
        defect @ RelayError::Defect { .. } => defect.into(),
    }
}

/// A pass that a signal has ended.
pub(super) fn cut_off(config: &Config) -> Failure {
    Failure::Failed(anyhow::anyhow!(
        "stopped in the middle of the pass: what it held is free again after {:?}",
        config.relay.claim_time
    ))
}

/// Tells everything to stop at the first signal, and ends the process at the second.
pub(super) fn stop_on(mut signals: StopSignals, stop: watch::Sender<bool>) {
    tokio::spawn(async move {
        signals.next().await;
        tracing::info!("stopping: finishing what is in flight; a second signal ends at once");
        stop.send_replace(true);
        signals.next().await;
        tracing::warn!("ended at once: what was in flight is delivered again after its claim time");
        std::process::exit(1);
    });
}

/// How a relay or a worker opens an outbox.
pub(super) fn open_options(config: &Config, database: &Database) -> OpenOptions {
    let later = config.integrations.iter().filter(|one| one.is_recorded_later);
    OpenOptions {
        keep_sent: !database.retention.keep_sent.is_zero(),
        record_later: later.map(|one| one.name.clone()).collect(),
        ..database.options()
    }
}

/// The outbox of a relay or a worker, which is there.
pub(super) async fn open(config: &Config, database: &Database) -> Result<Arc<dyn Store>, Failure> {
    Ok(postroom_store::open(&database.url, &open_options(config, database)).await?)
}

/// The lanes of all integrations that are delivered directly.
pub(super) fn lanes(config: &Config) -> Result<Vec<Lane>, Failure> {
    config.integrations.iter().map(lane).collect()
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

/// What goes through BullMQ; `None` when nothing does.
pub(super) fn transport(
    config: &Config,
    database: &Database,
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
) -> Result<Option<Transport>, Failure> {
    if config.queued.is_empty() {
        return Ok(None);
    }
    let redis = Redis::new(&config.redis)
        .map_err(|fault| Failure::Failed(anyhow::anyhow!("[redis]: {fault}")))?;
    let lanes = config.queued.iter().map(queue_lane).collect::<Result<Vec<_>, _>>()?;
    let (settings, tenants) = (config.settings(database), config.tenants.clone());
    Ok(Some(Transport::new(store, redis, settings, lanes, tenants, metrics)))
}

fn queue_lane(queued: &Queued) -> Result<QueueLane, Failure> {
    let workers = match &queued.workers {
        QueuedWorkers::External => Workers::External,
        QueuedWorkers::Own { integration, rate } => {
            let Lane { sink, concurrency, timeout, .. } = lane(integration)?;
            Workers::Own(Delivery { sink, concurrency, timeout, rate: *rate })
        }
    };
    Ok(QueueLane {
        integration: queued.name.clone(),
        queue: queued.queue.clone(),
        data: queued.data,
        outstanding_max: queued.outstanding,
        retry: queued.retry,
        workers,
    })
}

/// The task that serves health and metrics.
pub(super) type Server = tokio::task::JoinHandle<std::io::Result<()>>;

pub(super) async fn serve(
    listen: Listen,
    shown: Arc<dyn Observed>,
    stopped: watch::Receiver<bool>,
) -> Result<Option<Server>, Failure> {
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
    let serving = postroom_server::serve(listener, shown, has_stopped(stopped));
    Ok(Some(tokio::spawn(serving)))
}

pub(super) async fn has_stopped(mut stopped: watch::Receiver<bool>) {
    // The sender lives in a task that ends with the process.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Says in the log what runs, a line for each outbox.
pub(super) fn announce(config: &Config) {
    let names = config.names();
    let integrations = names.join(", ");
    for database in &config.databases {
        let outbox = outbox::shown(&database.url);
        let named_by = database.named_by.as_deref().unwrap_or("default");
        let name = database.name.as_deref().map(tracing::field::display);
        match &config.file {
            Some(file) => {
                let config = file.display();
                tracing::info!(
                    %config, name, database = outbox, named_by, integrations, "the relay runs"
                );
            }
            None => tracing::info!(
                name,
                database = outbox,
                named_by,
                integrations,
                "the relay runs, without a configuration"
            ),
        }
    }
    if names.is_empty() {
        tracing::warn!("no integrations are configured: nothing will be delivered");
    }
}

pub(super) fn print_pass(pass: Pass, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&pass);
    }
    // Standard output belongs to the sink of that name.
    eprintln!("{}", described(pass));
    Ok(())
}

/// What a pass did, for people.
pub(super) fn described(pass: Pass) -> String {
    let Pass { taken, sent, failed, dead, released } = pass;
    format!(
        "{taken} taken: {sent} sent, {failed} to be tried again, {dead} dead, {released} given back"
    )
}
