//! Reading streams and the whole log.

use super::stage::{Stage, category, events, events_of, fails, fresh, ids, same, stream};
use super::{Proves, proves};
use anyhow::ensure;
use kurrentdb::{
    Error, ReadAllOptions, ReadEvent, ReadStreamOptions, StreamMetadataBuilder, StreamPosition,
    SubscriptionFilter,
};
use uuid::Uuid;

pub(super) const PROVES: &[Proves] = proves![
    "read-stream-forwards" => forwards,
    "read-stream-backwards" => backwards,
    "read-stream-from-revision" => from_revision,
    "read-stream-limit" => limit,
    "read-stream-long" => long,
    "read-stream-missing" => missing,
    "read-stream-ends" => ends,
    "unusual-names" => unusual_names,
    "read-all-forwards" => all_forwards,
    "read-all-backwards" => all_backwards,
    "read-all-filter-prefix" => filter_prefix,
    "read-all-filter-regex" => filter_regex,
    "read-all-filter-stream" => filter_stream,
    "exclude-system-events" => exclude_system,
];

fn from_start() -> ReadStreamOptions {
    ReadStreamOptions::default()
}

fn from_end() -> ReadStreamOptions {
    ReadStreamOptions::default().position(StreamPosition::End)
}

fn at(revision: u64) -> ReadStreamOptions {
    ReadStreamOptions::default().position(StreamPosition::Position(revision))
}

fn reversed(ids: &[Uuid]) -> Vec<Uuid> {
    ids.iter().rev().copied().collect()
}

async fn forwards(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(5));
    stage.append(&stream, &new).await?;
    let read = stage.read(&stream, &from_start()).await?;
    same(ids(&read), new_ids, "the events")?;
    let revisions: Vec<u64> = read.iter().map(|each| each.get_original_event().revision).collect();
    same(revisions, (0..5).collect(), "the revisions")?;
    same(read[0].get_original_stream_id(), stream.as_str(), "the stream")
}

async fn backwards(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(5));
    stage.append(&stream, &new).await?;
    same(ids(&stage.read(&stream, &from_end()).await?), reversed(&new_ids), "the events")
}

async fn from_revision(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(5));
    stage.append(&stream, &new).await?;
    same(ids(&stage.read(&stream, &at(2)).await?), new_ids[2..].to_vec(), "from 2 on")?;
    let back = stage.read(&stream, &at(2).backwards()).await?;
    same(ids(&back), reversed(&new_ids[..3]), "from 2 back")?;
    same(ids(&stage.read(&stream, &at(5)).await?), vec![], "from the end on")
}

async fn limit(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(5));
    stage.append(&stream, &new).await?;
    let read = stage.read(&stream, &from_start().max_count(2)).await?;
    same(ids(&read), new_ids[..2].to_vec(), "the first two")?;
    let read = stage.read(&stream, &at(3).max_count(2)).await?;
    same(ids(&read), new_ids[3..].to_vec(), "two from 3 on")?;
    let read = stage.read(&stream, &from_end().max_count(1)).await?;
    same(ids(&read), new_ids[4..].to_vec(), "the last")
}

async fn long(stage: &mut Stage) -> anyhow::Result<()> {
    let (stream, (new, new_ids)) = (stream(), events(3_000));
    stage.append(&stream, &new).await?;
    same(ids(&stage.read_whole(&stream).await?), new_ids, "the events")
}

fn not_found(error: &Error) -> bool {
    matches!(error, Error::ResourceNotFound)
}

async fn missing(stage: &mut Stage) -> anyhow::Result<()> {
    fails(stage.read(&stream(), &from_start()).await, not_found, "forwards")?;
    fails(stage.read(&stream(), &from_end()).await, not_found, "backwards")
}

async fn ends(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    stage.append(&stream, &events(10).0).await?;
    let mut read = stage.client.read_stream(stream, &from_start()).await?;
    let mut last = None;
    while let Some(event) = read.next_read_event().await? {
        if let ReadEvent::LastStreamPosition(revision) = event {
            last = Some(revision);
        }
    }
    same(last, Some(9), "the last revision")
}

async fn unusual_names(stage: &mut Stage) -> anyhow::Result<()> {
    for name in ["with space", "ünïcödé ✓", "a/b?c=d&e#f", "no.category", "--"] {
        let (stream, (new, _)) = (fresh(name), events_of(name, 1));
        stage.append(&stream, &new).await?;
        let read = stage.read_whole(&stream).await?;
        let event = read[0].get_original_event();
        same((event.stream_id(), event.event_type.as_str()), (stream.as_str(), name), "the names")?;
        fails(stage.read_whole(&fresh(name)).await, not_found, "a missing one")?;
    }
    Ok(())
}

async fn all_forwards(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(3);
    let first = stage.append(&stream(), &new[..1]).await?;
    stage.append(&stream(), &new[1..]).await?;
    let options = ReadAllOptions::default().position(StreamPosition::Position(first.position));
    let read = stage.read_all(&options.max_count(3)).await?;
    same(ids(&read), new_ids, "the events")?;
    let position = |n: usize| read[n].get_original_event().position;
    ensure!(position(0) < position(1) && position(1) < position(2), "positions that do not rise");
    Ok(())
}

async fn all_backwards(stage: &mut Stage) -> anyhow::Result<()> {
    let (new, new_ids) = events(3);
    stage.append(&stream(), &new[..1]).await?;
    let last = stage.append(&stream(), &new[1..]).await?;
    let end = ReadAllOptions::default().position(StreamPosition::End).max_count(3);
    same(ids(&stage.read_all(&end).await?), reversed(&new_ids), "from the end")?;
    let at = ReadAllOptions::default().position(StreamPosition::Position(last.position));
    let before = stage.read_all(&at.backwards().max_count(2)).await?;
    same(ids(&before), reversed(&new_ids[..2]), "before a position")
}

/// Events of two types in streams of two categories: what marks them, and the ids of the first
/// type, the second and a third, one in each stream.
async fn mixed(stage: &Stage) -> anyhow::Result<(String, [Vec<Uuid>; 3])> {
    let mark = category();
    let (a, a_ids) = events_of(&format!("{mark}-a"), 2);
    let (b, b_ids) = events_of(&format!("{mark}-b"), 2);
    let (other, other_ids) = events(2);
    for (n, suffix) in ["x", "y"].into_iter().enumerate() {
        let new = [a[n].clone(), b[n].clone(), other[n].clone()];
        stage.append(&fresh(&format!("{mark}{suffix}")), &new).await?;
    }
    Ok((mark, [a_ids, b_ids, other_ids]))
}

async fn filtered(stage: &Stage, filter: SubscriptionFilter) -> anyhow::Result<Vec<Uuid>> {
    Ok(ids(&stage.read_all(&ReadAllOptions::default().filter(filter)).await?))
}

async fn filter_prefix(stage: &mut Stage) -> anyhow::Result<()> {
    let (mark, [a, b, _]) = mixed(stage).await?;
    let by_type = SubscriptionFilter::on_event_type;
    let one = filtered(stage, by_type().add_prefix(format!("{mark}-a"))).await?;
    same(one, a.clone(), "one prefix")?;
    let both = by_type().add_prefix(format!("{mark}-a")).add_prefix(format!("{mark}-b"));
    let read = stage.read_all(&ReadAllOptions::default().filter(both).max_count(3)).await?;
    same(ids(&read), vec![a[0], b[0], a[1]], "three by two prefixes")?;
    let last = ReadAllOptions::default().position(StreamPosition::End).max_count(1);
    let last = last.filter(by_type().add_prefix(format!("{mark}-")));
    same(ids(&stage.read_all(&last).await?), vec![b[1]], "the last one")
}

async fn filter_regex(stage: &mut Stage) -> anyhow::Result<()> {
    let (mark, [a, ..]) = mixed(stage).await?;
    let filter = SubscriptionFilter::on_event_type().regex(format!("^{mark}-[ac]$"));
    same(filtered(stage, filter).await?, a, "the events")
}

async fn filter_stream(stage: &mut Stage) -> anyhow::Result<()> {
    let (mark, [a, b, other]) = mixed(stage).await?;
    let by_stream = SubscriptionFilter::on_stream_name;
    let second = filtered(stage, by_stream().add_prefix(format!("{mark}y"))).await?;
    same(second, vec![a[1], b[1], other[1]], "by prefix")?;
    let first = filtered(stage, by_stream().regex(format!("^{mark}[xz]-"))).await?;
    same(first, vec![a[0], b[0], other[0]], "by expression")
}

async fn exclude_system(stage: &mut Stage) -> anyhow::Result<()> {
    let stream = stream();
    let first = stage.append(&stream, &events(1).0).await?;
    let metadata = StreamMetadataBuilder::new().max_count(10).build();
    let any = Default::default();
    stage.client.set_stream_metadata(stream.as_str(), &any, &metadata).await?;
    let every = ReadAllOptions::default().position(StreamPosition::Position(first.position));
    let read = stage.read_all(&every).await?;
    let is_system = |event: &str| event.starts_with('$');
    ensure!(
        read.iter().any(|each| is_system(&each.get_original_event().event_type)),
        "without a filter they are there"
    );
    let filter = SubscriptionFilter::on_event_type().exclude_system_events();
    let usual = stage.read_all(&every.filter(filter)).await?;
    ensure!(
        !usual.is_empty() && !usual.iter().any(|e| is_system(&e.get_original_event().event_type)),
        "the filter leaves system events"
    );
    Ok(())
}
