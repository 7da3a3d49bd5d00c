//! What there is to know about a group.

use super::Group;
use crate::expected::ReadError;
use crate::proto::persistent_subscriptions::SubscriptionInfo;
use crate::proto::persistent_subscriptions::subscription_info::{ConnectionInfo, Measurement};

impl Group {
    pub(super) async fn information(&mut self) -> Result<SubscriptionInfo, ReadError> {
        self.remove_gone();
        self.parked.refresh(&self.log).await?;
        let known = self.source.last(&self.log).await?;
        let is_behind = self.consumers.active() > 0 && !self.is_live && !self.is_exhausted;
        let rate = self.rate.measure();
        let has_statistics = self.settings.extra_statistics;
        let connections = self.consumers.iter_mut().map(|consumer| {
            let rate = consumer.rate.measure();
            let figures = if has_statistics { consumer.latency.figures() } else { Vec::new() };
            let figures = figures.into_iter();
            ConnectionInfo {
                from: consumer.identity.from.clone(),
                username: consumer.identity.user.clone(),
                average_items_per_second: to_i32(rate.per_second),
                total_items: to_i64(rate.total),
                count_since_last_measurement: to_i64(rate.since),
                observed_measurements: figures
                    .map(|(key, value)| Measurement { key: key.to_owned(), value: to_i64(value) })
                    .collect(),
                available_slots: to_i32((consumer.slots.saturating_sub(consumer.in_flight)) as u64),
                in_flight_messages: to_i32(consumer.in_flight as u64),
                connection_name: consumer.identity.connection.clone(),
            }
        });
        let connections: Vec<ConnectionInfo> = connections.collect();
        let settings = &self.settings;
        let buffered = self.buffer.len() as u64;
        let print = |place: Option<u64>| place.map_or_else(String::new, |p| self.source.print(p));
        Ok(SubscriptionInfo {
            event_source: self.id.stream().to_owned(),
            group_name: self.id.group().to_owned(),
            status: if is_behind { "Behind" } else { "Live" }.to_owned(),
            connections,
            average_per_second: to_i32(rate.per_second),
            total_items: to_i64(rate.total),
            count_since_last_measurement: to_i64(rate.since),
            last_checkpointed_event_position: print(self.saving.last()),
            last_known_event_position: print(known),
            resolve_link_tos: settings.resolve_links,
            start_from: self.source.print_start(self.start),
            message_timeout_milliseconds: to_i32(settings.message_timeout_ms.into()),
            extra_statistics: settings.extra_statistics,
            max_retry_count: to_i32(settings.max_retry_count.into()),
            live_buffer_size: to_i32(settings.live_buffer_size.into()),
            buffer_size: to_i32(settings.history_buffer_size.into()),
            read_batch_size: to_i32(settings.read_batch_size.into()),
            check_point_after_milliseconds: to_i32(settings.checkpoint_after_ms.into()),
            min_check_point_count: to_i32(settings.min_checkpoint_count.into()),
            max_check_point_count: to_i32(settings.max_checkpoint_count.into()),
            read_buffer_count: to_i32(if self.is_live { 0 } else { buffered }),
            live_buffer_count: to_i64(if self.is_live { buffered } else { 0 }),
            retry_buffer_count: to_i32((self.retries.len() + self.replays.len()) as u64),
            total_in_flight_messages: to_i32(self.flight.len() as u64),
            outstanding_messages_count: to_i32(self.flight.len() as u64),
            named_consumer_strategy: settings.strategy.name().to_owned(),
            max_subscriber_count: to_i32(settings.max_subscriber_count.into()),
            parked_message_count: to_i64(self.parked.count()),
        })
    }
}

fn to_i32(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
