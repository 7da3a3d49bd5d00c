//! A subscription that catches up.
//!
//! What is measured is the server and the way to a client, so the subscriber is one that only counts.
//! The official client for Rust does more with each event than the server does; its rate is a note.

use super::append::{failed, fill};
use super::figure::{Figure, median};
use super::{PAYLOAD, Server, Size, bare};
use anyhow::ensure;
use kurrentdb::{StreamPosition, SubscribeToAllOptions, SubscriptionEvent};
use postroom_eventlog::proto::shared::Empty;
use postroom_eventlog::proto::streams::ReadReq;
use postroom_eventlog::proto::streams::read_req::all_options::AllOption;
use postroom_eventlog::proto::streams::read_req::options::{
    CountOption, FilterOption, StreamOption,
};
use postroom_eventlog::proto::streams::read_req::{AllOptions, Direction, Options};
use postroom_eventlog::proto::streams::read_resp::Content;
use postroom_eventlog::proto::streams::streams_client::StreamsClient;
use serde_json::json;
use std::time::Instant;

/// Against reading the same files from beginning to end, and encoding what is read.
pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = Server::start()?;
    let events = size.pick(400_000, 2_000);
    fill(&server, events).await?;
    let (mut rounds, mut official) = (Vec::new(), Vec::new());
    for round in 0..=size.pick(5, 1) {
        let ours = counted(&server, events).await?;
        official.push(caught_up(&server, events).await?);
        let (read, reference) = bare::read_and_encode(server.folder())?;
        ensure!(read == events, "{read} events instead of {events} were read");
        if round > 0 {
            rounds.push((ours, reference));
        }
    }
    Figure {
        bench: "eventlog",
        name: "catch_up",
        rounds,
        reference_is: "a bare sequential read of the segments that encodes each event",
        unit: "events/s",
        more_is_better: true,
        notes: json!({
            "events": events,
            "payload": PAYLOAD,
            "official_rust_client": median(official).round(),
        }),
    }
    .print();
    Ok(())
}

/// How many events a second a subscriber gets that counts them.
async fn counted(server: &Server, events: usize) -> anyhow::Result<f64> {
    let mut client = StreamsClient::connect(server.address()).await?;
    let options = Options {
        read_direction: Direction::Forwards.into(),
        resolve_links: false,
        stream_option: Some(StreamOption::All(AllOptions {
            all_option: Some(AllOption::Start(Empty {})),
        })),
        count_option: Some(CountOption::Subscription(Empty {})),
        filter_option: Some(FilterOption::NoFilter(Empty {})),
        ..Default::default()
    };
    let began = Instant::now();
    let mut answers = client.read(ReadReq { options: Some(options) }).await?.into_inner();
    let mut seen = 0;
    while let Some(answer) = answers.message().await? {
        match answer.content {
            Some(Content::Event(_)) => seen += 1,
            Some(Content::CaughtUp(_)) => break,
            _ => {}
        }
    }
    ensure!(seen == events, "{seen} events instead of {events} were told");
    Ok(seen as f64 / began.elapsed().as_secs_f64())
}

/// How many events a second the official client gets, from the beginning until it has caught up.
pub(crate) async fn caught_up(server: &Server, events: usize) -> anyhow::Result<f64> {
    let client = server.client()?;
    let options = SubscribeToAllOptions::default().position(StreamPosition::Start);
    let began = Instant::now();
    let mut subscription = client.subscribe_to_all(&options).await;
    let mut seen = 0;
    loop {
        match subscription.next_subscription_event().await.map_err(failed)? {
            SubscriptionEvent::EventAppeared(_) => seen += 1,
            SubscriptionEvent::CaughtUp(_) => break,
            _ => {}
        }
    }
    ensure!(seen == events, "{seen} events instead of {events} were told");
    Ok(seen as f64 / began.elapsed().as_secs_f64())
}
