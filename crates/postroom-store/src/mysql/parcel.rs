//! Parcels, and how a claim names them.

use super::key::Key;
use super::literal;
use chrono::NaiveDateTime;
use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The key of a parcel: its lane, and the message that it names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct ParcelKey {
    pub(super) integration: Arc<str>,
    pub(super) message: Key,
}

/// A parcel that is there.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) key: ParcelKey,
    pub(super) bytes: i64,
    pub(super) due_at: NaiveDateTime,
}

impl Parcel {
    /// Reads lane, number, id, bytes and due time.
    pub(super) fn of(row: &MySqlRow) -> Result<Self, Error> {
        let id = row.try_get::<Hyphenated, _>(2)?.into();
        let message = Key { seq: row.try_get(1)?, id };
        let integration = row.try_get::<String, _>(0)?.into();
        let key = ParcelKey { integration, message };
        Ok(Self { key, bytes: row.try_get(3)?, due_at: row.try_get(4)? })
    }
}

/// Where these parcels are, as a condition on `outbox_parcel AS p`: by lane and number. Others may have the
/// same numbers, and whoever looks compares the ids.
pub(super) fn places(parcels: &[ParcelKey]) -> String {
    let mut lanes: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for ParcelKey { integration, message } in parcels {
        lanes.entry(integration).or_default().push(message.seq);
    }
    let lane = |(lane, seqs): (&str, Vec<i64>)| {
        format!("p.integration = {} AND p.seq IN ({})", literal::text(lane), literal::numbers(seqs))
    };
    let lanes: Vec<String> = lanes.into_iter().map(lane).collect();
    if lanes.is_empty() { "FALSE".to_owned() } else { lanes.join(" OR ") }
}

/// The list that a claim keeps of its parcels.
pub(super) fn write_list<'a>(parcels: impl IntoIterator<Item = &'a ParcelKey>) -> String {
    let mut list = String::new();
    let mut lane: Option<&str> = None;
    for ParcelKey { integration, message } in parcels {
        if lane != Some(integration) {
            if lane.is_some() {
                list.push(';');
            }
            list.push_str(&format!("{}:", literal::hex(integration)));
            lane = Some(integration);
        }
        list.push_str(&format!("{}={},", message.seq, message.id.hyphenated()));
    }
    if lane.is_some() {
        list.push(';');
    }
    list
}

/// Reads such a list.
///
/// # Errors
/// When it is none: somebody has changed the claim by hand.
pub(super) fn read_list(list: &str) -> Result<Vec<ParcelKey>, Error> {
    parcels(list).ok_or_else(|| {
        let what = format!("a claim's list of parcels cannot be read ({} characters)", list.len());
        Error::Decode(what.into())
    })
}

fn parcels(list: &str) -> Option<Vec<ParcelKey>> {
    let mut parcels = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let (lane, after) = rest.split_once(';')?;
        let (name, mut messages) = lane.split_once(':')?;
        let integration: Arc<str> = literal::unhex(name)?.into();
        while !messages.is_empty() {
            let (message, after) = messages.split_once(',')?;
            let message = key(message)?;
            parcels.push(ParcelKey { integration: Arc::clone(&integration), message });
            messages = after;
        }
        rest = after;
    }
    Some(parcels)
}

fn key(text: &str) -> Option<Key> {
    let (seq, id) = text.split_once('=')?;
    Some(Key { seq: seq.parse().ok()?, id: Uuid::parse_str(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcels() -> Vec<ParcelKey> {
        let of = |lane: &str, seq| ParcelKey {
            integration: lane.into(),
            message: Key { seq, id: Uuid::now_v7() },
        };
        vec![of("a", 1), of("a", 7), of("b;:=,'", -3), of("größe", i64::MAX), of("a", 0)]
    }

    #[test]
    fn a_claims_list_is_read_as_it_was_written() {
        let parcels = parcels();
        assert_eq!(read_list(&write_list(&parcels)).unwrap(), parcels);
        assert_eq!(read_list(&write_list(&[])).unwrap(), []);
    }

    #[test]
    fn a_list_that_somebody_has_changed_is_an_error_and_no_shorter_list() {
        let whole = write_list(&parcels());
        let cut = |by| &whole[..whole.len() - by];
        for broken in [&whole[1..], cut(1), cut(2), cut(9), "6e:1;", "6e:1=x,;", "zz:;"] {
            assert!(read_list(broken).is_err(), "{broken}");
        }
    }
}
