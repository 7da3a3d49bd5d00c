//! The receiver does what its behaviours are named after, seen from a bare TCP client.

use postroom_testkit::{Behaviour, Receiver, eventually};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(10);

/// Sends one POST and reads until the connection ends, by whatever.
async fn post(receiver: &Receiver, path: &str, body: &str) -> std::io::Result<String> {
    let url = receiver.url();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = format!("{head}X-Test: yes\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn requests_are_recorded_as_they_arrived() {
    let receiver = Receiver::start();
    let answer = post(&receiver, "/hooks?tenant=7", r#"{"n":1}"#).await.unwrap();
    assert_eq!(status(&answer), "200");
    let requests = receiver.wait_for(1, DEADLINE).await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].method, "POST");
    assert_eq!(requests[0].path, "/hooks?tenant=7");
    assert_eq!(requests[0].header("x-test"), Some("yes"));
    assert_eq!(requests[0].json()["n"], 1);
}

#[tokio::test]
async fn scripted_behaviours_come_first_and_then_what_it_always_does() {
    let receiver = Receiver::start();
    receiver.always(Behaviour::Answer(202));
    receiver.next([
        Behaviour::Answer(500),
        Behaviour::AnswerWithHeader(429, "Retry-After", "7".into()),
    ]);
    assert_eq!(status(&post(&receiver, "/", "1").await.unwrap()), "500");
    let limited = post(&receiver, "/", "2").await.unwrap();
    assert_eq!(status(&limited), "429");
    assert!(limited.to_lowercase().contains("retry-after: 7\r\n"), "{limited}");
    assert_eq!(status(&post(&receiver, "/", "3").await.unwrap()), "202");
    assert_eq!(receiver.count(), 3);
}

#[tokio::test]
async fn a_held_response_comes_when_it_is_released() {
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let (answer, ()) = tokio::join!(post(&receiver, "/", "held"), async {
        receiver.wait_for(1, DEADLINE).await;
        // It is the held one that waits; the next goes through.
        assert_eq!(status(&post(&receiver, "/", "next").await.unwrap()), "200");
        receiver.release();
    });
    assert_eq!(status(&answer.unwrap()), "200");
}

#[tokio::test]
async fn a_slow_response_takes_its_time() {
    let receiver = Receiver::start();
    let time = Duration::from_millis(120);
    receiver.next([Behaviour::RespondSlowly(time)]);
    let start = Instant::now();
    assert_eq!(status(&post(&receiver, "/", "slow").await.unwrap()), "200");
    assert!(start.elapsed() >= time);
}

#[tokio::test]
async fn a_reset_comes_after_the_work_and_without_an_answer() {
    let receiver = Receiver::start();
    receiver.next([Behaviour::ResetAfterWork]);
    let error = post(&receiver, "/", "done, but nobody learns").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(receiver.requests()[0].body, "done, but nobody learns");
    assert_eq!(status(&post(&receiver, "/", "again").await.unwrap()), "200");
}

#[tokio::test]
async fn it_refuses_connections_and_comes_back_on_the_same_port() {
    let receiver = Receiver::start();
    let url = receiver.url();
    receiver.next([Behaviour::HoldResponse]);
    let (cut, ()) = tokio::join!(post(&receiver, "/", "under way"), async {
        receiver.wait_for(1, DEADLINE).await;
        receiver.refuse();
    });
    assert!(!cut.is_ok_and(|answer| answer.starts_with("HTTP")), "the open connection is cut");
    let refused = post(&receiver, "/", "refused").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    receiver.listen();
    assert_eq!(receiver.url(), url);
    eventually("an answer again", DEADLINE, async || {
        post(&receiver, "/", "back").await.ok().filter(|answer| status(answer) == "200")
    })
    .await;
    assert_eq!(receiver.requests().last().unwrap().body, "back");
}
