//! Catch-up subscriptions.

use super::stage::{Follower, Stage, category, events, events_of, ids, same, stream};
use super::{Proves, proves};
use anyhow::{Context as _, bail, ensure};
use kurrentdb::{
    Position, StreamPosition, SubscribeToAllOptions, SubscribeToStreamOptions, SubscriptionEvent,
    SubscriptionFilter,
};

pub(super) const PROVES: &[Proves] = proves![
    "catch-up-to-live-stream" => of_stream,
    "catch-up-to-live-all" => of_all,
    "subscribe-after-revision" => after_revision,
    "subscribe-after-position" => after_position,
    "subscribe-from-end" => from_end,
    "subscribe-missing-stream" => missing,
    "caught-up" => caught_up,
    "filter-prefix" => prefix,
    "filter-regex" => regex,
    "filter-checkpoint" => checkpoint,
];

async fn to_stream(
    stage: &Stage,
    name: &str,
    from: StreamPosition<u64>,
) -> anyhow::Result<Follower> {
    let options = SubscribeToStreamOptions::default().start_from(from);
    Follower::new(stage.client.subscribe_to_stream(name, &options).await).await
}

async fn to_all(stage: &Stage, options: SubscribeToAllOptions) -> anyhow::Result<Follower> {
    Follower::new(stage.client.subscribe_to_all(&options).await).await
}

fn after(position: Position) -> SubscribeToAllOptions {
    SubscribeToAllOptions::default().position(StreamPosition::Position(position))
}

async fn of_stream(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (stream(), events(5));
    stage.append(&name, &new[..3]).await?;
    let mut subscription = to_stream(stage, &name, StreamPosition::Start).await?;
    same(ids(&subscription.take(3).await?), new_ids[..3].to_vec(), "the past")?;
    stage.append(&name, &new[3..]).await?;
    same(ids(&subscription.take(2).await?), new_ids[3..].to_vec(), "the present")
}

async fn of_all(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(4);
    let first = stage.append(&stream(), &events(1).0).await?;
    stage.append(&stream(), &new[..2]).await?;
    let mut subscription = to_all(stage, after(first.position)).await?;
    same(ids(&subscription.take(2).await?), new_ids[..2].to_vec(), "the past")?;
    stage.append(&stream(), &new[2..]).await?;
    same(ids(&subscription.take(2).await?), new_ids[2..].to_vec(), "the present")
}

async fn after_revision(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (stream(), events(4));
    stage.append(&name, &new).await?;
    let mut subscription = to_stream(stage, &name, StreamPosition::Position(1)).await?;
    same(ids(&subscription.take(2).await?), new_ids[2..].to_vec(), "the events")
}

async fn after_position(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(3);
    let first = stage.append(&stream(), &new[..1]).await?;
    stage.append(&stream(), &new[1..]).await?;
    let mut subscription = to_all(stage, after(first.position)).await?;
    same(ids(&subscription.take(2).await?), new_ids[1..].to_vec(), "the events")
}

async fn from_end(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (stream(), events(3));
    stage.append(&name, &new[..1]).await?;
    let mut of_stream = to_stream(stage, &name, StreamPosition::End).await?;
    let end = SubscribeToAllOptions::default().position(StreamPosition::End);
    let mut of_all = to_all(stage, end).await?;
    stage.append(&name, &new[1..]).await?;
    same(ids(&of_stream.take(2).await?), new_ids[1..].to_vec(), "of the stream")?;
    same(ids(&of_all.take(2).await?), new_ids[1..].to_vec(), "of the log")
}

async fn missing(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (stream(), events(2));
    let mut subscription = to_stream(stage, &name, StreamPosition::Start).await?;
    stage.append(&name, &new).await?;
    same(ids(&subscription.take(2).await?), new_ids, "the events")
}

async fn caught_up(stage: &mut Stage) -> anyhow::Result<()> {
    let name = stream();
    let written = stage.append(&name, &events(3).0).await?;
    let mut subscription = to_stream(stage, &name, StreamPosition::Start).await?;
    subscription.take(3).await?;
    let SubscriptionEvent::CaughtUp(notice) = subscription.notice().await? else {
        bail!("the events of a stream are not followed by the notice");
    };
    let notice = notice.context("the notice of a stream has no time")?;
    same(notice.stream_revision, Some(2), "the revision")?;
    let age = chrono::Utc::now().signed_duration_since(notice.date).num_seconds();
    ensure!((-60..60).contains(&age), "a notice from {age} s ago");
    let mut subscription = to_all(stage, after(written.position)).await?;
    loop {
        if let SubscriptionEvent::CaughtUp(notice) = subscription.notice().await? {
            let position = notice.and_then(|notice| notice.position);
            ensure!(position >= Some(written.position), "the notice says {position:?}");
            return Ok(());
        }
    }
}

async fn prefix(stage: &mut Stage) -> anyhow::Result<()> {
    let event_type = category();
    let (new, new_ids) = events_of(&format!("{event_type}-wanted"), 3);
    let first = stage.append(&stream(), &events(1).0).await?;
    stage.append(&stream(), &[events(2).0, new[..2].to_vec()].concat()).await?;
    let filter = SubscriptionFilter::on_event_type().add_prefix(format!("{event_type}-"));
    let mut subscription = to_all(stage, after(first.position).filter(filter)).await?;
    same(ids(&subscription.take(2).await?), new_ids[..2].to_vec(), "the past")?;
    stage.append(&stream(), &[events(2).0, new[2..].to_vec()].concat()).await?;
    same(ids(&subscription.take(1).await?), new_ids[2..].to_vec(), "the present")
}

async fn regex(stage: &mut Stage) -> anyhow::Result<()> {
    let (mark, (new, new_ids)) = (category(), events(3));
    let first = stage.append(&stream(), &events(1).0).await?;
    stage.append(&format!("{mark}-12"), &new[..1]).await?;
    stage.append(&format!("{mark}-x"), &events(1).0).await?;
    let filter = SubscriptionFilter::on_stream_name().regex(format!("^{mark}-[0-9]+$"));
    let mut subscription = to_all(stage, after(first.position).filter(filter)).await?;
    same(ids(&subscription.take(1).await?), new_ids[..1].to_vec(), "the past")?;
    stage.append(&format!("{mark}-3"), &new[1..]).await?;
    same(ids(&subscription.take(2).await?), new_ids[1..].to_vec(), "the present")
}

async fn checkpoint(stage: &mut Stage) -> anyhow::Result<()> {
    let start = stage.append(&stream(), &events(1).0).await?.position;
    let end = stage.append(&stream(), &events_of("unwanted", 200).0).await?.position;
    let filter = SubscriptionFilter::on_event_type().add_prefix(category()).max(20);
    let mut subscription = to_all(stage, after(start).filter(filter)).await?;
    let mut checkpoints = Vec::new();
    loop {
        match subscription.notice().await? {
            SubscriptionEvent::Checkpoint(position) => checkpoints.push(position),
            SubscriptionEvent::CaughtUp(_) => break,
            other => bail!("nothing else was wanted: {other:?}"),
        }
    }
    let count = checkpoints.len();
    ensure!(count >= 10, "200 events at one in 20 gave {count} checkpoints");
    ensure!(checkpoints.is_sorted(), "checkpoints that do not rise: {checkpoints:?}");
    let (first, last) = (checkpoints[0], checkpoints[count - 1]);
    ensure!(start < first && last >= end, "from {start} to {end}: {first} and {last}");
    // Whoever resumes from it misses nothing.
    let (new, new_ids) = events(1);
    stage.append(&stream(), &new).await?;
    let mut resumed = to_all(stage, after(last)).await?;
    same(ids(&resumed.take(1).await?), new_ids, "what follows the last checkpoint")
}
