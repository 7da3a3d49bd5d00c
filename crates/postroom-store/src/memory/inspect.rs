//! Looking closer, for tools that people work with.

use super::MemoryStore;
use async_trait::async_trait;
use postroom_core::{Arrived, ErrorGroup, Filter, IdPrefix, Inspect, RawJson, Record, StoreResult};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[async_trait]
impl Inspect for MemoryStore {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        let tables = self.lock();
        let view = tables.view();
        let rows = tables.messages.values().filter(|row| prefix.matches(&row.message.id));
        let mut found: Vec<Record> = rows.map(|row| view.record(row)).collect();
        found.sort_unstable_by(|one, other| one.message.id.cmp(&other.message.id));
        found.truncate(limit);
        Ok(found)
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        let tables = self.lock();
        let mut groups: BTreeMap<(String, String), ErrorGroup> = BTreeMap::new();
        let view = tables.view();
        let records = tables.messages.values().map(|row| view.record(row));
        for record in records.filter(|record| filter.matches(record)) {
            let (Some(error), message) = (record.last_error, record.message) else { continue };
            let group = groups.entry((message.integration.clone(), error.clone()));
            let group = group.or_insert_with(|| ErrorGroup {
                integration: message.integration,
                error,
                messages: 0,
                oldest: message.created_at,
                newest: message.created_at,
                example: message.id.clone(),
            });
            group.messages += 1;
            group.oldest = group.oldest.min(message.created_at);
            group.newest = group.newest.max(message.created_at);
            if message.id > group.example {
                group.example = message.id;
            }
        }
        let mut groups: Vec<ErrorGroup> = groups.into_values().collect();
        groups.sort_by_key(|group| Reverse(group.messages));
        groups.truncate(filter.limit);
        Ok(groups)
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        let tables = self.lock();
        let mut lanes: BTreeMap<String, Arrived> = BTreeMap::new();
        for (seq, row) in tables.messages.range(after.saturating_add(1)..) {
            let integration = row.message.integration.clone();
            let lane = lanes.entry(integration.clone());
            let lane = lane.or_insert(Arrived { integration, messages: 0, last: *seq });
            lane.messages += 1;
            lane.last = *seq;
        }
        Ok(lanes.into_values().collect())
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        Ok(self.lock().messages.last_key_value().map_or(0, |(seq, _)| *seq))
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        let tables = self.lock();
        let new = tables.messages.range(after.saturating_add(1)..).map(|(seq, _)| *seq);
        let mut seqs: BTreeSet<i64> = new.take(limit).collect();
        let open = tables.deliveries.iter().filter(|(_, delivery)| !delivery.dead);
        let fresh = tables.parcels.named().filter(|id| !tables.deliveries.contains(id));
        let fresh = fresh.filter_map(|id| tables.row(id)).filter(|row| row.is_deliverable());
        let mut open: Vec<_> = open
            .map(|(_, delivery)| (delivery.due_at, delivery.seq))
            .chain(fresh.map(|row| (row.message.due_at, row.message.seq)))
            .collect();
        open.sort_unstable();
        seqs.extend(open.into_iter().take(limit).map(|(_, seq)| seq));
        Ok(seqs.into_iter().collect())
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        let tables = self.lock();
        let view = tables.view();
        let rows = seqs.iter().filter_map(|seq| tables.messages.get(seq));
        let records = rows.map(|row| view.record(row)).map(|mut record| {
            record.message.payload = RawJson::trusted("null");
            record.message.headers = None;
            record
        });
        Ok(records.collect())
    }
}
