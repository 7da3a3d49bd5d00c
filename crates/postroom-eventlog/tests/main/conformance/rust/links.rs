//! Streams that the server computes: links by category and by type.

use super::stage::{Follower, Stage, category, events, events_of, fresh, ids, same, stream};
use super::{Proves, proves};
use anyhow::Context as _;
use kurrentdb::{
    ReadAllOptions, ReadStreamOptions, ResolvedEvent, StreamPosition, SubscribeToStreamOptions,
    TombstoneStreamOptions,
};

pub(super) const PROVES: &[Proves] = proves![
    "category-with-links" => by_category,
    "event-type-with-links" => by_type,
    "category-live" => live,
    "resolve-deleted-target" => deleted_target,
    "all-without-links" => not_in_all,
];

fn resolved() -> ReadStreamOptions {
    ReadStreamOptions::default().resolve_link_tos()
}

/// What links that are not resolved point at.
fn targets(links: &[ResolvedEvent]) -> Vec<String> {
    let target =
        |link: &ResolvedEvent| String::from_utf8_lossy(&link.get_original_event().data).into();
    links.iter().map(target).collect()
}

async fn by_category(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (category(), events(3));
    let (first, second) = (fresh(&name), fresh(&name));
    stage.append(&first, &new[..1]).await?;
    stage.append(&second, &new[1..2]).await?;
    stage.append(&first, &new[2..]).await?;
    let of_category = format!("$ce-{name}");
    let links = stage.read_whole(&of_category).await?;
    let expected = vec![format!("0@{first}"), format!("0@{second}"), format!("1@{first}")];
    same(targets(&links), expected, "what the links point at")?;
    let last = links[2].get_original_event();
    same((last.event_type.as_str(), last.revision), ("$>", 2), "the last link")?;
    let read = stage.read(&of_category, &resolved()).await?;
    same(ids(&read), new_ids.clone(), "the events")?;
    let link = read[2].link.as_ref().context("a resolved event without its link")?;
    same((link.stream_id(), link.revision), (of_category.as_str(), 2), "the last one's link")?;
    let back = resolved().position(StreamPosition::End).max_count(2);
    same(ids(&stage.read(&of_category, &back).await?), vec![new_ids[2], new_ids[1]], "the last two")
}

async fn by_type(stage: &mut Stage) -> anyhow::Result<()> {
    let name = category();
    let (new, new_ids) = events_of(&name, 2);
    let (first, second) = (stream(), stream());
    stage.append(&first, &[events(1).0, new[..1].to_vec()].concat()).await?;
    stage.append(&second, &new[1..]).await?;
    let of_type = format!("$et-{name}");
    let links = stage.read_whole(&of_type).await?;
    same(targets(&links), vec![format!("1@{first}"), format!("0@{second}")], "the links")?;
    same(ids(&stage.read(&of_type, &resolved()).await?), new_ids, "the events")
}

async fn live(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (category(), events(3));
    stage.append(&fresh(&name), &new[..1]).await?;
    let of_category = format!("$ce-{name}");
    let from =
        |position| SubscribeToStreamOptions::default().start_from(position).resolve_link_tos();
    let whole = from(StreamPosition::Start);
    let whole = stage.client.subscribe_to_stream(of_category.as_str(), &whole).await;
    let mut whole = Follower::new(whole).await?;
    let first = whole.take(1).await?;
    stage.append(&fresh(&name), &new[1..]).await?;
    same(ids(&first), new_ids[..1].to_vec(), "the past")?;
    same(ids(&whole.take(2).await?), new_ids[1..].to_vec(), "the present")?;
    let after = from(StreamPosition::Position(first[0].get_original_event().revision));
    let after = stage.client.subscribe_to_stream(of_category.as_str(), &after).await;
    let rest = Follower::new(after).await?.take(2).await?;
    same(ids(&rest), new_ids[1..].to_vec(), "what follows the first link")
}

async fn deleted_target(stage: &mut Stage) -> anyhow::Result<()> {
    let (name, (new, new_ids)) = (category(), events(2));
    let (gone, kept) = (fresh(&name), fresh(&name));
    stage.append(&gone, &new[..1]).await?;
    stage.append(&kept, &new[1..]).await?;
    stage.client.tombstone_stream(gone, &TombstoneStreamOptions::default()).await?;
    let read = stage.read(&format!("$ce-{name}"), &resolved()).await?;
    let at = |revision| read.iter().find(|each| each.get_original_event().revision == revision);
    let first = at(0).context("the link whose target is gone is missing")?;
    same(first.event.as_ref().map(|event| event.id), None, "its event")?;
    same(first.link.is_some(), true, "whether its link is there")?;
    let second = at(1).context("the second link is missing")?;
    same(second.event.as_ref().map(|event| event.id), Some(new_ids[1]), "the second one's event")
}

async fn not_in_all(stage: &mut Stage) -> anyhow::Result<()> {
    let name = category();
    let written = stage.append(&fresh(&name), &events(3).0).await?;
    same(stage.read_whole(&format!("$ce-{name}")).await?.len(), 3, "the number of links")?;
    let options = ReadAllOptions::default().position(StreamPosition::Position(written.position));
    let read = stage.read_all(&options).await?;
    let links = read.iter().filter(|each| each.get_original_event().event_type == "$>").count();
    same(links, 0, "the number of links in `$all`")
}
