//! Texts for people, made from a message by templates in the configuration.

use crate::options::{Options, nearest};
use crate::wrapping;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use postroom_core::{Message, Outcome};
use serde_json::json;
use std::fmt;

/// What a template can name.
const NAMES: [&str; 16] = [
    "attempt",
    "causation",
    "correlation",
    "created_at",
    "event_id",
    "event_type",
    "headers",
    "idempotency_key",
    "message_id",
    "occurred_at",
    "payload",
    "schema_version",
    "source",
    "stream",
    "tenant",
    "user",
];

/// What the text is for, and so what its values must not be able to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// Values stand as they are.
    Plain,
    /// Values are no markup.
    #[cfg(feature = "email")]
    Html,
    /// Values are no links, mentions or channels: Slack gives `&`, `<` and `>` a meaning.
    #[cfg(feature = "slack")]
    Slack,
}

/// A template whose syntax and names are right.
#[derive(Clone)]
pub(crate) struct Template {
    /// The option that holds it, for error texts.
    key: String,
    environment: Environment<'static>,
}

/// What a message has to say to templates.
pub(crate) struct Context(Value);

impl Template {
    /// Reads the template under `key`, if it is there.
    pub(crate) fn read(options: &mut Options, key: &str, form: Form) -> Option<Self> {
        let source: String = options.optional(key, "a template")?;
        Self::parse_option(options, &[key], source, form)
    }

    /// Parses what was found at `path`, and records what is wrong with it.
    pub(crate) fn parse_option(
        options: &mut Options,
        path: &[&str],
        source: String,
        form: Form,
    ) -> Option<Self> {
        let parsed = Self::parse(path.first().copied().unwrap_or_default(), source, form);
        parsed.map_err(|(problem, hint)| options.fault(path, problem, hint)).ok()
    }

    /// Parses a template.
    ///
    /// # Errors
    /// What is wrong with it, and what to do: its syntax, or a name, filter or test that no
    /// message can bring.
    pub(crate) fn parse(
        key: &str,
        source: String,
        form: Form,
    ) -> Result<Self, (String, Option<String>)> {
        let mut environment = Environment::new();
        match form {
            Form::Plain => environment.set_auto_escape_callback(|_| AutoEscape::None),
            #[cfg(feature = "email")]
            Form::Html => environment.set_auto_escape_callback(|_| AutoEscape::Html),
            #[cfg(feature = "slack")]
            Form::Slack => environment.set_formatter(for_slack),
        }
        // First as forgiving as can be, to find what is wrong whatever a message holds.
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment
            .add_template_owned(key.to_owned(), source)
            .map_err(|error| (format!("is no template: {}", describe(&error)), None))?;
        let template = Self { key: key.to_owned(), environment };
        template.check()?;
        let mut template = template;
        template.environment.set_undefined_behavior(UndefinedBehavior::Strict);
        Ok(template)
    }

    fn check(&self) -> Result<(), (String, Option<String>)> {
        let Ok(template) = self.environment.get_template(&self.key) else { return Ok(()) };
        let globals: Vec<String> =
            self.environment.globals().map(|(name, _)| name.to_owned()).collect();
        let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        unknown.retain(|name| !NAMES.contains(&name.as_str()) && !globals.contains(name));
        unknown.sort();
        if let Some(name) = unknown.first() {
            let hint = nearest(name, &NAMES).map_or_else(
                || format!("a template knows {}", NAMES.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            return Err((format!("names `{name}`, which is unknown"), Some(hint)));
        }
        // A filter or test is looked up when it is reached; most are in an empty message too.
        match template.render(Value::from_serialize(json!({}))) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction
                ) =>
            {
                Err((format!("is no template: {}", describe(&error)), None))
            }
            _ => Ok(()),
        }
    }

    /// The text for one message.
    ///
    /// # Errors
    /// The rejection to report: the message lacks something, or holds what the template cannot
    /// use.
    pub(crate) fn render(&self, context: &Context) -> Result<String, Outcome> {
        let rendered = self
            .environment
            .get_template(&self.key)
            .and_then(|template| template.render(&context.0));
        rendered.map_err(|error| {
            // The kind and the line: details could hold what the message holds.
            let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
            Outcome::reject(format!(
                "the template `{}` cannot be filled in{line} ({}): give the message what the \
                 template names, or let the template do without (`is defined`, `default`)",
                self.key,
                error.kind()
            ))
        })
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.key).finish()
    }
}

impl Context {
    /// All that is known about a message.
    ///
    /// # Errors
    /// The rejection to report when the row holds something that is no JSON.
    pub(crate) fn of(message: &Message, idempotency_key: &str) -> Result<Self, Outcome> {
        let parse = |text: &str| -> Result<serde_json::Value, Outcome> {
            serde_json::from_str(text).map_err(|_| wrapping::no_json())
        };
        let headers = message.headers.as_ref().map(|headers| parse(headers.as_str()));
        Ok(Self(Value::from_serialize(json!({
            "attempt": u64::from(message.attempts) + 1,
            "causation": message.causation_id,
            "correlation": message.correlation_id,
            "created_at": wrapping::time(message.created_at),
            "event_id": message.event_id,
            "event_type": message.event_type,
            "headers": headers.transpose()?.unwrap_or_else(|| json!({})),
            "idempotency_key": idempotency_key,
            "message_id": message.id,
            "occurred_at": message.occurred_at.map(wrapping::time),
            "payload": parse(message.payload.as_str())?,
            "schema_version": message.schema_version,
            "source": message.source,
            "stream": message.stream_id,
            "tenant": message.tenant_id,
            "user": message.user_id,
        }))))
    }
}

/// What is wrong with a template, in the template's own words.
fn describe(error: &minijinja::Error) -> String {
    let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
    match error.detail() {
        Some(detail) => format!("{}{line}: {detail}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}

#[cfg(feature = "slack")]
fn for_slack(
    out: &mut minijinja::Output<'_>,
    _: &minijinja::State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    let text = value.to_string();
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Ok(out.write_str(&escaped)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::message;

    fn fault(source: &str) -> String {
        let (problem, hint) = Template::parse("text", source.to_owned(), Form::Plain).unwrap_err();
        format!("{problem}; {}", hint.unwrap_or_default())
    }

    fn render(source: &str, form: Form) -> Result<String, Outcome> {
        let context = Context::of(&message("e-1"), "key").unwrap();
        Template::parse("text", source.to_owned(), form).unwrap().render(&context)
    }

    #[test]
    fn faults_that_no_message_can_mend_are_found_in_the_configuration() {
        assert!(fault("{{ payload.x").contains("syntax error"), "{}", fault("{{ payload.x"));
        assert!(fault("{{ paylod.x }}").contains("did you mean `payload`?"));
        assert!(fault("{{ order.id }}").contains("a template knows attempt, "));
        assert!(fault("{{ event_id|shout }}").contains("shout"));
        assert!(fault("{{ payload.a.b|shout }}").contains("shout"));
        assert!(fault("{{ shout() }}").contains("shout"));
    }

    #[test]
    fn a_template_sees_all_of_a_message() {
        for name in NAMES {
            assert!(render(&format!("{{{{ {name} }}}}"), Form::Plain).is_ok(), "{name}");
        }
        let text =
            "{{ event_type }} {{ payload.sum }} {{ tenant }} {{ headers.shop }} {{ attempt }}";
        assert_eq!(render(text, Form::Plain).unwrap(), "order.placed.v1 12.5 acme eu 5");
        let loops = "{% for n in range(2) %}{% set m = n + 1 %}{{ m }}{% endfor %}";
        assert_eq!(render(loops, Form::Plain).unwrap(), "12");
    }

    #[test]
    fn what_a_message_lacks_is_a_rejection_that_shows_none_of_it() {
        let Err(Outcome::Reject { error }) = render("\n{{ payload.name }}", Form::Plain) else {
            panic!()
        };
        assert!(error.contains("`text`") && error.contains("in line 2"), "{error}");
        assert!(error.contains("undefined value"), "{error}");
        assert_eq!(render("{{ payload.name|default('-') }}", Form::Plain).unwrap(), "-");
    }

    #[cfg(feature = "email")]
    #[test]
    fn values_are_no_markup_in_html() {
        let text = "<b>{{ '<i>' ~ event_id }}</b>";
        assert_eq!(render(text, Form::Html).unwrap(), "<b>&lt;i&gt;e-1</b>");
        assert_eq!(render(text, Form::Plain).unwrap(), "<b><i>e-1</b>");
    }

    #[cfg(feature = "slack")]
    #[test]
    fn values_mention_nobody_in_slack() {
        let text = "<!here> {{ '<!channel> & co' }}";
        assert_eq!(render(text, Form::Slack).unwrap(), "<!here> &lt;!channel&gt; &amp; co");
        assert!(render("{{ payload.name }}", Form::Slack).is_err());
    }
}
