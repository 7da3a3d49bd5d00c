//! Relays whose clock is wrong: only the database's counts.

use crate::faults_outbox::{Outbox, SHORT_CLAIMS, SOON, arrivals, metric, webhook};
use chrono::TimeDelta;
use postroom_core::NewMessage;
use postroom_testkit::{Behaviour, Process, Receiver, eventually, skip};
use std::path::PathBuf;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_17_relays_whose_clocks_are_an_hour_off_behave_as_any_other() {
    let Some(library) = faketime() else {
        return skip(
            "faults_clock::fault_17_relays_whose_clocks_are_an_hour_off_behave_as_any_other",
            "libfaketime is not installed: apt-get install faketime",
        );
    };
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse, Behaviour::Answer(503)]);
    let config = outbox.configure(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 8"));
    let shifted = |by: &str| {
        let mut command = outbox.relay_command(&config);
        command.env("LD_PRELOAD", &library).env("FAKETIME", by);
        // What a wrong clock shifts is the time of day; the time that has passed stays right.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        Process::spawn(&mut command)
    };
    let ahead = shifted("+3600s");
    let line = ahead.wait_for_line("serving /healthz", SOON).await;
    let there = line
        .split_whitespace()
        .next()
        .unwrap()
        .trim_matches(|c: char| !c.is_ascii_digit() && c != 'Z');
    let now = outbox.store.now().await.unwrap();
    let off = there.parse::<chrono::DateTime<chrono::Utc>>().map(|there| there - now).unwrap();
    assert!(off > TimeDelta::minutes(59), "its clock is off by {off}: {line}");
    let held = &outbox.enqueue("webhook:a", 1).await[0];
    receiver.wait_for(1, SOON).await;

    // Nothing is claimed that is held, however late the other thinks that it is, and nothing
    // early: not the one that failed, nor the one that waits for its time.
    let behind = shifted("-3600s");
    let failing = &outbox.enqueue("webhook:a", 1).await[0];
    let due_at = now + TimeDelta::seconds(3);
    let later = NewMessage::new("webhook:a", "t").json(&1).due_at(due_at);
    let later = outbox.store.enqueue(&later).await.unwrap().into_id();
    outbox.wait_for(failing, "SENT").await;
    let later = outbox.wait_for(&later, "SENT").await;
    assert!(later.sent_at.unwrap() >= due_at, "{later:?}");
    assert!(later.sent_at.unwrap() < due_at + TimeDelta::seconds(20), "{later:?}");

    // The claim was kept past its time by the heartbeats of a relay that is an hour ahead, and the one an
    // hour behind has not taken it.
    eventually("two claim times to pass", SOON, async || {
        let now_there = outbox.store.now().await.unwrap();
        (now_there > now + TimeDelta::seconds(5)).then_some(())
    })
    .await;
    assert_eq!(outbox.record(held).await.status, "CLAIMED");
    receiver.release();
    let sent = outbox.wait_for(held, "SENT").await;
    assert_eq!(arrivals(&receiver)[&sent.message.event_id], 1);
    let age = outbox.store.now().await.unwrap() - sent.sent_at.unwrap();
    assert!(age < TimeDelta::minutes(1), "recorded by the database's clock: {age}");
    for relay in [&ahead, &behind] {
        assert_eq!(metric(relay, "outbox_rescued_total").await, Some(0));
        assert_eq!(metric(relay, "outbox_claims_lost_total").await, Some(0));
    }
}

/// The library that shifts a program's clock.
fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let places = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    places.chain(["/usr/lib/faketime/libfaketime.so.1".into()]).find(|path| path.exists())
}
