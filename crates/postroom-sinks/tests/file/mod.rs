//! The file sink appends whole lines, whatever was in the file before.

mod contract;

use crate::messages::{deliver, deliver_one, message};
use crate::page;
use postroom_core::{Outcome, RawJson, Sink};
use postroom_sinks::{FileConfig, FileSink};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

fn sink(path: &Path) -> FileSink {
    FileSink::new(FileConfig { path: path.to_owned() })
}

/// The event ids of the lines that are JSON; readers skip the rest.
fn event_ids(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .map(|line| line["event_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn each_message_is_a_line_also_over_several_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let sink = sink(&path);
    assert_eq!(deliver(&sink, &[message("a"), message("b")]).await, vec![Outcome::Delivered; 2]);
    assert_eq!(deliver_one(&sink, message("c")).await, Outcome::Delivered);
    assert_eq!(event_ids(&path), ["a", "b", "c"]);
}

#[tokio::test]
async fn line_breaks_in_a_payload_stay_on_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let mut pretty = message("a");
    pretty.payload = RawJson::trusted("{\r\n  \"text\": \"one\\ntwo\"\n}");
    deliver_one(&sink(&path), pretty).await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 1);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["payload"]["text"], "one\ntwo");
}

#[tokio::test]
async fn a_line_cut_short_by_a_crash_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    std::fs::write(&path, "{\"event_id\":\"old\"}\n{\"event_id\":\"to").unwrap();
    deliver_one(&sink(&path), message("new")).await;
    assert_eq!(event_ids(&path), ["old", "new"]);
}

#[tokio::test]
async fn concurrent_batches_do_not_mix_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let sink = Arc::new(sink(&path));
    let batches: Vec<_> = (0..8)
        .map(|n| {
            let sink = Arc::clone(&sink);
            let batch: Vec<_> = (0..50).map(|m| message(&format!("{n}-{m}"))).collect();
            tokio::spawn(async move { deliver(&*sink, &batch).await })
        })
        .collect();
    for batch in batches {
        assert_eq!(batch.await.unwrap(), vec![Outcome::Delivered; 50]);
    }
    assert_eq!(event_ids(&path).len(), 400);
}

#[tokio::test]
async fn a_renamed_file_is_followed_by_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let sink = sink(&path);
    deliver_one(&sink, message("a")).await;
    std::fs::rename(&path, folder.path().join("out.1")).unwrap();
    deliver_one(&sink, message("b")).await;
    assert_eq!(event_ids(&path), ["b"]);
}

#[tokio::test]
async fn a_missing_folder_pauses_the_lane_and_check_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/out.jsonl");
    let sink = sink(&path);
    let Outcome::Refuse { error } = deliver_one(&sink, message("a")).await else {
        panic!("a missing folder concerns the destination")
    };
    assert!(error.contains("out.jsonl") && error.contains("check that its folder"), "{error}");
    assert!(sink.probe().await.is_err());
}

#[tokio::test]
async fn a_probe_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    sink(&path).probe().await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_row_that_is_no_json_is_rejected_and_its_neighbours_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let mut broken = message("broken");
    broken.payload = RawJson::trusted("{oops");
    let outcomes = deliver(&sink(&path), &[message("a"), broken, message("b")]).await;
    assert!(matches!(outcomes[1], Outcome::Reject { .. }));
    assert_eq!(event_ids(&path), ["a", "b"]);
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    page::deliver("file", json!({"path": path})).await;
    assert_eq!(event_ids(&path), ["e-1"]);
}
