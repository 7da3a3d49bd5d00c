//! What ends events and streams: metadata, deletion, tombstones, scavenging.

use super::stage::{Stage, connect, events, eventually, fails, ids, same, stream};
use super::{Proves, proves};
use anyhow::bail;
use kurrentdb::operations::{self, OperationalOptions, ScavengeStatus};
use kurrentdb::{
    Acl, AppendToStreamOptions, DeleteStreamOptions, Error, ReadStreamOptions, StreamAclBuilder,
    StreamMetadata, StreamMetadataBuilder, StreamMetadataResult, StreamPosition, StreamState,
    TombstoneStreamOptions,
};
use std::time::Duration;

pub(super) const PROVES: &[Proves] = proves![
    "stream-metadata" => metadata,
    "max-count" => max_count,
    "max-age" => max_age,
    "truncate-before" => truncate_before,
    "delete" => delete,
    "delete-expected-revision" => delete_expected,
    "recreate-after-delete" => recreate,
    "tombstone" => tombstone,
    "scavenge" => scavenge,
];

async fn set(stage: &Stage, stream: &str, metadata: &StreamMetadata) -> anyhow::Result<()> {
    stage.client.set_stream_metadata(stream, &Default::default(), metadata).await?;
    Ok(())
}

async fn revisions(stage: &Stage, stream: &str) -> anyhow::Result<Vec<u64>> {
    let read = stage.read_whole(stream).await?;
    Ok(read.iter().map(|each| each.get_original_event().revision).collect())
}

fn not_found(error: &Error) -> bool {
    matches!(error, Error::ResourceNotFound)
}

async fn metadata(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    let last = ReadStreamOptions::default().position(StreamPosition::End).max_count(1);
    let found = stage.client.get_stream_metadata(stream.as_str(), &last).await?;
    same(found.is_not_found(), true, "whether there is none")?;
    let first = StreamMetadataBuilder::new()
        .max_age(Duration::from_secs(2))
        .acl(Acl::Stream(StreamAclBuilder::new().add_read_roles("ops").build()))
        .insert_custom_property("owner", "ops")
        .build();
    for (revision, metadata) in [first, StreamMetadata::new()].into_iter().enumerate() {
        set(stage, &stream, &metadata).await?;
        match stage.client.get_stream_metadata(stream.as_str(), &last).await? {
            StreamMetadataResult::Success(found) => {
                let found = (found.metadata(), found.version());
                same(found, (&metadata, revision as u64), "the metadata")?;
            }
            other => bail!("metadata that was set reads as {other:?}"),
        }
    }
    let options = AppendToStreamOptions::default().stream_state(StreamState::StreamRevision(0));
    let again = stage.client.set_stream_metadata(stream, &options, &StreamMetadata::new()).await;
    let is_wrong = |error: &Error| matches!(error, Error::WrongExpectedVersion { .. });
    fails(again, is_wrong, "an older revision")
}

async fn max_count(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids), (more, more_ids)) = (stream(), events(5), events(1));
    stage.append(&stream, &new).await?;
    set(stage, &stream, &StreamMetadataBuilder::new().max_count(2).build()).await?;
    same(revisions(stage, &stream).await?, vec![3, 4], "the revisions")?;
    stage.append_if(&stream, StreamState::StreamRevision(4), &more).await?;
    same(ids(&stage.read_whole(&stream).await?), vec![new_ids[4], more_ids[0]], "the events")
}

async fn max_age(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(2).0).await?;
    // This client writes milliseconds where the server takes seconds, as KurrentDB does.
    let metadata = StreamMetadataBuilder::new().max_age(Duration::from_millis(1)).build();
    set(stage, &stream, &metadata).await?;
    eventually("events of more than a second are hidden", async || {
        match stage.read_whole(&stream).await {
            Ok(read) => Ok(read.is_empty()),
            Err(Error::ResourceNotFound) => Ok(true),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    stage.append_if(&stream, StreamState::StreamRevision(1), &events(1).0).await?;
    same(revisions(stage, &stream).await?, vec![2], "the revisions")
}

async fn truncate_before(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(4).0).await?;
    set(stage, &stream, &StreamMetadataBuilder::new().truncate_before(2).build()).await?;
    same(revisions(stage, &stream).await?, vec![2, 3], "the revisions")?;
    let from = ReadStreamOptions::default().position(StreamPosition::Position(1));
    same(stage.read(&stream, &from).await?.len(), 2, "the number of events from 1 on")?;
    let back = ReadStreamOptions::default().position(StreamPosition::End);
    same(stage.read(&stream, &back).await?.len(), 2, "the number of events from the end")
}

async fn delete(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(2).0).await?;
    let options = DeleteStreamOptions::default().stream_state(StreamState::StreamRevision(1));
    let position = stage.client.delete_stream(stream.as_str(), &options).await?;
    same(position.is_some(), true, "whether it has a position")?;
    fails(stage.read_whole(&stream).await, not_found, "reading it")
}

async fn delete_expected(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(2).0).await?;
    let state = StreamState::StreamRevision(0);
    // This client has no error of its own for it here.
    let is_wrong = |error: &Error| error.to_string().contains("WrongExpectedVersion");
    let options = DeleteStreamOptions::default().stream_state(state);
    let deleted = stage.client.delete_stream(stream.as_str(), &options).await;
    fails(deleted, is_wrong, "a deletion")?;
    let options = TombstoneStreamOptions::default().stream_state(state);
    let tombstoned = stage.client.tombstone_stream(stream.as_str(), &options).await;
    fails(tombstoned, is_wrong, "a tombstone")?;
    same(revisions(stage, &stream).await?, vec![0, 1], "the revisions")
}

async fn recreate(stage: &mut Stage) -> anyhow::Result<()> {
    for state in [StreamState::NoStream, StreamState::Any, StreamState::StreamRevision(1)] {
        let (stream, (new, new_ids)) = (stream(), events(2));
        stage.append(&stream, &events(2).0).await?;
        stage.client.delete_stream(stream.as_str(), &Default::default()).await?;
        stage.append_if(&stream, state, &new).await?;
        same(ids(&stage.read_whole(&stream).await?), new_ids, "the events")?;
        same(revisions(stage, &stream).await?, vec![2, 3], "the revisions")?;
    }
    Ok(())
}

async fn tombstone(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(2).0).await?;
    stage.client.tombstone_stream(stream.as_str(), &Default::default()).await?;
    let deleted = |error: &Error| matches!(error, Error::ResourceDeleted);
    fails(stage.read_whole(&stream).await, deleted, "reading it")?;
    fails(stage.append(&stream, &events(1).0).await, deleted, "an append")?;
    let again = stage.client.delete_stream(stream.as_str(), &Default::default()).await;
    fails(again, deleted, "a deletion")
}

async fn scavenge(stage: &mut Stage) -> anyhow::Result<()> {
    // Its client for operations is another one.
    let settings = format!("kurrentdb://{}?tls=false", stage.servers.plain()).parse()?;
    let operations = operations::Client::new(settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let started = operations.start_scavenge(1, 0, &OperationalOptions::default()).await?;
    let status = started.status();
    same(matches!(status, ScavengeStatus::Started), true, &format!("{status:?}"))?;
    same(started.id().is_empty(), false, "whether it has no id")?;
    // The log is as it was for those who read it.
    let (stream, (new, new_ids)) = (stream(), events(3));
    stage.append(&stream, &new).await?;
    let client = connect(&format!("kurrentdb://{}?tls=false", stage.servers.plain()))?;
    let read = super::stage::all(client.read_stream(stream, &Default::default()).await?).await?;
    same(ids(&read), new_ids, "the events")
}
