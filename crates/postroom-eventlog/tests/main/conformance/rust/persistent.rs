//! Persistent subscriptions: what one consumer gets, and how groups are kept.

use super::stage::{Stage, events, eventually, fails, ids, in_time, same, stream};
use super::{Proves, proves};
use anyhow::{Context as _, bail, ensure};
use kurrentdb::{
    Error, EventData, NakAction, PersistentSubscription, PersistentSubscriptionEvent,
    PersistentSubscriptionInfo, PersistentSubscriptionOptions, ReplayParkedMessagesOptions,
    ResolvedEvent, StreamPosition, SystemConsumerStrategy,
};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

pub(super) const PROVES: &[Proves] = proves![
    "persistent-create" => create,
    "persistent-ack" => ack,
    "persistent-retry" => retry,
    "persistent-skip" => skip,
    "persistent-park-and-replay" => park,
    "persistent-replay-some" => replay_some,
    "persistent-message-timeout" => message_timeout,
    "persistent-max-retries" => max_retries,
    "persistent-start-from" => start_from,
    "persistent-info" => get_info,
    "persistent-list" => list,
    "persistent-update" => update,
    "persistent-delete" => delete,
    "persistent-missing" => missing,
    "persistent-max-subscribers" => max_subscribers,
    "persistent-restart" => restart,
];

pub(super) const GROUP: &str = "group";

/// Settings of a group that begins with the first event.
fn from_start() -> PersistentSubscriptionOptions {
    PersistentSubscriptionOptions::default().start_from(StreamPosition::Start)
}

/// A group on a new stream; returns the stream.
async fn grouped(
    stage: &Stage,
    new: &[EventData],
    options: PersistentSubscriptionOptions,
) -> anyhow::Result<String> {
    let stream = stream();
    if !new.is_empty() {
        stage.append(&stream, new).await?;
    }
    stage.client.create_persistent_subscription(stream.as_str(), GROUP, &options).await?;
    Ok(stream)
}

/// A consumer of the group, once the server has confirmed it.
pub(super) async fn consume(
    stage: &Stage,
    stream: &str,
) -> kurrentdb::Result<PersistentSubscription> {
    let options = Default::default();
    let client = &stage.client;
    let mut consumer = client.subscribe_to_persistent_subscription(stream, GROUP, &options).await?;
    match consumer.next_subscription_event().await? {
        PersistentSubscriptionEvent::Confirmed(_) => Ok(consumer),
        other => Err(Error::IllegalStateError(format!("the first notice is {other:?}"))),
    }
}

/// The next event, and how often it was retried.
pub(super) async fn next(
    consumer: &mut PersistentSubscription,
) -> anyhow::Result<(ResolvedEvent, usize)> {
    match in_time("a next event", consumer.next_subscription_event()).await?? {
        PersistentSubscriptionEvent::EventAppeared { retry_count, event } => {
            Ok((event, retry_count))
        }
        PersistentSubscriptionEvent::Confirmed(_) => bail!("confirmed twice"),
    }
}

pub(super) async fn take(
    consumer: &mut PersistentSubscription,
    count: usize,
) -> anyhow::Result<Vec<ResolvedEvent>> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(next(consumer).await?.0);
    }
    Ok(events)
}

async fn info(stage: &Stage, stream: &str) -> kurrentdb::Result<PersistentSubscriptionInfo<u64>> {
    stage.client.get_persistent_subscription_info(stream, GROUP, &Default::default()).await
}

pub(super) async fn parked(stage: &Stage, stream: &str, count: usize) -> anyhow::Result<()> {
    let is_parked = async || Ok(info(stage, stream).await?.stats.parked_message_count == count);
    eventually(&format!("{count} are parked"), is_parked).await
}

pub(super) async fn acknowledged(stage: &Stage, stream: &str) -> anyhow::Result<()> {
    let is_done = async || Ok(info(stage, stream).await?.stats.outstanding_messages_count == 0);
    eventually("all are acknowledged", is_done).await
}

fn not_found(error: &Error) -> bool {
    matches!(error, Error::ResourceNotFound)
}

async fn create(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &[], from_start()).await?;
    let create = async |group| {
        let options = from_start();
        stage.client.create_persistent_subscription(stream.as_str(), group, &options).await
    };
    let exists = |error: &Error| matches!(error, Error::ResourceAlreadyExists);
    fails(create(GROUP).await, exists, "the same group again")?;
    Ok(create("another").await?)
}

async fn ack(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(4);
    let options = from_start().message_timeout(Duration::from_secs(1));
    let stream = grouped(stage, &new[..3], options).await?;
    let mut first = consume(stage, &stream).await?;
    for id in &new_ids[..3] {
        let (event, retries) = next(&mut first).await?;
        same((event.get_original_event().id, retries), (*id, 0), "an event and its retries")?;
        first.ack(&event).await?;
    }
    acknowledged(stage, &stream).await?;
    stage.append(&stream, &new[3..]).await?;
    same(ids(&take(&mut first, 1).await?), new_ids[3..].to_vec(), "what comes next")?;
    drop(first);
    // What a consumer leaves behind goes to the next one.
    let mut second = consume(stage, &stream).await?;
    same(ids(&take(&mut second, 1).await?), new_ids[3..].to_vec(), "what the first one left")
}

async fn retry(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(1);
    let stream = grouped(stage, &new, from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    let (first, _) = next(&mut consumer).await?;
    consumer.nack(&first, NakAction::Retry, "again").await?;
    let (second, retries) = next(&mut consumer).await?;
    same((second.get_original_event().id, retries), (new_ids[0], 1), "the event and its retries")
}

async fn skip(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(2);
    let stream = grouped(stage, &new[..1], from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    let (first, _) = next(&mut consumer).await?;
    consumer.nack(&first, NakAction::Skip, "unwanted").await?;
    stage.append(&stream, &new[1..]).await?;
    same(ids(&take(&mut consumer, 1).await?), new_ids[1..].to_vec(), "what comes next")?;
    same(info(stage, &stream).await?.stats.parked_message_count, 0, "the number of parked events")
}

async fn replay(stage: &Stage, stream: &str, at_most: Option<usize>) -> anyhow::Result<()> {
    let options = ReplayParkedMessagesOptions::default();
    let options = at_most.map_or(options.clone(), |count| options.stop_at(count));
    Ok(stage.client.replay_parked_messages(stream, GROUP, &options).await?)
}

async fn park(stage: &mut Stage) -> anyhow::Result<()> {
    let ((new, new_ids), (more, more_ids)) = (events(3), events(1));
    let stream = grouped(stage, &new, from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    let read = take(&mut consumer, 3).await?;
    consumer.nack(&read[0], NakAction::Park, "because").await?;
    consumer.ack(&read[1]).await?;
    consumer.nack(&read[2], NakAction::Park, "because").await?;
    parked(stage, &stream, 2).await?;
    replay(stage, &stream, None).await?;
    let again = take(&mut consumer, 2).await?;
    let replayed: HashSet<Uuid> = ids(&again).into_iter().collect();
    same(replayed, HashSet::from([new_ids[0], new_ids[2]]), "what was replayed")?;
    for event in &again {
        consumer.ack(event).await?;
    }
    parked(stage, &stream, 0).await?;
    replay(stage, &stream, None).await?;
    stage.append(&stream, &more).await?;
    same(ids(&take(&mut consumer, 1).await?), more_ids, "what comes after a replay of nothing")
}

async fn replay_some(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &events(3).0, from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    for event in take(&mut consumer, 3).await? {
        consumer.nack(&event, NakAction::Park, "because").await?;
    }
    parked(stage, &stream, 3).await?;
    replay(stage, &stream, Some(2)).await?;
    for event in take(&mut consumer, 2).await? {
        consumer.ack(&event).await?;
    }
    parked(stage, &stream, 1).await
}

async fn message_timeout(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(1);
    let options = from_start().message_timeout(Duration::from_millis(500));
    let stream = grouped(stage, &new, options).await?;
    let mut consumer = consume(stage, &stream).await?;
    for expected in 0..2 {
        let (event, retries) = next(&mut consumer).await?;
        let actual = (event.get_original_event().id, retries);
        same(actual, (new_ids[0], expected), "the event and its retries")?;
    }
    Ok(())
}

async fn max_retries(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &events(1).0, from_start().max_retry_count(1)).await?;
    let mut consumer = consume(stage, &stream).await?;
    for _ in 0..2 {
        let (event, _) = next(&mut consumer).await?;
        consumer.nack(&event, NakAction::Retry, "again").await?;
    }
    parked(stage, &stream, 1).await
}

async fn start_from(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(4);
    let at = |position| PersistentSubscriptionOptions::default().start_from(position);
    let middle = grouped(stage, &new[..3], at(StreamPosition::Position(1))).await?;
    let mut consumer = consume(stage, &middle).await?;
    same(ids(&take(&mut consumer, 2).await?), new_ids[1..3].to_vec(), "from a revision")?;
    let end = grouped(stage, &events(3).0, at(StreamPosition::End)).await?;
    let mut consumer = consume(stage, &end).await?;
    stage.append(&end, &new[3..]).await?;
    same(ids(&take(&mut consumer, 1).await?), new_ids[3..].to_vec(), "from the end")
}

async fn get_info(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &events(1).0, from_start().max_retry_count(7)).await?;
    let mut consumer = consume(stage, &stream).await?;
    next(&mut consumer).await?;
    let found = info(stage, &stream).await?;
    let names = (found.event_source.as_str(), found.group_name.as_str());
    same(names, (stream.as_str(), GROUP), "the names")?;
    let settings = found.settings.context("settings")?;
    same(settings.max_retry_count, 7, "the retries")?;
    same(settings.start_from, StreamPosition::Start, "the start")?;
    same(settings.message_timeout, Duration::from_secs(30), "the timeout")?;
    let strategy = settings.consumer_strategy_name;
    same(strategy, SystemConsumerStrategy::RoundRobin, "the strategy")?;
    let figures = (found.connections.len(), found.stats.outstanding_messages_count);
    same(figures, (1, 1), "consumers and outstanding events")
}

async fn list(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &[], from_start()).await?;
    let other = grouped(stage, &[], from_start()).await?;
    let client = &stage.client;
    client.create_persistent_subscription(stream.as_str(), "second", &from_start()).await?;
    let options = Default::default();
    let found = client.list_persistent_subscriptions_for_stream(&stream, &options).await?;
    let groups: HashSet<&str> = found.iter().map(|each| each.group_name.as_str()).collect();
    same(groups, HashSet::from([GROUP, "second"]), "the groups of the stream")?;
    let every = client.list_all_persistent_subscriptions(&options).await?;
    let sources: HashSet<String> = every.into_iter().map(|each| each.event_source).collect();
    ensure!(sources.contains(&stream) && sources.contains(&other), "one is not in the list of all");
    Ok(())
}

async fn update(stage: &mut Stage) -> anyhow::Result<()> {
    let options = from_start().resolve_link_tos(true);
    let stream = grouped(stage, &[], options.clone()).await?;
    let changed = options.max_retry_count(3);
    let client = &stage.client;
    client.update_persistent_subscription(stream.as_str(), GROUP, &changed).await?;
    let settings = info(stage, &stream).await?.settings.context("settings")?;
    same((settings.max_retry_count, settings.resolve_link_tos), (3, true), "the settings")?;
    let other = client.update_persistent_subscription(stream.as_str(), "missing", &changed).await;
    fails(other, not_found, "a group that is not there")
}

async fn delete(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = grouped(stage, &events(1).0, from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    next(&mut consumer).await?;
    let options = Default::default();
    stage.client.delete_persistent_subscription(stream.as_str(), GROUP, &options).await?;
    let dropped = in_time("the end", consumer.next_subscription_event()).await?;
    let is_dropped = |error: &Error| error.to_string().contains("has dropped");
    fails(dropped, is_dropped, "a consumer of a deleted group")?;
    fails(consume(stage, &stream).await.map(|_| ()), not_found, "another consumer")
}

async fn missing(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    fails(consume(stage, &stream).await.map(|_| ()), not_found, "a consumer")?;
    fails(info(stage, &stream).await, not_found, "information")?;
    let (client, name) = (&stage.client, stream.as_str());
    let deleted = client.delete_persistent_subscription(name, GROUP, &Default::default()).await;
    fails(deleted, not_found, "a deletion")?;
    let replayed = client.replay_parked_messages(name, GROUP, &Default::default()).await;
    fails(replayed, not_found, "a replay")
}

async fn max_subscribers(stage: &mut Stage) -> anyhow::Result<()> {
    let options = PersistentSubscriptionOptions::default().max_subscriber_count(1);
    let stream = grouped(stage, &[], options).await?;
    let _first = consume(stage, &stream).await?;
    // This client has no error of its own for it.
    let is_full = |error: &Error| error.to_string().contains("Maximum subscriptions reached");
    fails(consume(stage, &stream).await.map(|_| ()), is_full, "a second consumer")
}

async fn restart(stage: &mut Stage) -> anyhow::Result<()> {
    let options = Default::default();
    stage.client.restart_persistent_subscription_subsystem(&options).await?;
    let (new, new_ids) = events(1);
    let stream = grouped(stage, &new, from_start()).await?;
    let mut consumer = consume(stage, &stream).await?;
    same(ids(&take(&mut consumer, 1).await?), new_ids, "the events")
}
