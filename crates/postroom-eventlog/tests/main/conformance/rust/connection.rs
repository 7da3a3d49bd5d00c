//! Reaching the server: discovery, TLS, users, restarts; and what it refuses.

use super::persistent::{GROUP, take};
use super::stage::{Follower, Stage, all, connect, events, eventually, fails, ids, same, stream};
use super::{Proves, proves};
use anyhow::{Context as _, ensure};
use kurrentdb::operations::{self, OperationalOptions, StatsOptions};
use kurrentdb::{
    AppendToStreamOptions, Client, Credentials, Error, NakAction, PersistentSubscriptionOptions,
    ReadStreamOptions, RetryOptions, StreamPosition, StreamState, SubscribeToStreamOptions,
};
use std::time::Duration;

pub(super) const PROVES: &[Proves] = proves![
    "server-features" => server_features,
    "discover" => discover,
    "tls" => tls,
    "tls-untrusted" => tls_untrusted,
    "auth-right" => auth_right,
    "auth-wrong" => auth_wrong,
    "auth-none" => auth_none,
    "reconnect-after-restart" => reconnect,
    "resume-after-restart" => resume,
    "persistent-after-restart" => persistent_after_restart,
    "refuses-projections" => projections,
    "refuses-users" => users,
    "refuses-statistics" => statistics,
];

async fn server_features(stage: &mut Stage) -> anyhow::Result<()> {
    let version = stage.client.server_info().await?.version();
    ensure!(version >= (22, 10), "version {version} lacks what clients ask for");
    Ok(())
}

fn whole() -> SubscribeToStreamOptions {
    SubscribeToStreamOptions::default().start_from(StreamPosition::Start)
}

/// Appends with this client, reads it back, and follows it.
async fn round_trip(client: &Client) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(2));
    client.append_to_stream(stream.as_str(), &Default::default(), new).await?;
    let read = all(client.read_stream(stream.as_str(), &Default::default()).await?).await?;
    same(ids(&read), new_ids.clone(), "what was read")?;
    let mut followed = Follower::new(client.subscribe_to_stream(stream, &whole()).await).await?;
    same(ids(&followed.take(2).await?), new_ids, "what was followed")
}

async fn discover(stage: &mut Stage) -> anyhow::Result<()> {
    for scheme in ["kurrentdb+discover", "esdb+discover"] {
        round_trip(&connect(&format!("{scheme}://{}?tls=false", stage.servers.plain()))?).await?;
    }
    Ok(())
}

async fn tls(stage: &mut Stage) -> anyhow::Result<()> {
    round_trip(&stage.secure(stage.servers.user(), stage.servers.password())?).await
}

async fn tls_untrusted(stage: &mut Stage) -> anyhow::Result<()> {
    // With the certificates of this machine, which do not include the tests' authority.
    let client = connect(&format!("kurrentdb://{}?tls=true", stage.servers.secure()))?;
    let read = client.read_stream(stream(), &Default::default()).await.map(|_| ());
    fails(read, |error| matches!(error, Error::GrpcConnectionError(_)), "a call")
}

async fn auth_right(stage: &mut Stage) -> anyhow::Result<()> {
    let (user, password) = (stage.servers.user().to_owned(), stage.servers.password().to_owned());
    round_trip(&stage.secure(&user, &password)?).await?;
    // For one call only.
    let client = stage.secure("", "")?;
    let options = AppendToStreamOptions::default().authenticated(Credentials::new(user, password));
    client.append_to_stream(stream(), &options, events(1).0).await?;
    Ok(())
}

async fn refused(client: Client) -> anyhow::Result<()> {
    let denied = |error: &Error| matches!(error, Error::AccessDenied);
    let (name, any) = (stream(), Default::default());
    let appended = client.append_to_stream(name.as_str(), &any, events(1).0).await;
    fails(appended, denied, "an append")?;
    let read = client.read_stream(name.as_str(), &ReadStreamOptions::default()).await;
    fails(read.map(|_| ()), denied, "a read")?;
    let mut subscription = client.subscribe_to_stream(name.as_str(), &whole()).await;
    fails(subscription.next().await, denied, "a subscription")?;
    let options = PersistentSubscriptionOptions::default();
    let created = client.create_persistent_subscription(name.as_str(), GROUP, &options).await;
    fails(created, denied, "a group")?;
    let deleted = client.delete_stream(name.as_str(), &Default::default()).await;
    fails(deleted, denied, "a deletion")?;
    let batches = client.batch_append(&Default::default()).await?;
    let appended = batches.append_to_stream(&name, StreamState::Any, events(1).0).await;
    // This client says only that the batches have ended if it learns of it before the first one.
    let ended = |error: &Error| error.to_string().contains("Batch-append stream has been closed");
    fails(appended, |error| denied(error) || ended(error), "a batch")
}

async fn auth_wrong(stage: &mut Stage) -> anyhow::Result<()> {
    refused(stage.secure(stage.servers.user(), "wrong")?).await?;
    refused(stage.secure("nobody", stage.servers.password())?).await
}

async fn auth_none(stage: &mut Stage) -> anyhow::Result<()> {
    refused(stage.secure("", "")?).await
}

fn restarted(stage: &Stage) -> anyhow::Result<Client> {
    connect(&format!("kurrentdb://{}?tls=false", stage.servers.restarted()))
}

async fn reconnect(stage: &mut Stage) -> anyhow::Result<()> {
    let client = restarted(stage)?;
    let (stream, (new, new_ids)) = (stream(), events(3));
    let append = async |state, new| {
        let options = AppendToStreamOptions::default().stream_state(state);
        client.append_to_stream(stream.as_str(), &options, new).await
    };
    append(StreamState::NoStream, new[..2].to_vec()).await?;
    let followed = client.subscribe_to_stream(stream.as_str(), &whole()).await;
    let mut followed = Follower::new(followed).await?;
    followed.take(2).await?;
    stage.servers.stop().await;
    ensure!(followed.take(1).await.is_err(), "a subscription outlived the server");
    let while_away = append(StreamState::StreamRevision(1), new[2..].to_vec()).await;
    ensure!(while_away.is_err(), "an append succeeded without the server");
    stage.servers.start_again().await;
    append(StreamState::StreamRevision(1), new[2..].to_vec()).await?;
    let read = all(client.read_stream(stream.as_str(), &Default::default()).await?).await?;
    same(ids(&read), new_ids, "the events")
}

async fn resume(stage: &mut Stage) -> anyhow::Result<()> {
    let client = restarted(stage)?;
    let (stream, (new, new_ids)) = (stream(), events(4));
    client.append_to_stream(stream.as_str(), &Default::default(), new[..2].to_vec()).await?;
    let retry = RetryOptions::default().retry_forever().retry_delay(Duration::from_millis(50));
    let options = whole().retry_options(retry);
    let followed = client.subscribe_to_stream(stream.as_str(), &options).await;
    let mut followed = Follower::new(followed).await?;
    same(ids(&followed.take(2).await?), new_ids[..2].to_vec(), "before the restart")?;
    stage.servers.stop().await;
    stage.servers.start_again().await;
    client.append_to_stream(stream.as_str(), &Default::default(), new[2..].to_vec()).await?;
    same(ids(&followed.take(2).await?), new_ids[2..].to_vec(), "after the restart")
}

async fn persistent_after_restart(stage: &mut Stage) -> anyhow::Result<()> {
    let client = restarted(stage)?;
    let (stream, (new, new_ids)) = (stream(), events(3));
    let (stream, any) = (stream.as_str(), Default::default());
    client.append_to_stream(stream, &any, new).await?;
    let options = PersistentSubscriptionOptions::default()
        .start_from(StreamPosition::Start)
        .max_retry_count(3);
    client.create_persistent_subscription(stream, GROUP, &options).await?;
    let info =
        async || client.get_persistent_subscription_info(stream, GROUP, &Default::default()).await;
    let consume = async || {
        let options = Default::default();
        let consumer = client.subscribe_to_persistent_subscription(stream, GROUP, &options);
        let mut consumer = consumer.await?;
        consumer.next_subscription_event().await?;
        kurrentdb::Result::Ok(consumer)
    };
    let mut first = consume().await?;
    let read = take(&mut first, 3).await?;
    first.nack(&read[0], NakAction::Park, "because").await?;
    let is_parked = async || Ok(info().await?.stats.parked_message_count == 1);
    eventually("one is parked", is_parked).await?;
    drop(first);
    stage.servers.stop().await;
    stage.servers.start_again().await;
    let found = info().await?;
    let retries = found.settings.context("settings")?.max_retry_count;
    same((retries, found.stats.parked_message_count), (3, 1), "what was kept")?;
    let mut second = consume().await?;
    same(ids(&take(&mut second, 2).await?), new_ids[1..].to_vec(), "what was not acknowledged")
}

async fn projections(stage: &mut Stage) -> anyhow::Result<()> {
    let client = kurrentdb::ProjectionClient::from(stage.client.clone());
    let created = client.create("p", "fromAll()".to_owned(), &Default::default()).await;
    fails(created, Error::is_unsupported_feature, "a projection")
}

fn operations(stage: &Stage) -> anyhow::Result<operations::Client> {
    let settings = format!("kurrentdb://{}?tls=false", stage.servers.plain()).parse()?;
    operations::Client::new(settings).map_err(|error| anyhow::anyhow!("{error}"))
}

async fn users(stage: &mut Stage) -> anyhow::Result<()> {
    let (client, options) = (operations(stage)?, OperationalOptions::default());
    let created = client.create_user("a", "b", "c", Vec::new(), &options).await;
    fails(created, Error::is_unsupported_feature, "a user")
}

async fn statistics(stage: &mut Stage) -> anyhow::Result<()> {
    let asked = operations(stage)?.stats(&StatsOptions::default()).await;
    fails(asked.map(|_| ()), Error::is_unsupported_feature, "statistics")
}
