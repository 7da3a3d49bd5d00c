//! What everything is compared with: the same bytes, written and read with nothing around it.

use anyhow::Context as _;
use postroom_eventlog::proto::shared::{RecordedEvent, StreamIdentifier, Uuid, uuid};
use postroom_eventlog::proto::streams::ReadResp;
use postroom_eventlog::proto::streams::read_resp::read_event::Position;
use postroom_eventlog::proto::streams::read_resp::{Content, ReadEvent};
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

/// Writes so many times these bytes, each synced before the next; says how many a second.
pub(crate) fn synced_writes(folder: &Path, bytes: &[u8], count: usize) -> anyhow::Result<f64> {
    let path = folder.join("bare");
    let mut file = File::create(&path).context("a file")?;
    let began = Instant::now();
    for _ in 0..count {
        file.write_all(bytes)?;
        file.sync_data()?;
    }
    let per_second = count as f64 / began.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(per_second)
}

/// The fixed parts of segments and records, see the log's own `segment.rs` and `record.rs`.
const HEADER: usize = 64;
const HEAD: usize = 88;

/// Reads the segments of a log from beginning to end, and encodes each event as it goes over the
/// wire; says how many there were, and how many a second.
pub(crate) fn read_and_encode(folder: &Path) -> anyhow::Result<(usize, f64)> {
    let mut segments: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort();
    let began = Instant::now();
    let (mut events, mut wire) = (0, Vec::new());
    for segment in segments {
        let mut reader = BufReader::with_capacity(128 << 10, File::open(segment)?);
        reader.read_exact(&mut [0; HEADER])?;
        let mut length = [0; 4];
        while reader.read_exact(&mut length).is_ok() {
            let mut record = vec![0; u32::from_le_bytes(length) as usize - 4];
            reader.read_exact(&mut record)?;
            encode(&record, &mut wire)?;
            events += 1;
        }
    }
    Ok((events, events as f64 / began.elapsed().as_secs_f64()))
}

fn encode(record: &[u8], wire: &mut Vec<u8>) -> anyhow::Result<()> {
    // Without its length, which was read before.
    let number = |at: usize| -> anyhow::Result<u64> {
        Ok(u64::from_le_bytes(record[at - 4..at + 4].try_into()?))
    };
    let short = |at: usize| -> anyhow::Result<usize> {
        Ok(u16::from_le_bytes(record[at - 4..at - 2].try_into()?).into())
    };
    let long = |at: usize| -> anyhow::Result<usize> {
        Ok(u32::from_le_bytes(record[at - 4..at].try_into()?) as usize)
    };
    let mut rest = &record[HEAD - 4..];
    let mut part = |length: usize| {
        let (part, after) = rest.split_at(length);
        rest = after;
        part
    };
    let (stream, event_type) = (part(short(10)?).to_vec(), part(short(12)?).to_vec());
    let (metadata, data) = (part(long(80)?).to_vec(), part(long(84)?).to_vec());
    let position = number(16)?;
    let id = uuid::Value::String(::uuid::Uuid::from_slice(&record[60..76])?.to_string());
    let event = RecordedEvent {
        id: Some(Uuid { value: Some(id) }),
        stream_identifier: Some(StreamIdentifier { stream_name: stream.into() }),
        stream_revision: number(32)?,
        prepare_position: position,
        commit_position: position,
        metadata: BTreeMap::from([
            ("type".to_owned(), String::from_utf8(event_type)?),
            ("content-type".to_owned(), "application/octet-stream".to_owned()),
            ("created".to_owned(), number(56)?.to_string()),
        ]),
        custom_metadata: metadata.into(),
        data: data.into(),
    };
    let event = ReadEvent {
        event: event.encode_to_vec().into(),
        link: bytes::Bytes::new(),
        position: Some(Position::CommitPosition(position)),
    };
    wire.clear();
    ReadResp { content: Some(Content::Event(event)) }.encode(wire)?;
    Ok(())
}
