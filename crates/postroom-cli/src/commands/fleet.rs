//! `postroom run` for the outboxes of `[databases]`: one relay for each, over shared destinations.

use super::each::Named;
use super::run::{
    announce, cut_off, described, end, has_stopped, lanes, open_options, pass_failed, print_pass,
    serve, stop_on,
};
use super::stop::StopSignals;
use crate::args::Run;
use crate::config::{Config, Database};
use crate::failure::Failure;
use crate::output;
use anyhow::anyhow;
use postroom_core::{Store, StoreResult};
use postroom_relay::{Fleet, Source};
use postroom_store::OpenOptions;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) async fn run(
    args: &Run,
    config: &Config,
    mut signals: StopSignals,
) -> Result<(), Failure> {
    let sources = config.databases.iter().map(|database| source(config, database)).collect();
    let fleet = Arc::new(Fleet::new(sources, lanes(config)?));
    if args.once {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let passes = tokio::select! {
            passes = fleet.tick(limit) => passes,
            () = signals.next() => return Err(cut_off(config)),
        };
        return report(config, passes, args.json);
    }
    let (stop, stopped) = watch::channel(false);
    let server = serve(config.listen, Arc::clone(&fleet) as _, stopped.clone()).await?;
    announce(config);
    stop_on(signals, stop.clone());
    let outcome = fleet.run(has_stopped(stopped)).await;
    // It may have ended by itself.
    stop.send_replace(true);
    outcome?;
    end(server);
    Ok(())
}

fn source(config: &Config, database: &Database) -> Source {
    let (url, options) = (database.url.clone(), open_options(config, database));
    let open = move || Box::pin(open(url.clone(), options.clone())) as _;
    Source {
        name: database.name.clone().unwrap_or_default(),
        open: Box::new(open),
        settings: config.settings(database),
    }
}

/// Opens an outbox; an embedded one, which belongs to nobody else, is made or upgraded first.
async fn open(url: String, options: OpenOptions) -> StoreResult<Arc<dyn Store>> {
    if options.layout.is_none() && super::outbox::sqlite_path(&url).is_some() {
        postroom_store::migrate(&url).await?;
    }
    postroom_store::open(&url, &options).await
}

/// Says what a pass did in each outbox, and fails where one of them could not be used.
fn report(config: &Config, mut passes: Passes, json: bool) -> Result<(), Failure> {
    if let [database] = &config.databases[..] {
        // Of a single one nobody needs the name.
        return match passes.pop() {
            Some((_, Ok(pass))) => Ok(print_pass(pass, json)?),
            Some((_, Err(error))) => Err(pass_failed(error, database)),
            None => Ok(()),
        };
    }
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for ((name, pass), database) in passes.into_iter().zip(&config.databases) {
        match pass {
            Ok(pass) if json => done.push((name, pass)),
            // Standard output belongs to the sink of that name.
            Ok(pass) => eprintln!("{name}: {}", described(pass)),
            Err(error) => failed.push(format!("{name}: {}", pass_failed(error, database))),
        }
    }
    if json {
        let done = done.iter().map(|(name, pass)| Named { database: Some(name), object: pass });
        output::print_json(&json!({ "databases": done.collect::<Vec<_>>() }))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(anyhow!(failed.join("; ")))) }
}

/// What became of each outbox.
type Passes = Vec<(String, Result<postroom_relay::Pass, postroom_relay::RelayError>)>;
