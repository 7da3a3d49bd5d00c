//! Persistent subscriptions: how consumers share, and groups on the whole log and on links.

use super::persistent::{GROUP, acknowledged, next, parked, take};
use super::stage::{
    Stage, category, events, events_of, eventually, fresh, ids, in_time, same, stream,
};
use super::{Proves, proves};
use anyhow::{Context as _, ensure};
use kurrentdb::{
    NakAction, PersistentSubscription, PersistentSubscriptionEvent, PersistentSubscriptionOptions,
    PersistentSubscriptionToAllOptions, ResolvedEvent, StreamPosition,
    SubscribeToPersistentSubscriptionOptions, SubscriptionFilter, SystemConsumerStrategy,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub(super) const PROVES: &[Proves] = proves![
    "persistent-round-robin" => round_robin,
    "persistent-dispatch-to-single" => single,
    "persistent-pinned" => pinned,
    "persistent-all" => whole_log,
    "persistent-all-filter" => filtered,
    "persistent-links" => links,
];

/// Two consumers of a group, which acknowledge whatever they get.
struct TwoConsumers {
    arrived: mpsc::UnboundedReceiver<kurrentdb::Result<(usize, ResolvedEvent)>>,
    _tasks: JoinSet<()>,
}

impl TwoConsumers {
    async fn new(stage: &Stage, stream: &str) -> anyhow::Result<Self> {
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let options = SubscribeToPersistentSubscriptionOptions::default().buffer_size(20);
        for number in 0..2 {
            let client = &stage.client;
            let consumer = client.subscribe_to_persistent_subscription(stream, GROUP, &options);
            let mut consumer = consumer.await?;
            // The confirmation.
            in_time("a consumer", consumer.next_subscription_event()).await??;
            let sender = sender.clone();
            tasks.spawn(async move {
                loop {
                    let event = acknowledge_next(&mut consumer).await;
                    let is_end = event.is_err();
                    if sender.send(event.map(|event| (number, event))).is_err() || is_end {
                        break;
                    }
                }
            });
        }
        Ok(Self { arrived, _tasks: tasks })
    }

    /// What arrived next, with the number of the consumer that got it.
    async fn take(mut self, count: usize) -> anyhow::Result<Vec<(usize, ResolvedEvent)>> {
        let mut events = Vec::new();
        while events.len() < count {
            let event = in_time("a next event", self.arrived.recv()).await?;
            events.push(event.context("both consumers have ended")??);
        }
        Ok(events)
    }
}

async fn acknowledge_next(
    consumer: &mut PersistentSubscription,
) -> kurrentdb::Result<ResolvedEvent> {
    loop {
        let notice = consumer.next_subscription_event().await?;
        if let PersistentSubscriptionEvent::EventAppeared { event, .. } = notice {
            consumer.ack(&event).await?;
            return Ok(event);
        }
    }
}

/// How ten events went to two consumers: the number of each one's.
async fn shares(stage: &Stage, strategy: SystemConsumerStrategy) -> anyhow::Result<[usize; 2]> {
    let (stream, (new, new_ids)) = (stream(), events(10));
    let options = PersistentSubscriptionOptions::default().consumer_strategy_name(strategy);
    stage.client.create_persistent_subscription(stream.as_str(), GROUP, &options).await?;
    let consumers = TwoConsumers::new(stage, &stream).await?;
    stage.append(&stream, &new).await?;
    let arrived = consumers.take(10).await?;
    let seen: HashSet<_> = arrived.iter().map(|(_, e)| e.get_original_event().id).collect();
    same(seen, new_ids.into_iter().collect(), "what arrived")?;
    Ok([0, 1].map(|number| arrived.iter().filter(|(each, _)| *each == number).count()))
}

async fn round_robin(stage: &mut Stage) -> anyhow::Result<()> {
    same(shares(stage, SystemConsumerStrategy::RoundRobin).await?, [5, 5], "the shares")
}

async fn single(stage: &mut Stage) -> anyhow::Result<()> {
    let mut shares = shares(stage, SystemConsumerStrategy::DispatchToSingle).await?;
    shares.sort_unstable();
    same(shares, [0, 10], "the shares")
}

async fn pinned(stage: &mut Stage) -> anyhow::Result<()> {
    let name = category();
    let of_category = format!("$ce-{name}");
    let options = PersistentSubscriptionOptions::default()
        .resolve_link_tos(true)
        .start_from(StreamPosition::Start)
        .consumer_strategy_name(SystemConsumerStrategy::Pinned);
    stage.client.create_persistent_subscription(of_category.as_str(), GROUP, &options).await?;
    let consumers = TwoConsumers::new(stage, &of_category).await?;
    let streams: Vec<String> = (0..16).map(|_| fresh(&name)).collect();
    for _ in 0..3 {
        for stream in &streams {
            stage.append(stream, &events(1).0).await?;
        }
    }
    let mut homes: HashMap<String, HashSet<usize>> = HashMap::new();
    for (number, event) in consumers.take(48).await? {
        let event = event.event.context("an event without a target")?;
        homes.entry(event.stream_id().to_owned()).or_default().insert(number);
    }
    same(homes.len(), streams.len(), "the number of streams")?;
    ensure!(homes.values().all(|home| home.len() == 1), "a stream went to both consumers");
    let both: HashSet<usize> = homes.into_values().flatten().collect();
    same(both.len(), 2, "the number of consumers that got events")
}

/// A consumer of a group on the whole log.
async fn consume_all(stage: &Stage, group: &str) -> anyhow::Result<PersistentSubscription> {
    let (client, options) = (&stage.client, Default::default());
    let mut consumer = client.subscribe_to_persistent_subscription_to_all(group, &options).await?;
    in_time("the confirmation", consumer.next_subscription_event()).await??;
    Ok(consumer)
}

async fn whole_log(stage: &mut Stage) -> anyhow::Result<()> {
    let (group, (new, new_ids)) = (fresh("group"), events(3));
    let client = &stage.client;
    let first = stage.append(&stream(), &new[..1]).await?;
    let start = StreamPosition::Position(first.position);
    let options = PersistentSubscriptionToAllOptions::default().start_from(start);
    client.create_persistent_subscription_to_all(&group, &options).await?;
    stage.append(&stream(), &new[1..]).await?;
    let mut consumer = consume_all(stage, &group).await?;
    let read = take(&mut consumer, 3).await?;
    same(ids(&read), new_ids.clone(), "the events")?;
    consumer.nack(&read[0], NakAction::Park, "because").await?;
    for event in &read[1..] {
        consumer.ack(event).await?;
    }
    let info =
        async || client.get_persistent_subscription_info_to_all(&group, &Default::default()).await;
    let is_parked = async || Ok(info().await?.stats.parked_message_count == 1);
    eventually("one is parked", is_parked).await?;
    same(info().await?.settings.context("settings")?.start_from, start, "the start")?;
    client.replay_parked_messages_to_all(&group, &Default::default()).await?;
    let (again, _) = next(&mut consumer).await?;
    same(ids(std::slice::from_ref(&again)), new_ids[..1].to_vec(), "what was replayed")?;
    consumer.ack(&again).await?;
    drop(consumer);
    let changed = options.max_retry_count(3);
    client.update_persistent_subscription_to_all(&group, &changed).await?;
    same(info().await?.settings.context("settings")?.max_retry_count, 3, "the retries")?;
    let listed = client.list_persistent_subscriptions_to_all(&Default::default()).await?;
    ensure!(listed.iter().any(|each| each.group_name == group), "it is not in the list");
    Ok(client.delete_persistent_subscription_to_all(&group, &Default::default()).await?)
}

async fn filtered(stage: &mut Stage) -> anyhow::Result<()> {
    let (group, event_type) = (fresh("group"), category());
    let (new, new_ids) = events_of(&format!("{event_type}-wanted"), 3);
    stage.append(&stream(), &[events(2).0, new[..2].to_vec()].concat()).await?;
    let filter = SubscriptionFilter::on_event_type().add_prefix(format!("{event_type}-"));
    let options = PersistentSubscriptionToAllOptions::default()
        .start_from(StreamPosition::Start)
        .filter(filter);
    stage.client.create_persistent_subscription_to_all(&group, &options).await?;
    let mut consumer = consume_all(stage, &group).await?;
    stage.append(&stream(), &[events(2).0, new[2..].to_vec()].concat()).await?;
    let read = take(&mut consumer, 3).await?;
    same(ids(&read), new_ids, "the events")?;
    for event in &read {
        consumer.ack(event).await?;
    }
    drop(consumer);
    let client = &stage.client;
    Ok(client.delete_persistent_subscription_to_all(&group, &Default::default()).await?)
}

async fn links(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (category(), events(3));
    let stream = format!("$ce-{name}");
    stage.append(&fresh(&name), &new[..2]).await?;
    let options = PersistentSubscriptionOptions::default()
        .resolve_link_tos(true)
        .start_from(StreamPosition::Start)
        .message_timeout(Duration::from_secs(1));
    stage.client.create_persistent_subscription(stream.as_str(), GROUP, &options).await?;
    let mut consumer = super::persistent::consume(stage, &stream).await?;
    let read = take(&mut consumer, 2).await?;
    same(ids(&read), new_ids[..2].to_vec(), "the events")?;
    for (revision, event) in read.iter().enumerate() {
        let link = event.link.as_ref().context("an event without its link")?;
        same(link.revision, revision as u64, "the link's revision")?;
        consumer.ack(event).await?;
    }
    acknowledged(stage, &stream).await?;
    stage.append(&fresh(&name), &new[2..]).await?;
    let (third, _) = next(&mut consumer).await?;
    same(ids(std::slice::from_ref(&third)), new_ids[2..].to_vec(), "the third event")?;
    consumer.nack(&third, NakAction::Park, "because").await?;
    parked(stage, &stream, 1).await?;
    let client = &stage.client;
    client.replay_parked_messages(stream.as_str(), GROUP, &Default::default()).await?;
    let (again, _) = next(&mut consumer).await?;
    same(ids(std::slice::from_ref(&again)), new_ids[2..].to_vec(), "what was replayed")?;
    Ok(consumer.ack(&again).await?)
}
