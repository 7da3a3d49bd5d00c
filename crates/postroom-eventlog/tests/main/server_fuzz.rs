//! Garbage of every kind: nothing that a client sends makes the server panic or fall silent.

use crate::served::{PATIENCE, Served};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::{StreamExt as _, stream};
use postroom_eventlog::proto::gossip::gossip_client::GossipClient;
use postroom_eventlog::proto::persistent_subscriptions as persistent;
use postroom_eventlog::proto::shared::{
    Empty, FilterOptions, Position, ProposedMessage, StreamIdentifier, StreamOptions, Uuid,
    UuidOption, filter_options, stream_options, uuid, uuid_option,
};
use postroom_eventlog::proto::streams::{self, read_req};
use prost::Message as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

const REQUESTS: usize = 6_000;
const SEED: u64 = 20_261_119;
/// How many requests are under way at once.
const PARALLEL: usize = 8;
/// How long an answer is listened to: a subscription that was asked for by chance never ends.
const LISTEN: Duration = Duration::from_millis(20);

const METHODS: [&str; 22] = [
    "streams.Streams/Read",
    "streams.Streams/Append",
    "streams.Streams/BatchAppend",
    "streams.Streams/Delete",
    "streams.Streams/Tombstone",
    "persistent_subscriptions.PersistentSubscriptions/Create",
    "persistent_subscriptions.PersistentSubscriptions/Update",
    "persistent_subscriptions.PersistentSubscriptions/Delete",
    "persistent_subscriptions.PersistentSubscriptions/Read",
    "persistent_subscriptions.PersistentSubscriptions/GetInfo",
    "persistent_subscriptions.PersistentSubscriptions/ReplayParked",
    "persistent_subscriptions.PersistentSubscriptions/List",
    "persistent_subscriptions.PersistentSubscriptions/RestartSubsystem",
    "server_features.ServerFeatures/GetSupportedMethods",
    "gossip.Gossip/Read",
    "operations.Operations/StartScavenge",
    "operations.Operations/StopScavenge",
    "operations.Operations/Shutdown",
    "operations.Operations/MergeIndexes",
    "operations.Operations/ResignNode",
    "operations.Operations/SetNodePriority",
    "operations.Operations/RestartPersistentSubscriptions",
];

/// Sends bytes as they are, and takes any.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

fn id() -> Uuid {
    Uuid { value: Some(uuid::Value::String("3f0e8d5a-6b0c-4d6e-9a51-0c2f1f6f7a01".to_owned())) }
}

fn identifier() -> StreamIdentifier {
    StreamIdentifier { stream_name: Bytes::from_static(b"order-1") }
}

fn proposed() -> ProposedMessage {
    let metadata = BTreeMap::from([
        ("type".to_owned(), "happened".to_owned()),
        ("content-type".to_owned(), "application/json".to_owned()),
    ]);
    let data = Bytes::from_static(b"{\"n\":1}");
    ProposedMessage { id: Some(id()), metadata, custom_metadata: data.clone(), data }
}

fn filter() -> FilterOptions {
    let expression = filter_options::Expression {
        regex: "^(?!\\$)(a|b)+.*$".to_owned(),
        prefix: vec!["order".to_owned()],
    };
    FilterOptions {
        filter: Some(filter_options::Filter::EventType(expression)),
        window: Some(filter_options::Window::Max(10)),
        checkpoint_interval_multiplier: 2,
    }
}

fn stream_options() -> StreamOptions {
    StreamOptions {
        stream_identifier: Some(identifier()),
        revision_option: Some(stream_options::RevisionOption::Revision(0)),
    }
}

fn reads() -> Vec<Vec<u8>> {
    let options = read_req::Options {
        stream_option: Some(read_req::options::StreamOption::Stream(stream_options())),
        count_option: Some(read_req::options::CountOption::Count(10)),
        uuid_option: Some(UuidOption { content: Some(uuid_option::Content::Structured(Empty {})) }),
        control_option: Some(read_req::ControlOption { compatibility: 1 }),
        ..Default::default()
    };
    let position = Position { commit_position: 90, prepare_position: 90 };
    let all = read_req::AllOptions {
        all_option: Some(read_req::all_options::AllOption::Position(position)),
    };
    let of_all = read_req::Options {
        stream_option: Some(read_req::options::StreamOption::All(all)),
        filter_option: Some(read_req::options::FilterOption::Filter(filter())),
        ..options.clone()
    };
    let subscription = read_req::Options {
        count_option: Some(read_req::options::CountOption::Subscription(Empty {})),
        ..of_all.clone()
    };
    [options, of_all, subscription]
        .into_iter()
        .map(|options| streams::ReadReq { options: Some(options) }.encode_to_vec())
        .collect()
}

fn appends() -> Vec<Vec<u8>> {
    let target = streams::Target {
        stream_identifier: Some(identifier()),
        expected_stream_revision: Some(streams::target::ExpectedStreamRevision::Any(Empty {})),
    };
    let append = |content| streams::AppendReq { content: Some(content) }.encode_to_vec();
    let batch = streams::BatchAppendReq {
        correlation_id: Some(id()),
        options: Some(streams::batch_append_req::Options {
            stream_identifier: Some(identifier()),
            expected_stream_position: Some(
                streams::batch_append_req::options::ExpectedStreamPosition::StreamPosition(3),
            ),
            deadline_option: Some(streams::batch_append_req::options::DeadlineOption::Deadline(
                prost_types::Duration { seconds: 5, nanos: 7 },
            )),
        }),
        proposed_messages: vec![proposed(), proposed()],
        is_final: true,
    };
    vec![
        append(streams::append_req::Content::Options(target.clone())),
        append(streams::append_req::Content::ProposedMessage(proposed())),
        batch.encode_to_vec(),
        streams::DeleteReq { options: Some(target) }.encode_to_vec(),
    ]
}

fn persistents() -> Vec<Vec<u8>> {
    let create = persistent::CreateReq {
        options: Some(persistent::create_req::Options {
            group_name: "group".to_owned(),
            settings: Some(persistent::Settings {
                max_retry_count: 3,
                live_buffer_size: 100,
                consumer_strategy: "RoundRobin".to_owned(),
                message_timeout: Some(persistent::settings::MessageTimeout::MessageTimeoutMs(5)),
                ..Default::default()
            }),
            stream_option: Some(persistent::create_req::options::StreamOption::Stream(
                stream_options(),
            )),
            ..Default::default()
        }),
    };
    let join = persistent::ReadReq {
        content: Some(persistent::read_req::Content::Options(persistent::read_req::Options {
            group_name: "group".to_owned(),
            buffer_size: 10,
            stream_option: Some(persistent::read_req::options::StreamOption::StreamIdentifier(
                identifier(),
            )),
            ..Default::default()
        })),
    };
    let nack = persistent::ReadReq {
        content: Some(persistent::read_req::Content::Nack(persistent::read_req::Nack {
            ids: vec![id()],
            action: 1,
            ..Default::default()
        })),
    };
    vec![create.encode_to_vec(), join.encode_to_vec(), nack.encode_to_vec()]
}

/// Changes some bytes: flips, cuts, doubles, and numbers at their limits.
fn mutate(message: &[u8], dice: &mut StdRng) -> Bytes {
    let mut bytes = message.to_vec();
    for _ in 0..dice.random_range(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = dice.random_range(0..bytes.len());
        match dice.random_range(0..5) {
            0 => bytes[at] = dice.random(),
            1 => bytes[at] ^= 1 << dice.random_range(0..8),
            2 => bytes.truncate(at),
            3 => {
                let tail = bytes.split_off(at);
                bytes.extend_from_slice(&[0xff; 9]);
                bytes.push(1);
                bytes.extend(tail);
            }
            _ => {
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
        }
    }
    bytes.into()
}

/// The messages of one request.
fn request(valid: &[Vec<u8>], dice: &mut StdRng) -> Vec<Bytes> {
    let count = dice.random_range(0..4);
    (0..count)
        .map(|_| {
            if dice.random_bool(0.3) {
                let length = dice.random_range(0..200);
                return (0..length).map(|_| dice.random::<u8>()).collect();
            }
            mutate(&valid[dice.random_range(0..valid.len())], dice)
        })
        .collect()
}

/// Sends one request and listens to the answer for a while.
async fn send(channel: Channel, method: &'static str, messages: Vec<Bytes>) {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("/event_store.client.{method}")).unwrap();
    let requests = tonic::Request::new(stream::iter(messages));
    let answer = async {
        let Ok(answer) = grpc.streaming(requests, path, Raw).await else { return };
        let mut answer = answer.into_inner();
        while let Ok(Some(_)) = answer.message().await {}
    };
    let _ = timeout(LISTEN, answer).await;
}

/// How often any thread of this process has panicked.
fn count_panics() -> &'static AtomicUsize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Other tests of this process may fail meanwhile, and say so themselves.
            let is_ours = info.location().is_some_and(|at| !at.file().contains("tests/main"));
            if is_ours {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
    &PANICS
}

async fn still_answers(served: &Served) {
    let gossip = async {
        let mut gossip = GossipClient::new(served.channel().await);
        gossip.read(Empty {}).await.unwrap()
    };
    let told = timeout(PATIENCE, gossip).await.unwrap().into_inner();
    assert_eq!(told.members.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_makes_the_server_panic_or_fall_silent() {
    let panics = count_panics();
    let served = Served::start();
    let channel = served.channel().await;
    let mut dice = StdRng::seed_from_u64(SEED);
    let valid = [reads(), appends(), persistents()].concat();
    let requests: Vec<_> =
        (0..REQUESTS).map(|n| (METHODS[n % METHODS.len()], request(&valid, &mut dice))).collect();
    stream::iter(requests)
        .for_each_concurrent(PARALLEL, |(method, messages)| send(channel.clone(), method, messages))
        .await;
    assert_eq!(panics.load(Ordering::SeqCst), 0, "seed {SEED}");
    still_answers(&served).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bytes_on_a_connection_make_the_server_panic_or_fall_silent() {
    let panics = count_panics();
    let served = Served::start();
    let mut dice = StdRng::seed_from_u64(SEED);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut openings: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: log\r\n\r\n".to_vec(),
        // The beginning of a TLS handshake.
        vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        preface[..10].to_vec(),
        preface.to_vec(),
        Vec::new(),
    ];
    for _ in 0..200 {
        let mut bytes = preface.to_vec();
        for _ in 0..dice.random_range(1..5) {
            // A frame of HTTP/2 with any type, flags, stream and content.
            let length: usize = dice.random_range(0..64);
            bytes.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
            bytes.push(dice.random_range(0..12));
            bytes.push(dice.random());
            bytes.extend_from_slice(&dice.random_range(0..9_u32).to_be_bytes());
            bytes.extend((0..length).map(|_| dice.random::<u8>()));
        }
        openings.push(bytes);
    }
    // Held open to the end: the server must go on beside them.
    let mut held = Vec::new();
    for opening in openings {
        let mut connection = TcpStream::connect(served.address).await.unwrap();
        let _ = connection.write_all(&opening).await;
        if dice.random_bool(0.5) {
            held.push(connection);
        } else {
            let _ = timeout(LISTEN, connection.read(&mut [0; 64])).await;
        }
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0, "seed {SEED}");
    still_answers(&served).await;
    let (_, time) = served.stop().await;
    assert!(time < Duration::from_secs(6), "it took {time:?}");
}
