//! Appending.

use super::stage::{Stage, events, fails, ids, same, stream};
use super::{Proves, proves};
use anyhow::ensure;
use bytes::Bytes;
use kurrentdb::{CurrentRevision, Error, EventData, StreamState};
use serde_json::{Value, json};
use uuid::Uuid;

pub(super) const PROVES: &[Proves] = proves![
    "append" => append,
    "append-batch" => batch,
    "append-nothing" => nothing,
    "append-idempotent" => idempotent,
    "append-binary" => binary,
    "append-with-metadata" => metadata,
    "append-too-large" => too_large,
    "expected-any" => expected_any,
    "expected-no-stream" => expected_no_stream,
    "expected-stream-exists" => expected_exists,
    "expected-revision" => expected_revision,
];

async fn append(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(3));
    let written = stage.append(&stream, &new).await?;
    let read = stage.read_whole(&stream).await?;
    same(ids(&read), new_ids, "the events")?;
    let last = read[2].get_original_event();
    same((last.event_type.as_str(), last.is_json), ("happened", true), "type and kind")?;
    same(last.as_json::<Value>()?, json!({"n": 2}), "the data")?;
    same((written.next_expected_version, written.position), (2, last.position), "the result")?;
    let age = chrono::Utc::now().signed_duration_since(last.created).num_seconds();
    ensure!((-60..60).contains(&age), "an event from {age} s ago");
    Ok(())
}

async fn batch(stage: &mut Stage) -> anyhow::Result<()> {
    let batches = stage.client.batch_append(&Default::default()).await?;
    for state in [StreamState::NoStream, StreamState::Any] {
        let (stream, (new, new_ids)) = (stream(), events(50));
        let written = batches.append_to_stream(&stream, state, new).await?;
        let read = stage.read_whole(&stream).await?;
        same(ids(&read), new_ids, "the events")?;
        let position = Some(read[49].get_original_event().position);
        let expected = (stream.as_str(), Some(49), position);
        let actual =
            (written.stream_name(), written.current_revision(), written.current_position());
        same(actual, expected, "the result")?;
    }
    // This client has no error of its own for it here, and ends its batches with the first one.
    let (stream, (new, _)) = (stream(), events(1));
    let refused = batches.append_to_stream(&stream, StreamState::StreamRevision(7), new).await;
    fails(refused, |error| matches!(error, Error::Grpc { .. }), "a wrong revision")
}

async fn nothing(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &[]).await?;
    let read = stage.read_whole(&stream).await;
    fails(read, |error| matches!(error, Error::ResourceNotFound), "reading the stream")
}

async fn idempotent(stage: &mut Stage) -> anyhow::Result<()> {
    for state in [StreamState::Any, StreamState::NoStream] {
        let (stream, (new, mut all), (more, more_ids)) = (stream(), events(3), events(2));
        let first = stage.append_if(&stream, state, &new).await?;
        let again = stage.append_if(&stream, state, &new).await?;
        let result = (again.next_expected_version, again.position);
        same(result, (first.next_expected_version, first.position), "the second append")?;
        for _ in 0..2 {
            stage.append_if(&stream, StreamState::StreamRevision(2), &more).await?;
        }
        all.extend(more_ids);
        same(ids(&stage.read_whole(&stream).await?), all, "the events")?;
    }
    Ok(())
}

async fn binary(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, data) = (stream(), Bytes::from_iter(0..=255));
    stage.append(&stream, &[EventData::binary("blob", data.clone())]).await?;
    let read = stage.read_whole(&stream).await?;
    let event = read[0].get_original_event();
    same((&event.data, event.is_json), (&data, false), "the data")
}

async fn metadata(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, metadata) = (stream(), json!({"user": "ä"}));
    let event = EventData::json("noted", &json!({}))?.metadata_as_json(&metadata)?;
    stage.append(&stream, &[event]).await?;
    let read = stage.read_whole(&stream).await?;
    let found: Value = serde_json::from_slice(&read[0].get_original_event().custom_metadata)?;
    same(found, metadata, "the metadata")
}

async fn too_large(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    let large = EventData::binary("large", Bytes::from(vec![0; 2 << 20])).id(Uuid::new_v4());
    let invalid = |error: &Error| format!("{error:?}").contains("InvalidArgument");
    fails(stage.append(&stream, &[large]).await, invalid, "a large event")?;
    stage.append(&stream, &events(1).0).await?;
    same(stage.read_whole(&stream).await?.len(), 1, "the number of events")
}

/// An append that fails by its expectation.
async fn wrong(
    stage: &Stage,
    stream: &str,
    state: StreamState,
    actual: CurrentRevision,
) -> anyhow::Result<()> {
    let is_right = |error: &Error| {
        matches!(error, Error::WrongExpectedVersion { expected, current }
            if *expected == state && *current == actual)
    };
    fails(stage.append_if(stream, state, &events(1).0).await, is_right, &format!("{state:?}"))
}

async fn expected_any(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    for revision in 0..2 {
        let written = stage.append_if(&stream, StreamState::Any, &events(1).0).await?;
        same(written.next_expected_version, revision, "the revision")?;
    }
    Ok(())
}

async fn expected_no_stream(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append_if(&stream, StreamState::NoStream, &events(1).0).await?;
    wrong(stage, &stream, StreamState::NoStream, CurrentRevision::Current(0)).await
}

async fn expected_exists(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    wrong(stage, &stream, StreamState::StreamExists, CurrentRevision::NoStream).await?;
    stage.append(&stream, &events(1).0).await?;
    let written = stage.append_if(&stream, StreamState::StreamExists, &events(1).0).await?;
    same(written.next_expected_version, 1, "the revision")
}

async fn expected_revision(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    let revision = StreamState::StreamRevision;
    wrong(stage, &stream, revision(0), CurrentRevision::NoStream).await?;
    stage.append(&stream, &events(2).0).await?;
    stage.append_if(&stream, revision(1), &events(1).0).await?;
    wrong(stage, &stream, revision(1), CurrentRevision::Current(2)).await?;
    wrong(stage, &stream, revision(7), CurrentRevision::Current(2)).await?;
    same(stage.read_whole(&stream).await?.len(), 3, "the number of events")
}
