//! Names made from a message: `orders.{tenant}.{event_type}`.

use crate::options::Options;
use postroom_core::{Message, Outcome};

/// A text with fields of the message in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    EventType,
    OrderingKey,
    Source,
    Stream,
    Tenant,
}

const FIELDS: [(&str, Field); 5] = [
    ("event_type", Field::EventType),
    ("ordering_key", Field::OrderingKey),
    ("source", Field::Source),
    ("stream", Field::Stream),
    ("tenant", Field::Tenant),
];

impl Template {
    /// Reads an option; without one, `default` is taken as a template.
    pub(crate) fn read(options: &mut Options, key: &str, default: &str) -> Option<Self> {
        let text: String = options
            .optional(key, "a string, in which {event_type} and other fields can stand")
            .unwrap_or_else(|| default.to_owned());
        match Self::parse(&text) {
            Ok(template) => Some(template),
            Err(problem) => {
                let known: Vec<_> = FIELDS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
                options.fault(&[key], problem, Some(format!("fields are {}", known.join(", "))));
                None
            }
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            // Twice, a brace stands for itself.
            if let Some(after) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some(after) = brace.strip_prefix('{') {
                let (name, after) = after.split_once('}').ok_or("has a { without its }")?;
                let field = FIELDS.iter().find(|(known, _)| *known == name);
                let field = field.ok_or("names a field that there is not")?.1;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Field(field));
                rest = after;
            } else {
                return Err("has a } without its {");
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// The text for one message.
    ///
    /// # Errors
    /// The rejection to report when the message does not have a field.
    pub(crate) fn render(&self, message: &Message) -> Result<String, Outcome> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Field(field) => text.push_str(field.of(message).ok_or_else(|| {
                    Outcome::reject(format!(
                        "the message has no {}, which this integration's configuration needs: \
                         set it on the row, or change the template",
                        field.name()
                    ))
                })?),
            }
        }
        Ok(text)
    }

    /// The text with a letter for each field.
    #[cfg(feature = "redis")]
    pub(crate) fn sample(&self) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(_) => "x".to_owned(),
        };
        self.0.iter().map(text).collect()
    }

    /// The text before the first field: what no message can change.
    #[cfg(feature = "nats")]
    pub(crate) fn start(&self) -> &str {
        match self.0.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// The text, when it is the same for every message.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &self.0[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

impl Field {
    fn of(self, message: &Message) -> Option<&str> {
        match self {
            Self::EventType => Some(&message.event_type),
            Self::OrderingKey => message.ordering_key.as_deref(),
            Self::Source => message.source.as_deref(),
            Self::Stream => Some(&message.stream_id),
            Self::Tenant => message.tenant_id.as_deref(),
        }
    }

    fn name(self) -> &'static str {
        FIELDS.iter().find(|(_, field)| *field == self).map_or("field", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::message;

    #[test]
    fn fields_stand_for_what_the_message_has() {
        let template = Template::parse("a.{tenant}.{event_type}{stream}-{source}").unwrap();
        let text = template.render(&message("e-1")).unwrap();
        assert_eq!(text, "a.acme.order.placed.v1order-1-shop");
        assert_eq!(template.fixed(), None);
        assert_eq!(Template::parse("orders").unwrap().fixed(), Some("orders"));
        assert_eq!(Template::parse("").unwrap().fixed(), Some(""));
    }

    #[test]
    #[cfg(feature = "nats")]
    fn the_start_ends_before_the_first_field() {
        for (text, start) in [("a.{tenant}.b", "a."), ("{tenant}.b", ""), ("a.b", "a.b"), ("", "")]
        {
            assert_eq!(Template::parse(text).unwrap().start(), start);
        }
    }

    #[test]
    fn doubled_braces_stand_for_themselves() {
        let template = Template::parse("{{{tenant}}}:{{orders}}").unwrap();
        assert_eq!(template.render(&message("e-1")).unwrap(), "{acme}:{orders}");
    }

    #[test]
    fn a_field_that_the_message_lacks_is_a_rejection() {
        let template = Template::parse("{ordering_key}").unwrap();
        let Err(Outcome::Reject { error }) = template.render(&message("e-1")) else { panic!() };
        assert!(error.contains("no ordering_key"), "{error}");
    }

    #[test]
    fn what_is_no_field_is_a_fault() {
        for bad in ["{", "}", "a{b", "{}", "{payload}", "{event_type", "a}b", "{{{tenant}}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
