//! What queues and jobs are called.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use postroom_core::{Message, MessageId, Taken};
use uuid::Uuid;

const INTEGRATION: &str = "{integration}";
const TENANT: &str = "{tenant}";
/// What stands for the tenant of a message that has none.
const NO_TENANT: &str = "none";

/// What the jobs of messages are called whose ids are texts. BullMQ has keys of its own beside the
/// jobs, which none of these can be.
const TEXT_JOB: &str = "outbox-";
/// What of a text stands in a job's id as something else: BullMQ allows no colon there.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How a lane's queues are called: text with `{integration}`, and with `{tenant}` where each
/// tenant has a queue of its own. A colon, which BullMQ does not allow, becomes a dash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueuePattern(String);

impl Default for QueuePattern {
    fn default() -> Self {
        Self(format!("outbox-{INTEGRATION}"))
    }
}

impl QueuePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let bare = text.replace(INTEGRATION, "").replace(TENANT, "");
        if text.is_empty() {
            return Err("is empty");
        }
        if bare.contains(':') {
            return Err("holds a colon, which BullMQ allows in no queue's name");
        }
        if bare.contains(['{', '}']) {
            return Err("holds braces other than {integration} and {tenant}");
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether each tenant has a queue of its own.
    #[must_use]
    pub fn is_by_tenant(&self) -> bool {
        self.0.contains(TENANT)
    }

    /// The queue for a tenant's messages to an integration.
    #[must_use]
    pub fn name(&self, integration: &str, tenant: Option<&str>) -> String {
        let tenant = tenant.filter(|tenant| !tenant.is_empty()).unwrap_or(NO_TENANT);
        self.0.replace(INTEGRATION, integration).replace(TENANT, tenant).replace(':', "-")
    }

    pub(crate) fn of(&self, message: &Message) -> String {
        self.name(&message.integration, message.tenant_id.as_deref())
    }
}

/// One dispatch of one message, which is one job.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct JobName {
    /// The message.
    pub message: MessageId,
    /// The number of the dispatch, from 1.
    pub dispatch: u32,
}

impl JobName {
    /// The dispatch that a taken message is for.
    pub(crate) fn of(taken: &Taken) -> Self {
        Self { message: taken.message.id.clone(), dispatch: taken.dispatch }
    }

    /// The dispatch that a job's id stands for; `None` for a job of somebody else's.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        let name = match id.strip_prefix(TEXT_JOB) {
            Some(rest) => Self::of_text(rest)?,
            None => Self::of_uuid(id)?,
        };
        // As it is written, and not in any of the other ways to write one.
        (name.id() == id).then_some(name)
    }

    fn of_uuid(id: &str) -> Option<Self> {
        let message = Uuid::parse_str(id.get(..36)?).ok()?.into();
        let dispatch = match &id[36..] {
            "" => 1,
            rest => rest.strip_prefix('-')?.parse().ok().filter(|number| *number > 1)?,
        };
        Some(Self { message, dispatch })
    }

    fn of_text(rest: &str) -> Option<Self> {
        let (escaped, number) = rest.rsplit_once('-')?;
        let text = percent_decode_str(escaped).decode_utf8().ok()?;
        let message = MessageId::trusted(&text);
        Some(Self { message, dispatch: number.parse().ok().filter(|number| *number > 0)? })
    }

    /// The job's id. Where the message's is a uuid: that, followed by the number from the second
    /// dispatch on. Where it is a text: `outbox-`, the text, escaped, and always the number.
    #[must_use]
    pub fn id(&self) -> String {
        match (&self.message, self.dispatch) {
            (MessageId::Uuid(uuid), 0 | 1) => uuid.to_string(),
            (MessageId::Uuid(uuid), number) => format!("{uuid}-{number}"),
            (MessageId::Text(text), number) => {
                format!("{TEXT_JOB}{}-{}", utf8_percent_encode(text, ESCAPED), number.max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_called_after_integration_and_tenant() {
        let pattern = QueuePattern::default();
        assert_eq!(pattern.name("kafka:payments", None), "outbox-kafka-payments");
        assert!(!pattern.is_by_tenant());
        let pattern = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
        assert!(pattern.is_by_tenant());
        assert_eq!(pattern.name("webhook:x", Some("acme:eu")), "out-webhook-x-acme-eu");
        assert_eq!(pattern.name("webhook:x", None), "out-webhook-x-none");
        for bad in ["", "a:b", "a-{other}", "{"] {
            assert!(QueuePattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn jobs_are_called_after_message_and_dispatch() {
        let message = Uuid::now_v7();
        let of = |dispatch| JobName { message: message.into(), dispatch };
        for dispatch in [1, 2, 37] {
            assert_eq!(JobName::parse(&of(dispatch).id()), Some(of(dispatch)));
        }
        assert_eq!(of(1).id(), message.to_string());
        assert_eq!(of(2).id(), format!("{message}-2"));
        let text = message.to_string();
        for foreign in [
            "7".to_owned(),
            "order-7".to_owned(),
            format!("{text}-1"),
            format!("{text}-02"),
            format!("{text}-x"),
            format!("{text}2"),
            text.to_uppercase(),
            message.simple().to_string(),
            "ä".repeat(40),
            "outbox-7".to_owned(),
            "outbox-7-0".to_owned(),
            "outbox-7-01".to_owned(),
            "outbox-7-x".to_owned(),
            "outbox-a:b-1".to_owned(),
            "outbox-%3a-1".to_owned(),
            "outbox-%ff-1".to_owned(),
            format!("outbox-{text}-1"),
        ] {
            assert_eq!(JobName::parse(&foreign), None, "{foreign}");
        }
    }

    #[test]
    fn any_text_comes_back_from_a_jobs_id_that_bullmq_accepts() {
        let upper = Uuid::now_v7().to_string().to_uppercase();
        let texts = [
            "7",
            "a:b:c",
            "meta",
            "order-7",
            "order-7-2",
            "50%3A",
            "größe \n'\"/*",
            upper.as_str(),
        ];
        for (text, dispatch) in texts.into_iter().flat_map(|text| [(text, 1), (text, 2)]) {
            let name = JobName { message: MessageId::trusted(text), dispatch };
            let id = name.id();
            assert!(id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{id}");
            assert_eq!(JobName::parse(&id), Some(name), "{id}");
        }
        let name =
            JobName { message: MessageId::trusted("01ARZ3NDEKTSV4RRFFQ69G5FAV"), dispatch: 1 };
        assert_eq!(name.id(), "outbox-01ARZ3NDEKTSV4RRFFQ69G5FAV-1");
    }
}
