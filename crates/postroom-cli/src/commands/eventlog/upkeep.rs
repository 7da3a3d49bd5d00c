//! `postroom eventlog check`, `repair`, `scavenge` and `backup`.

use crate::args::{Backup, Look, Scavenge};
use crate::failure::Failure;
use crate::output::{count, print, print_json};
use anyhow::Context as _;
use postroom_eventlog::upkeep::{self, Checked};
use postroom_eventlog::{EventLog, FolderError, OpenError, Settings, remote};
use serde_json::json;
use std::path::Path;

pub(super) async fn check(args: &Look) -> Result<(), Failure> {
    let folder = args.data.data.clone();
    let checked = blocking(move || upkeep::check(&folder)).await?;
    let is_whole = checked.damage.is_empty();
    if args.json {
        let damage: Vec<_> = checked
            .damage
            .iter()
            .map(|one| json!({ "segment": one.segment, "offset": one.offset, "what": one.what }))
            .collect();
        print_json(&json!({
            "ok": is_whole,
            "segments": checked.segments,
            "events": checked.events,
            "bytes": checked.bytes,
            "unacknowledged_bytes": checked.unacknowledged,
            "damage": damage,
        }))?;
    } else {
        print(&described(&checked))?;
    }
    if is_whole { Ok(()) } else { Err(Failure::Told) }
}

fn described(checked: &Checked) -> String {
    let mut text = format!(
        "{} events in {} segments, {} bytes\n",
        count(checked.events),
        count(checked.segments as u64),
        count(checked.bytes)
    );
    if checked.unacknowledged > 0 {
        text.push_str(&format!(
            "{} bytes at the end are no whole append, as after a crash; the next start cuts them\n",
            count(checked.unacknowledged)
        ));
    }
    for damage in &checked.damage {
        let (segment, offset, what) = (&damage.segment, damage.offset, damage.what);
        text.push_str(&format!("damaged: {segment} at offset {offset}: {what}\n"));
    }
    text.push_str(if checked.damage.is_empty() {
        "the log is whole\n"
    } else {
        "a damaged log does not start: restore a backup, or run `postroom eventlog repair`, which \
         keeps every whole event\n"
    });
    text
}

pub(super) async fn repair(args: &Look) -> Result<(), Failure> {
    let folder = args.data.data.clone();
    let repaired = blocking(move || upkeep::repair(&folder)).await?;
    if args.json {
        let (segments, events) = (&repaired.segments, repaired.events);
        return Ok(print_json(&json!({ "segments": segments, "events": events }))?);
    }
    let events = count(repaired.events);
    let mut text = String::new();
    for segment in &repaired.segments {
        text.push_str(&format!(
            "made {segment} again; its file as it was, if it was there, ends in .damaged\n"
        ));
    }
    text.push_str(&if repaired.segments.is_empty() {
        format!("nothing to repair: the log is whole, with {events} events\n")
    } else {
        format!("the log starts again, with the {events} events that are whole\n")
    });
    Ok(print(&text)?)
}

pub(super) async fn scavenge(args: &Scavenge) -> Result<(), Failure> {
    if let Some(url) = &args.url {
        let id = remote::start_scavenge(url).await.map_err(anyhow::Error::from)?;
        if args.json {
            return Ok(print_json(&json!({ "scavenge_id": id }))?);
        }
        print(&format!("the server scavenges now ({id}); its log says when it is done\n"))?;
        return Ok(());
    }
    let folder = args.data.data.clone();
    // A folder that was named by mistake is not made.
    let opened = blocking(move || EventLog::open_existing(&folder, Settings::default())).await;
    let log = opened.map_err(|failure| named_server(failure, &args.data.data))?;
    let done = log.scavenge().await.map_err(anyhow::Error::from)?;
    log.close().await;
    if args.json {
        return Ok(print_json(&json!({ "events": done.events, "bytes": done.bytes }))?);
    }
    let (events, bytes) = (count(done.events), count(done.bytes));
    Ok(print(&format!("{events} events are gone, {bytes} bytes are free\n"))?)
}

/// A folder that a server has open is scavenged by that server.
fn named_server(failure: Failure, folder: &Path) -> Failure {
    match failure {
        Failure::Failed(error)
            if matches!(
                error.downcast_ref(),
                Some(OpenError::Folder(FolderError::InUse { .. }))
            ) =>
        {
            Failure::Failed(anyhow::anyhow!(
                "a server has {} open: it scavenges while it runs, when asked with \
                 `--url esdb://HOST:PORT?tls=false`, its connection string",
                folder.display()
            ))
        }
        other => other,
    }
}

pub(super) async fn backup(args: &Backup) -> Result<(), Failure> {
    let (from, to) = (args.data.data.clone(), args.to.clone());
    let done = tokio::task::spawn_blocking(move || upkeep::backup(&from, &to)).await;
    let done = done.context("copying")?.map_err(anyhow::Error::from)?;
    if args.json {
        let (segments, bytes) = (done.segments, done.bytes);
        return Ok(print_json(&json!({ "segments": segments, "bytes": bytes }))?);
    }
    let (to, bytes) = (args.to.display(), count(done.bytes));
    Ok(print(&format!("{to} holds {bytes} bytes and was checked; serve it with --data {to}\n"))?)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await.context("reading the log")?;
    Ok(done.map_err(anyhow::Error::from)?)
}
