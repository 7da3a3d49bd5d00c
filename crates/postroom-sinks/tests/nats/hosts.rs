//! Several servers in one URL.

use super::Client;
use crate::destination::{retried, sink};
use postroom_core::{Outcome, Sink};
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Nats, OrSkip as _, eventually, free_port};
use serde_json::json;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A batch that meets the end of its connection is retried; the next one is delivered.
async fn delivered(sink: &dyn Sink, event: &str) {
    eventually("the message to be delivered", SOON, async || {
        match &deliver_all(sink, &[message(event)]).await[..] {
            [Outcome::Delivered] => Some(()),
            [Outcome::Retry { .. }] => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn when_the_server_in_use_is_killed_the_next_in_the_list_is_used() {
    let first = Nats::private("").await.or_skip();
    let second = Nats::private("").await.or_skip();
    for server in [&first, &second] {
        Client::connect(server.address()).create_stream("orders", &["orders"], json!({}));
    }
    let dead = free_port().unwrap();
    let url = format!("nats://127.0.0.1:{dead},{},{}", first.address(), second.address());
    let sink = sink("nats:orders", json!({"url": url}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    first.crash().await.unwrap();
    delivered(&*sink, "e-2").await;
    let address = second.address();
    let read = move || Client::connect(address).read_stream("orders");
    let received = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(received.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["e-2"]);
    second.crash().await.unwrap();
    eventually("every server to be told", SOON, async || {
        let outcomes = deliver_all(&*sink, &[message("e-3")]).await;
        let error = retried(&outcomes[0]);
        let places = [format!("127.0.0.1:{dead}"), first.address().to_string()];
        (error.contains("cannot connect") && places.iter().all(|one| error.contains(one)))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_the_cluster_has_named_takes_over_when_the_only_one_in_the_url_is_killed() {
    let routes = [free_port().unwrap(), free_port().unwrap()];
    let node = async |number: usize| {
        let settings = format!(
            "server_name: n{number}\ncluster {{ name: shop, listen: \"127.0.0.1:{}\", \
             routes: [\"nats-route://127.0.0.1:{}\"] }}\n",
            routes[number],
            routes[1 - number]
        );
        Nats::private(&settings).await.or_skip()
    };
    let (first, second) = (node(0).await, node(1).await);
    let url = format!("nats://{}", first.address());
    let mut listener = Client::connect(second.address());
    listener.subscribe("orders");
    // Each connection hears of the others once; so a new one is made until it has.
    let sink = eventually("the first to know the second", SOON, async || {
        let stream = std::net::TcpStream::connect(first.address()).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
        let other = second.address().to_string();
        line.contains(&other).then(|| sink("nats:orders", json!({"url": url, "mode": "core"})))
    })
    .await;
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    first.crash().await.unwrap();
    delivered(&*sink, "e-2").await;
    let last = tokio::task::spawn_blocking(move || {
        loop {
            let arrived = listener.next();
            if arrived.headers["nats-msg-id"].ends_with("e-2") {
                return arrived.subject;
            }
        }
    });
    assert_eq!(last.await.unwrap(), "orders");
}
