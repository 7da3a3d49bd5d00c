//! Many appends over one call.

use crate::served::{PATIENCE, Served};
use bytes::Bytes;
use futures_util::stream;
use postroom_eventlog::Direction;
use postroom_eventlog::proto::shared::uuid::Value;
use postroom_eventlog::proto::shared::{
    Empty, ProposedMessage, StreamIdentifier, Uuid as WireUuid,
};
use postroom_eventlog::proto::streams::batch_append_req::Options;
use postroom_eventlog::proto::streams::batch_append_req::options::ExpectedStreamPosition;
use postroom_eventlog::proto::streams::batch_append_resp::Result as Outcome;
use postroom_eventlog::proto::streams::streams_client::StreamsClient;
use postroom_eventlog::proto::streams::{BatchAppendReq, BatchAppendResp};
use std::collections::BTreeMap;
use tokio::time::timeout;
use tonic::Streaming;
use uuid::Uuid;

fn new_id() -> Option<WireUuid> {
    Some(WireUuid { value: Some(Value::String(Uuid::new_v4().to_string())) })
}

/// An append of one event, whose data is its number.
fn append_of(stream: &str, number: u64) -> BatchAppendReq {
    let stream_name = Bytes::copy_from_slice(stream.as_bytes());
    let metadata = BTreeMap::from([
        ("type".to_owned(), "counted".to_owned()),
        ("content-type".to_owned(), "application/json".to_owned()),
    ]);
    BatchAppendReq {
        correlation_id: new_id(),
        options: Some(Options {
            stream_identifier: Some(StreamIdentifier { stream_name }),
            expected_stream_position: Some(ExpectedStreamPosition::Any(Empty {})),
            deadline_option: None,
        }),
        proposed_messages: vec![ProposedMessage {
            id: new_id(),
            metadata,
            custom_metadata: Bytes::new(),
            data: number.to_string().into(),
        }],
        is_final: true,
    }
}

/// Counts the appends that succeeded, to the end of the call.
async fn successes(mut answers: Streaming<BatchAppendResp>) -> u64 {
    let mut count = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(matches!(answer.result, Some(Outcome::Success(_))), "{answer:?}");
        count += 1;
    }
    count
}

async fn numbers(served: &Served, stream: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let page = served.log.read_stream(stream, from, Direction::Forwards, 10_000, false).await;
        let page = page.unwrap();
        for event in page.events {
            let data = event.event.unwrap().data();
            numbers.push(std::str::from_utf8(&data).unwrap().parse().unwrap());
        }
        next = page.next;
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_keep_the_order_of_their_call_though_several_calls_fill_the_queue() {
    const CALLS: u64 = 4;
    const APPENDS: u64 = 4_000;
    let served = Served::start();
    let mut calls = Vec::new();
    for call in 0..CALLS {
        let mut client = StreamsClient::new(served.channel().await);
        calls.push(tokio::spawn(async move {
            let stream = format!("s-{call}");
            let requests: Vec<_> = (0..APPENDS).map(|number| append_of(&stream, number)).collect();
            successes(client.batch_append(stream::iter(requests)).await.unwrap().into_inner()).await
        }));
    }
    for call in calls {
        assert_eq!(timeout(PATIENCE, call).await.unwrap().unwrap(), APPENDS);
    }
    for call in 0..CALLS {
        let numbers = numbers(&served, &format!("s-{call}")).await;
        assert!(numbers.iter().copied().eq(0..APPENDS), "s-{call} is out of order");
    }
    served.stop().await;
}
