//! `postroom demo`: a shop that commits orders, an outbox, a relay, and a receiver that
//! misbehaves; at the end, the proof that nothing was lost.

mod counted;
mod ledger;
mod producer;
mod progress;
mod proof;
mod receiver;
mod shop;

use super::stop::StopSignals;
use crate::args::{Common, Demo};
use crate::failure::Failure;
use crate::{config, output};
use anyhow::Context;
use counted::Counted;
use ledger::Ledger;
use postroom_core::{AttemptLimit, RetryPolicy, Store};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::{WebhookConfig, WebhookSink};
use postroom_store::OpenOptions;
use progress::Progress;
use proof::Proof;
use receiver::Receiver;
use shop::Shop;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

const MESSAGES: u64 = 2_000;
const RATE: u32 = 200;
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a stopped demo waits for what is still on its way.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// Fast, so that one need not wait to see it: a real receiver is given more time.
const RETRY: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(100),
    multiplier: 2.0,
    cap: Duration::from_secs(1),
    jitter: Duration::from_millis(100),
    max_attempts: AttemptLimit::Forever,
};

pub(super) async fn run(args: &Demo, common: &Common) -> Result<(), Failure> {
    let messages = args.messages.unwrap_or(MESSAGES);
    let rate = args.rate.or(args.messages.is_none().then_some(RATE));
    let mut signals = StopSignals::listen()?;
    let stage = Stage::set(common.database.as_deref()).await?;
    let ledger = Arc::new(Ledger::new(messages, stage.run.clone()));
    let receiver = Receiver::start(Arc::clone(&ledger)).await?;
    let webhook = WebhookConfig::new(&receiver.url()).and_then(|url| url.allow("127.0.0.0/8"));
    let sink = WebhookSink::new(webhook.map_err(anyhow::Error::msg)?.timeout(TIMEOUT))
        .context("cannot set up the demo's webhook")?;
    let lane = Lane {
        concurrency: 32,
        timeout: TIMEOUT * 2,
        retry: RETRY,
        ..Lane::new(&stage.integration, Arc::new(Counted::new(sink, Arc::clone(&ledger))))
    };
    let relay = Arc::new(Relay::new(Arc::clone(&stage.store), Settings::default(), vec![lane]));

    let (stop, stopped) = watch::channel(false);
    let relaying = tokio::spawn({
        let mut stopped = stopped.clone();
        async move {
            let stop = async { drop(stopped.wait_for(|stopped| *stopped).await) };
            relay.run(stop).await
        }
    });
    let progress = Progress::start(Arc::clone(&ledger), receiver.state(), messages);
    let (halt, halted) = watch::channel(false);
    let producing = producer::run(&stage, &ledger, rate, halted);
    let work = async {
        producing.await?;
        stage.await_drained().await
    };
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => done?,
        () = signals.next() => {
            // No more orders; what was committed still has to arrive.
            halt.send_replace(true);
            tokio::select! {
                done = tokio::time::timeout(DRAIN_LIMIT, &mut work) => done.unwrap_or(Ok(()))?,
                () = signals.next() => {}
            }
        }
    }
    stop.send_replace(true);
    relaying.await.context("the relay panicked")??;
    progress.stop().await;

    let waiting = stage.waiting().await?;
    let proof = Proof::draw(&ledger, waiting);
    if args.json {
        output::print_json(&proof.figures)?;
    } else {
        output::print(&proof.describe())?;
    }
    if proof.holds() { Ok(()) } else { Err(Failure::Told) }
}

/// The outbox, the shop that writes to it, and the name of this run.
struct Stage {
    shop: tokio::sync::Mutex<Shop>,
    store: Arc<dyn Store>,
    integration: String,
    run: String,
    /// Removed with everything in it when the demo ends.
    _folder: Option<tempfile::TempDir>,
}

impl Stage {
    async fn set(database: Option<&str>) -> Result<Self, Failure> {
        let run = Uuid::now_v7().simple().to_string();
        let (url, integration, folder) = match database {
            // Other runs and other relays may be at work there: keep out of their way.
            Some(url) => (checked(url)?, format!("webhook:demo-{run}"), None),
            None => {
                let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
                let file = folder.path().join("postroom.db");
                (format!("sqlite://{}", file.display()), "webhook:demo".to_owned(), Some(folder))
            }
        };
        match &folder {
            Some(_) => eprintln!("outbox: a temporary SQLite file"),
            None => eprintln!("outbox: {} (--database)", super::outbox::shown(&url)),
        }
        if super::outbox::sqlite_path(&url).is_some() {
            postroom_store::migrate(&url).await?;
        }
        let store = postroom_store::open(&url, &OpenOptions::default()).await?;
        store.ready().await?;
        let shop = Shop::open(&url, folder.is_none()).await?;
        Ok(Self { shop: tokio::sync::Mutex::new(shop), store, integration, run, _folder: folder })
    }

    /// Messages of this run that are still open.
    async fn waiting(&self) -> Result<u64, Failure> {
        let lanes = self.store.backlog().await?.lanes;
        let lane = lanes.iter().find(|lane| lane.integration == self.integration);
        Ok(lane.map_or(0, |lane| lane.pending + lane.claimed + lane.failed))
    }

    async fn await_drained(&self) -> Result<(), Failure> {
        while self.waiting().await? > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// The URL of `--database`, if the demo can use it.
fn checked(url: &str) -> Result<String, Failure> {
    let origin = config::Origin { file: None, database: Some(url), environment: &|_| None };
    let url = origin.databases()?.pop().map_or_else(|| url.to_owned(), |database| database.url);
    if url.starts_with("memory") {
        return Err(Failure::Usage(
            "--database memory: the demo commits in transactions, which need a database: leave \
             --database out for a temporary SQLite file"
                .to_owned(),
        ));
    }
    Ok(url)
}
