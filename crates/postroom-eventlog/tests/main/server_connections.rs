//! Connections, passwords, limits, and how a server stops.

use crate::rust_client::client;
use crate::served::{PATIENCE, Served, settings};
use kurrentdb::{Error, EventData};
use postroom_eventlog::proto::operations::operations_client::OperationsClient;
use postroom_eventlog::proto::operations::{StartScavengeReq, StopScavengeReq, scavenge_resp};
use postroom_eventlog::proto::shared::{Empty, ProposedMessage, StreamIdentifier, Uuid, uuid};
use postroom_eventlog::proto::streams::append_req::Content;
use postroom_eventlog::proto::streams::read_req::{AllOptions, Options, all_options, options};
use postroom_eventlog::proto::streams::read_resp;
use postroom_eventlog::proto::streams::streams_client::StreamsClient;
use postroom_eventlog::proto::streams::{AppendReq, ReadReq, Target, target};
use postroom_eventlog::server::{Server, ServerSettings, Tls, Users};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;
use tonic::Code;

fn subscription() -> ReadReq {
    let all = AllOptions { all_option: Some(all_options::AllOption::Start(Empty {})) };
    ReadReq {
        options: Some(Options {
            stream_option: Some(options::StreamOption::All(all)),
            count_option: Some(options::CountOption::Subscription(Empty {})),
            ..Default::default()
        }),
    }
}

fn append_options(stream: &'static str) -> AppendReq {
    let stream_name = bytes::Bytes::from_static(stream.as_bytes());
    let target = Target {
        stream_identifier: Some(StreamIdentifier { stream_name }),
        expected_stream_revision: Some(target::ExpectedStreamRevision::Any(Empty {})),
    };
    AppendReq { content: Some(Content::Options(target)) }
}

fn proposed(bytes: usize) -> AppendReq {
    let metadata = BTreeMap::from([
        ("type".to_owned(), "happened".to_owned()),
        ("content-type".to_owned(), "application/octet-stream".to_owned()),
    ]);
    let halves = uuid::Structured { most_significant_bits: 1, least_significant_bits: 2 };
    let message = ProposedMessage {
        id: Some(Uuid { value: Some(uuid::Value::Structured(halves)) }),
        metadata,
        custom_metadata: bytes::Bytes::new(),
        data: vec![b'x'; bytes].into(),
    };
    AppendReq { content: Some(Content::ProposedMessage(message)) }
}

/// Waits until the other side has closed the connection.
async fn until_closed(stream: &mut TcpStream) {
    let mut buffer = [0; 1_024];
    let closed = async { while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {} };
    timeout(PATIENCE, closed).await.unwrap();
}

#[tokio::test]
async fn a_server_stops_in_seconds_and_its_subscribers_hear_that_it_is_unavailable() {
    let served = Served::start();
    let mut streams = StreamsClient::new(served.channel().await);
    let mut following = streams.read(subscription()).await.unwrap().into_inner();
    let first = following.message().await.unwrap().unwrap();
    assert!(matches!(first.content, Some(read_resp::Content::Confirmation(_))));
    // One client never ends its append, another one says nothing at all.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(append_options("order-1")).await.unwrap();
    let requests = futures_util::stream::unfold(receiver, |mut receiver| async {
        Some((receiver.recv().await?, receiver))
    });
    let mut other = streams.clone();
    let appending = tokio::spawn(async move { other.append(Box::pin(requests)).await });
    let mut silent = TcpStream::connect(served.address).await.unwrap();

    let (_, time) = served.stop().await;
    assert!(time < Duration::from_secs(6), "it took {time:?}");
    let end = loop {
        match following.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a subscription must not end well"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unavailable);
    assert_eq!(appending.await.unwrap().unwrap_err().code(), Code::Unavailable);
    until_closed(&mut silent).await;
}

#[tokio::test]
async fn a_server_with_idle_clients_stops_at_once() {
    let served = Served::start();
    let client = client(&served.connection_string);
    client.server_info().await.unwrap();
    let (_, time) = served.stop().await;
    assert!(time < Duration::from_secs(1), "it took {time:?}");
}

#[tokio::test]
async fn only_users_with_their_password_are_served() {
    let users = Users::parse("admin:changeit\n").unwrap();
    let served = Served::start_with(ServerSettings { users: Some(users), ..settings() });
    let event = || EventData::json("happened", &serde_json::json!({})).unwrap();
    for nobody in ["", "admin:change@", "other:changeit@"] {
        let client = client(&format!("esdb://{nobody}{}?tls=false", served.address));
        // Whoever has no password can still ask what the server is.
        client.server_info().await.unwrap();
        let refused = client.append_to_stream("order-1", &Default::default(), event()).await;
        assert!(matches!(refused, Err(Error::AccessDenied)), "{refused:?}");
    }
    let client = client(&format!("esdb://admin:changeit@{}?tls=false", served.address));
    client.append_to_stream("order-1", &Default::default(), event()).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn connections_are_encrypted_with_a_certificate() {
    // The client takes the provider that the process has chosen.
    let _ = ring::default_provider().install_default();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = Tls {
        certificate: certified.cert.pem().into_bytes(),
        key: certified.signing_key.serialize_pem().into_bytes(),
    };
    let served = Served::start_with(ServerSettings { tls: Some(tls), ..settings() });
    assert!(served.connection_string.ends_with("?tls=true"));
    let file = served.folder.path().join("ca.pem");
    std::fs::write(&file, certified.cert.pem()).unwrap();
    let (port, file) = (served.address.port(), file.display());
    for scheme in ["esdb", "esdb+discover"] {
        let client = client(&format!("{scheme}://localhost:{port}?tls=true&tlsCaFile={file}"));
        let event = EventData::json("happened", &serde_json::json!({})).unwrap();
        client.append_to_stream("order-1", &Default::default(), event).await.unwrap();
    }
    // What is no TLS is dropped, and does no harm.
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    until_closed(&mut plain).await;
    let client = client(&format!("esdb://localhost:{port}?tls=true&tlsCaFile={file}"));
    client.server_info().await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_the_others_go_on() {
    let served = Served::start_with(ServerSettings { connections_max: 2, ..settings() });
    let mut streams = StreamsClient::new(served.channel().await);
    let idle = TcpStream::connect(served.address).await.unwrap();
    // The server may have only one of the two so far.
    streams.read(subscription()).await.unwrap();
    until_closed(&mut TcpStream::connect(served.address).await.unwrap()).await;
    streams.read(subscription()).await.unwrap();

    drop(idle);
    let again = async {
        loop {
            let uri = format!("http://{}", served.address);
            let endpoint = tonic::transport::Endpoint::from_shared(uri).unwrap();
            if let Ok(channel) = endpoint.connect().await
                && StreamsClient::new(channel).read(subscription()).await.is_ok()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn reads_beyond_the_limit_are_refused_over_all_connections() {
    let served = Served::start_with(ServerSettings { reads_max: 2, ..settings() });
    let mut first = StreamsClient::new(served.channel().await);
    let mut second = StreamsClient::new(served.channel().await);
    let following = first.read(subscription()).await.unwrap();
    let _other = second.read(subscription()).await.unwrap();
    for client in [&mut first, &mut second] {
        let refused = client.read(subscription()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("2 reads"), "{refused:?}");
    }
    // Appends go on.
    let request = [append_options("order-1"), proposed(1)];
    first.append(futures_util::stream::iter(request)).await.unwrap();
    drop(following);
    let again = async {
        while second.read(subscription()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn an_append_that_is_too_large_is_refused_with_the_limit_and_the_connection_stays() {
    let served = Served::start();
    let mut streams = StreamsClient::new(served.channel().await);
    let max = served.log.settings().append_max;
    // One that is just too large, one of many events, and one that no server reads to its end.
    let requests = [
        vec![append_options("order-1"), proposed(max + 1)],
        [vec![append_options("order-1")], vec![proposed(max / 4); 5]].concat(),
        vec![append_options("order-1"), proposed(8 * max)],
    ];
    for request in requests {
        let status = streams.append(futures_util::stream::iter(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert_eq!(status.metadata().get("exception").unwrap(), "maximum-append-size-exceeded");
        assert_eq!(status.metadata().get("maximum-append-size").unwrap(), &max.to_string());
    }
    let request = [append_options("order-1"), proposed(max - 100)];
    streams.append(futures_util::stream::iter(request)).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_client_starts_a_scavenge_and_hears_what_a_single_node_cannot_do() {
    let served = Served::start();
    let mut operations = OperationsClient::new(served.channel().await);
    let started = operations.start_scavenge(StartScavengeReq::default()).await.unwrap();
    let started = started.into_inner();
    assert_eq!(started.scavenge_result(), scavenge_resp::Result::Started);
    assert!(!started.scavenge_id.is_empty());
    let options = postroom_eventlog::proto::operations::stop_scavenge_req::Options {
        scavenge_id: "another".to_owned(),
    };
    let stop = StopScavengeReq { options: Some(options) };
    let status = operations.stop_scavenge(stop).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.metadata().get("exception").unwrap(), "scavenge-not-found");
    assert_eq!(operations.shutdown(Empty {}).await.unwrap_err().code(), Code::Unimplemented);
    served.stop().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let served = Served::start();
    let taken = ServerSettings { listen: served.address, ..settings() };
    let error = Server::bind(served.log.clone(), taken).unwrap_err();
    assert!(error.to_string().contains(&served.address.to_string()));
    served.stop().await;
}
