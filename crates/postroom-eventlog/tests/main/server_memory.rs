//! How much memory clients can take that do not read what they asked for.

use crate::served::{PATIENCE, Served};
use postroom_eventlog::proto::shared::Empty;
use postroom_eventlog::proto::streams::ReadReq;
use postroom_eventlog::proto::streams::read_req::{AllOptions, Options, all_options, options};
use postroom_eventlog::proto::streams::streams_client::StreamsClient;
use postroom_eventlog::{ExpectedRevision, NewEvent};
use std::process::Command;
use std::time::{Duration, Instant};

/// Set for the process that measures itself: other tests would disturb it.
const CHILD: &str = "POSTROOM_EVENTLOG_TEST_MEMORY";
const SUBSCRIPTIONS: u64 = 400;
/// How much one of them may hold, on both sides of the connection.
const EACH: u64 = 400 << 10;

/// How many bytes of memory this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Waits until this process takes no more memory, and says how much it has.
async fn settled() -> u64 {
    const STEADY: Duration = Duration::from_secs(1);
    let (mut highest, mut since) = (resident(), Instant::now());
    let deadline = Instant::now() + PATIENCE;
    while since.elapsed() < STEADY {
        assert!(Instant::now() < deadline, "memory still grows");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = resident();
        if now > highest + (256 << 10) {
            (highest, since) = (now, Instant::now());
        }
    }
    resident()
}

#[test]
#[cfg(target_os = "linux")]
fn many_subscriptions_that_nobody_reads_hold_little_memory() {
    if std::env::var_os(CHILD).is_some() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        // What the stacks of threads take is none of the subscriptions'.
        let runtime = runtime.max_blocking_threads(4).enable_all().build().unwrap();
        return runtime.block_on(unread_subscriptions());
    }
    let name = "server_memory::many_subscriptions_that_nobody_reads_hold_little_memory";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        // Each thread would keep memory of its own that is free.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

async fn unread_subscriptions() {
    let served = Served::start();
    for _ in 0..20 {
        let events = (0..200).map(|_| NewEvent::json("t", vec![b'x'; 4_000])).collect();
        served.log.append("s", ExpectedRevision::Any, events).await.unwrap();
    }
    let client = StreamsClient::new(served.channel().await);
    let before = settled().await;
    let mut unread = Vec::new();
    for _ in 0..SUBSCRIPTIONS {
        let all = AllOptions { all_option: Some(all_options::AllOption::Start(Empty {})) };
        let options = Options {
            stream_option: Some(options::StreamOption::All(all)),
            count_option: Some(options::CountOption::Subscription(Empty {})),
            ..Default::default()
        };
        let request = ReadReq { options: Some(options) };
        unread.push(client.clone().read(request).await.unwrap().into_inner());
    }
    let each = settled().await.saturating_sub(before) / SUBSCRIPTIONS;
    println!("each holds {each} bytes");
    assert!(each < EACH, "each subscription holds {each} bytes");
    drop(unread);
    served.stop().await;
}
