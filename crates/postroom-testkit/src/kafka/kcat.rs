//! kcat, a client that shares nothing with the one under test but its protocol.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::process::{Command, Stdio};

/// A record as kcat read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KafkaRecord {
    /// The partition it is in.
    pub partition: i64,
    /// Its place there.
    pub offset: i64,
    /// Its time, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<String>,
    /// Its value.
    pub value: String,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
}

/// Whether the brokers answer a question.
pub(super) fn answers(brokers: &str) -> bool {
    Command::new("kcat")
        .args(["-L", "-m", "1", "-b", brokers])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The id of the broker that leads the first partition of a topic.
#[cfg(feature = "kafka")]
pub(super) fn leader(brokers: &str, topic: &str) -> anyhow::Result<usize> {
    let output = Command::new("kcat")
        .args(["-L", "-J", "-m", "10", "-b", brokers, "-t", topic])
        .stdin(Stdio::null())
        .output()
        .context("running kcat")?;
    ensure!(output.status.success(), "kcat: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).context("kcat's output")?;
    let leader = said["topics"][0]["partitions"][0]["leader"].as_u64();
    let leader = leader.with_context(|| format!("{topic} has no leader: {said}"))?;
    usize::try_from(leader).context("the id of a broker")
}

/// Everything in a topic, partition by partition.
pub(super) fn read(brokers: &str, topic: &str) -> anyhow::Result<Vec<KafkaRecord>> {
    let output = Command::new("kcat")
        .args(["-C", "-e", "-q", "-J", "-o", "beginning", "-X", "fetch.wait.max.ms=10"])
        // What is damaged is not passed over.
        .args(["-X", "check.crcs=true", "-b", brokers, "-t", topic])
        .stdin(Stdio::null())
        .output()
        .context("running kcat")?;
    let said = String::from_utf8(output.stdout).context("kcat's output")?;
    ensure!(output.status.success(), "kcat: {}", String::from_utf8_lossy(&output.stderr));
    let mut records: Vec<KafkaRecord> = said.lines().map(record).collect::<Result<_, _>>()?;
    records.sort_by_key(|record| (record.partition, record.offset));
    Ok(records)
}

fn record(line: &str) -> anyhow::Result<KafkaRecord> {
    let record: Value = serde_json::from_str(line).with_context(|| format!("kcat: {line}"))?;
    let number = |name: &str| record[name].as_i64().with_context(|| format!("{name} in {line}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let headers = record["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(KafkaRecord {
        partition: number("partition")?,
        offset: number("offset")?,
        timestamp: number("ts")?,
        key: record["key"].as_str().map(str::to_owned),
        value: text(&record["payload"]),
        headers: headers
            .chunks(2)
            .map(|pair| (text(&pair[0]), pair.get(1).map(text).unwrap_or_default()))
            .collect(),
    })
}
