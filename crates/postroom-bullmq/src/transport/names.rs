//! What queues and jobs are called.

use postroom_core::{Message, Taken};
use uuid::Uuid;

const INTEGRATION: &str = "{integration}";
const TENANT: &str = "{tenant}";
/// What stands for the tenant of a message that has none.
const NO_TENANT: &str = "none";

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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct JobName {
    /// The message.
    pub message: Uuid,
    /// The number of the dispatch, from 1.
    pub dispatch: u32,
}

impl JobName {
    /// The dispatch that a taken message is for.
    pub(crate) fn of(taken: &Taken) -> Self {
        Self { message: taken.message.id, dispatch: taken.dispatch }
    }

    /// The dispatch that a job's id stands for; `None` for a job of somebody else's.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        // As it is written, and not in any of the other ways to write one.
        let message = Uuid::parse_str(id.get(..36)?).ok()?;
        let dispatch = match &id[36..] {
            "" => 1,
            rest => rest.strip_prefix('-')?.parse().ok().filter(|number| *number > 1)?,
        };
        let name = Self { message, dispatch };
        (name.id() == id).then_some(name)
    }

    /// The job's id: the message's, followed by the number from the second dispatch on.
    #[must_use]
    pub fn id(self) -> String {
        match self.dispatch {
            0 | 1 => self.message.to_string(),
            number => format!("{}-{number}", self.message),
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
        for dispatch in [1, 2, 37] {
            let name = JobName { message, dispatch };
            assert_eq!(JobName::parse(&name.id()), Some(name));
        }
        assert_eq!(JobName { message, dispatch: 1 }.id(), message.to_string());
        assert_eq!(JobName { message, dispatch: 2 }.id(), format!("{message}-2"));
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
        ] {
            assert_eq!(JobName::parse(&foreign), None, "{foreign}");
        }
    }
}
