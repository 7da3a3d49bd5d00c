//! What a job carries.

use postroom_core::{Message, MessageId, RawJson};
use serde_json::Value;
use uuid::Uuid;

/// What a job carries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum JobData {
    /// The message: `outboxId`, `eventType`, `payload`, `headers`, `tenantId`, `correlationId`,
    /// `sourceEventId`.
    #[default]
    Full,
    /// `outboxId` alone: whoever runs the job reads the message from the outbox.
    Reference,
}

impl JobData {
    /// The data of a message's job. What a message does not have is left out. Payload and headers
    /// are carried as they are.
    pub(crate) fn of(self, message: &Message) -> RawJson {
        let mut fields = vec![("outboxId", text(&message.id.to_string()))];
        if self == Self::Full {
            fields.push(("eventType", text(&message.event_type)));
            fields.push(("payload", message.payload.as_str().to_owned()));
            let optional = [
                ("headers", message.headers.as_ref().map(|json| json.as_str().to_owned())),
                ("tenantId", message.tenant_id.as_deref().map(text)),
                ("correlationId", message.correlation_id.as_deref().map(text)),
            ];
            let there = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
            fields.extend(there);
            fields.push(("sourceEventId", text(&message.event_id)));
        }
        let fields: Vec<String> =
            fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        RawJson::trusted(format!("{{{}}}", fields.join(",")))
    }
}

fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Whether a job's data says that it came from this message.
pub(crate) fn names(data: &Value, message: &MessageId) -> bool {
    data.get("outboxId").and_then(Value::as_str) == Some(message.to_string().as_str())
}

/// A message made of the job of somebody who has no outbox: the fields of [`JobData::Full`] where
/// they are, otherwise the data as it stands. Receivers know it by `sourceEventId`, or by the
/// job's id.
pub(crate) fn foreign(integration: &str, id: &str, name: &str, data: &Value) -> Message {
    let field = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    let now = chrono::Utc::now();
    let payload = data.get("payload").unwrap_or(data);
    let event_id = field("sourceEventId").unwrap_or_else(|| id.to_owned());
    Message {
        id: Uuid::now_v7().into(),
        seq: 0,
        stream_id: event_id.clone(),
        event_id,
        integration: integration.to_owned(),
        event_type: field("eventType").unwrap_or_else(|| name.to_owned()),
        payload: RawJson::trusted(payload.to_string()),
        headers: data
            .get("headers")
            .filter(|headers| headers.is_object())
            .map(|headers| RawJson::trusted(headers.to_string())),
        tenant_id: field("tenantId"),
        user_id: None,
        correlation_id: field("correlationId"),
        causation_id: None,
        source: None,
        ordering_key: None,
        schema_version: 1,
        copy: 0,
        occurred_at: None,
        due_at: now,
        attempts: 0,
        max_attempts: 1,
        created_at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message() -> Message {
        let mut message = foreign("noop", "job-1", "t", &Value::Null);
        message.event_id = "event \"1\"".to_owned();
        message.event_type = "order.created".to_owned();
        message.payload = RawJson::trusted(r#"{"b": 1.0, "a":2}"#);
        message
    }

    #[test]
    fn full_data_has_the_fields_that_workers_know_and_carries_the_payload_as_it_is() {
        let mut message = message();
        let id = message.id.clone();
        assert_eq!(
            JobData::Full.of(&message).as_str(),
            format!(
                r#"{{"outboxId":"{id}","eventType":"order.created","payload":{{"b": 1.0, "a":2}},"sourceEventId":"event \"1\""}}"#
            )
        );
        message.headers = Some(RawJson::trusted(r#"{"h":1}"#));
        message.tenant_id = Some("acme".to_owned());
        message.correlation_id = Some("c".to_owned());
        let data: Value = serde_json::from_str(JobData::Full.of(&message).as_str()).unwrap();
        assert_eq!(
            data,
            json!({
                "outboxId": id, "eventType": "order.created", "payload": {"b": 1.0, "a": 2},
                "headers": {"h": 1}, "tenantId": "acme", "correlationId": "c",
                "sourceEventId": "event \"1\"",
            })
        );
        assert!(names(&data, &id));
        assert!(!names(&data, &Uuid::now_v7().into()));
    }

    #[test]
    fn a_reference_is_the_id_alone() {
        let message = message();
        let data = JobData::Reference.of(&message);
        assert_eq!(data.as_str(), format!(r#"{{"outboxId":"{}"}}"#, message.id));
    }

    #[test]
    fn a_job_of_somebody_else_becomes_a_message() {
        let plain = foreign("noop", "job-1", "order.created", &json!({"orderId": 7}));
        assert_eq!(plain.payload.as_str(), r#"{"orderId":7}"#);
        assert_eq!(
            (plain.event_id.as_str(), plain.event_type.as_str()),
            ("job-1", "order.created")
        );
        let data =
            json!({"payload": {"n": 1}, "sourceEventId": "e", "headers": [], "tenantId": "t"});
        let shaped = foreign("noop", "job-1", "t", &data);
        assert_eq!((shaped.payload.as_str(), shaped.event_id.as_str()), (r#"{"n":1}"#, "e"));
        assert_eq!((shaped.headers, shaped.tenant_id.as_deref()), (None, Some("t")));
    }
}
