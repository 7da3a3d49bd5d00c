//! `postroom check`: is the configuration right, and can everything be reached?

use super::{each, outbox, run as relay};
use crate::args::Show;
use crate::config::{Config, Database, Origin, QueuedWorkers, Retention, units};
use crate::failure::Failure;
use crate::output::{self, Align};
use postroom_bullmq::Redis;
use postroom_core::{Severity, Store, Upkeep, with_causes};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The longest that one probe may take.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// The longest that looking for what is wrong with the outbox may take.
const DIAGNOSE_LIMIT: Duration = Duration::from_secs(60);

/// One line of the report.
#[derive(Serialize)]
struct Finding {
    /// Where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    what: String,
    result: Verdict,
    detail: String,
}

#[derive(Clone, Copy, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Fault,
}

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let config = origin.config()?;
    config.databases.iter().for_each(|database| outbox::announce(database, args.json));
    let mut findings = vec![configuration(&config)];
    let are_several = config.databases.len() > 1;
    let mut stores = Vec::new();
    for one in &config.databases {
        let (answer, store) = database(&config, one).await;
        let name = one.name.clone().filter(|_| are_several);
        findings.push(Finding { database: name.clone(), ..answer });
        findings.extend(retention(one).map(|found| Finding { database: name.clone(), ..found }));
        stores.extend(store.map(|store| (name, store)));
    }
    for integration in &config.integrations {
        let probe = async {
            let lane = relay::lane(integration).map_err(|failure| failure.to_string())?;
            lane.sink.probe().await.map_err(|error| error.to_string())
        };
        findings.push(finding(&integration.name, limited(probe).await, "can be reached"));
    }
    findings.extend(queued(&config).await);
    findings.extend(dead_letter(&config));
    for (name, store) in stores {
        let mut found = Vec::new();
        unrouted(&config, &*store, &mut found).await;
        outbox_findings(&*store, &mut found).await;
        findings.extend(found.into_iter().map(|one| Finding { database: name.clone(), ..one }));
    }
    report(&findings, are_several, args.json)?;
    if findings.iter().any(|finding| finding.result == Verdict::Fault) {
        return Err(Failure::Told);
    }
    Ok(())
}

/// What becomes of the rows of a table that somebody else made.
fn retention(database: &Database) -> Option<Finding> {
    let layout = database.layout.as_ref()?;
    let kept = database.retention.keep_sent;
    let detail = if layout.deletes_sent() || kept.is_zero() {
        "rows are DELETED once they are delivered, as the configuration says".to_owned()
    } else if kept == Retention::FOR_EVER {
        "Postroom deletes no row".to_owned()
    } else {
        let since = if layout.state.sent_at.is_some() { "delivery" } else { "creation" };
        format!(
            "rows that were delivered are DELETED {} after their {since}, as the configuration says",
            units::show_duration(kept)
        )
    };
    Some(finding(&layout.table, Ok(()), &detail))
}

fn configuration(config: &Config) -> Finding {
    let from = match &config.file {
        Some(file) => file.display().to_string(),
        None => "none, built-in defaults".to_owned(),
    };
    let count = config.names().len();
    let plural = if count == 1 { "" } else { "s" };
    finding("configuration", Ok(()), &format!("{from}: {count} integration{plural}"))
}

/// What goes through BullMQ: Redis, and the destinations of our own workers.
async fn queued(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.queued.is_empty() {
        return findings;
    }
    let redis = Redis::new(&config.redis);
    let place = redis.as_ref().map_or("redis", |redis| redis.place()).to_owned();
    let probe = async {
        let redis = redis.map_err(|fault| fault.to_string())?;
        redis.probe().await.map_err(|error| with_causes(&error))
    };
    findings.push(finding("redis", limited(probe).await, &place));
    for queued in &config.queued {
        let probe = async {
            let QueuedWorkers::Own { integration, .. } = &queued.workers else { return Ok(()) };
            let lane = relay::lane(integration).map_err(|failure| failure.to_string())?;
            lane.sink.probe().await.map_err(|error| error.to_string())
        };
        let good = match queued.workers {
            QueuedWorkers::Own { .. } => "can be reached; through BullMQ",
            QueuedWorkers::External => "through BullMQ, to workers of others",
        };
        findings.push(finding(&queued.name, limited(probe).await, good));
    }
    findings
}

async fn database(config: &Config, database: &Database) -> (Finding, Option<Arc<dyn Store>>) {
    let shown = outbox::shown(&database.url);
    if let Some(path) = outbox::sqlite_path(&database.url)
        && !path.exists()
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let result = match folder {
            Some(folder) if !folder.is_dir() => {
                Err(format!("{shown}: make the folder {} first", folder.display()))
            }
            _ if database.layout.is_some() => {
                Err(format!("{shown}: not there yet, `postroom migrate` makes it"))
            }
            _ => Ok(()),
        };
        let detail = format!("{shown}: not there yet, `postroom run` makes it");
        return (finding("database", result, &detail), None);
    }
    let probe = async {
        let store = postroom_store::open(&database.url, &relay::open_options(config, database))
            .await
            .map_err(|error| with_causes(&error))?;
        store.ready().await.map_err(|error| with_causes(&error))?;
        Ok(store)
    };
    match limited(probe).await {
        Ok(store) => (finding("database", Ok(()), &shown), Some(store)),
        Err(error) => (finding("database", Err(format!("{shown}: {error}")), ""), None),
    }
}

/// Announcements that nobody here would deliver.
fn dead_letter(config: &Config) -> Option<Finding> {
    let name = config.relay.dead_letter.as_ref()?;
    let served = config.names().contains(&name.as_str());
    (!served).then(|| Finding {
        database: None,
        what: "dead_letter".to_owned(),
        result: Verdict::Warning,
        detail: format!("no integration here serves {name}: its messages wait for another relay"),
    })
}

async fn unrouted(config: &Config, store: &dyn Upkeep, findings: &mut Vec<Finding>) {
    let waiting = match limited(async { store.backlog().await.map_err(|e| with_causes(&e)) }).await
    {
        Ok(backlog) => backlog.lanes,
        Err(error) => return findings.push(finding("backlog", Err(error), "")),
    };
    for lane in waiting {
        let open = lane.pending + lane.claimed + lane.failed;
        let name = lane.integration;
        if open > 0 && !config.names().contains(&name.as_str()) {
            findings.push(Finding {
                database: None,
                detail: format!(
                    "unrouted: {open} open; no integration here serves it: add \
                     [integrations.\"{name}\"], or run a relay that has it"
                ),
                what: name,
                result: Verdict::Warning,
            });
        }
    }
}

/// What is wrong with the outbox itself. Looking at a long history takes a while.
async fn outbox_findings(store: &dyn Upkeep, findings: &mut Vec<Finding>) {
    let looking = async { store.diagnose().await.map_err(|error| with_causes(&error)) };
    let found = match tokio::time::timeout(DIAGNOSE_LIMIT, looking).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return findings.push(finding("outbox", Err(error), "")),
        Err(_) => {
            return findings.push(Finding {
                database: None,
                what: "outbox".to_owned(),
                result: Verdict::Warning,
                detail: format!("not looked through within {DIAGNOSE_LIMIT:?}"),
            });
        }
    };
    findings.extend(found.into_iter().map(|found| Finding {
        database: None,
        what: "outbox".to_owned(),
        result: match found.severity {
            Severity::Fault => Verdict::Fault,
            Severity::Warning => Verdict::Warning,
        },
        detail: format!("{}; {}", found.problem, found.remedy),
    }));
}

fn finding(what: &str, result: Result<(), String>, good: &str) -> Finding {
    let (result, detail) = match result {
        Ok(()) => (Verdict::Ok, good.to_owned()),
        Err(error) => (Verdict::Fault, error),
    };
    Finding { database: None, what: what.to_owned(), result, detail }
}

async fn limited<T>(probe: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PROBE_LIMIT, probe)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {PROBE_LIMIT:?}")))
}

fn report(findings: &[Finding], are_several: bool, json: bool) -> anyhow::Result<()> {
    if json {
        let ok = findings.iter().all(|finding| finding.result != Verdict::Fault);
        return output::print_json(&serde_json::json!({ "ok": ok, "checks": findings }));
    }
    let mut table = each::table(are_several)
        .column("RESULT", Align::Left)
        .column("WHAT", Align::Left)
        .column("DETAIL", Align::Left);
    for finding in findings {
        let result = match finding.result {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Fault => "FAULT",
        };
        let cells = vec![result.to_owned(), finding.what.clone(), finding.detail.clone()];
        // What concerns all of them has none.
        let name = finding.database.as_deref().or(are_several.then_some(""));
        table.row(each::row(name, cells));
    }
    Ok(output::print_table(&table)?)
}
