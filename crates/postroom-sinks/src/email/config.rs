//! What an integration says about its mails.

use super::sink::EmailSink;
use crate::jinja::{Form, Template};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination};
use crate::wrapping::Wrapping;
use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use postroom_core::Sink;
use serde_json::Value;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whose server, from whom, to whom, and what.
#[derive(Clone)]
pub struct EmailConfig {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) login: Option<Credentials>,
    pub(super) from: Mailbox,
    /// One address each.
    pub(super) to: Vec<Template>,
    pub(super) subject: Template,
    pub(super) text: Option<Template>,
    pub(super) html: Option<Template>,
    pub(super) wrapping: Wrapping,
    /// How long one mail may take.
    pub(super) timeout: Duration,
}

/// How the connection is protected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Security {
    /// Not at all.
    None,
    /// By TLS once the server has been asked for it; never without.
    StartTls,
    /// By TLS from the first byte.
    Tls,
}

const SECURITIES: [(&str, Security); 3] =
    [("none", Security::None), ("starttls", Security::StartTls), ("tls", Security::Tls)];

impl EmailConfig {
    pub(super) fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let host: Option<String> = options.required("host", "the name of an SMTP server");
        let host = host.filter(|host| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            let is_name = !host.is_empty() && host.bytes().all(is_plain);
            let is_host = is_name || host.parse::<IpAddr>().is_ok();
            if !is_host {
                let hint = "the port has a key of its own: `port`";
                options.fault(&["host"], "must be a name or an address", Some(hint.to_owned()));
            }
            is_host
        });
        let security = options.choice("tls", &SECURITIES).unwrap_or(Security::StartTls);
        let port = options.optional("port", "a port").unwrap_or(match security {
            Security::None => 25,
            Security::StartTls => 587,
            Security::Tls => 465,
        });
        let ca_file: Option<PathBuf> = options.optional("ca_file", "the path of a PEM file");
        if ca_file.is_some() && security == Security::None {
            options.fault(&["ca_file"], "has no meaning with `tls = \"none\"`", None);
        }
        let login = read_login(options);
        if login.is_some() && security == Security::None && !host.as_deref().is_some_and(is_local) {
            let hint = "use `tls = \"starttls\"` or `tls = \"tls\"`";
            let problem = "would travel in the clear";
            options.fault(&["password"], problem, Some(hint.to_owned()));
        }
        let from: Option<String> = options.required("from", "an address");
        let from = from.and_then(|from| {
            let parsed = from.parse::<Mailbox>();
            parsed.map_err(|_| options.fault(&["from"], "is no address of mail", None)).ok()
        });
        let recipients = read_recipients(options);
        let subject = if options.has("subject") {
            Template::read(options, "subject", Form::Plain)
        } else {
            Template::parse("subject", "{{ event_type }}".to_owned(), Form::Plain).ok()
        };
        if !options.has("text") && !options.has("html") {
            let problem = "is missing: a mail needs `text`, `html` or both";
            options.fault(&["text"], problem, None);
        }
        let text = Template::read(options, "text", Form::Plain);
        let html = Template::read(options, "html", Form::Html);
        let wrapping = Wrapping::read_key(options);
        Some(Self {
            host: host?,
            port,
            security,
            ca_file,
            login,
            from: from?,
            to: recipients?,
            subject: subject?,
            text,
            html,
            wrapping,
            timeout: to.own_timeout(),
        })
    }

    /// `host:port`.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

fn read_login(options: &mut Options) -> Option<Credentials> {
    let both = (options.has("user"), options.has("password"));
    let user: Option<String> = options.optional("user", "a string");
    let password: Option<String> = options.optional("password", "a string");
    match both {
        (true, false) => options.fault(&["password"], "is missing: `user` needs it", None),
        (false, true) => options.fault(&["user"], "is missing: `password` needs it", None),
        _ => {}
    }
    Some(Credentials::new(user?, password?))
}

fn read_recipients(options: &mut Options) -> Option<Vec<Template>> {
    let to: Value = options.required("to", "a template of an address, or a list of them")?;
    let sources: Option<Vec<String>> = match to {
        Value::String(one) => Some(vec![one]),
        Value::Array(list) => serde_json::from_value(Value::Array(list)).ok(),
        _ => None,
    };
    let Some(sources) = sources.filter(|sources| !sources.is_empty()) else {
        options.fault(&["to"], "must be a template of an address, or a list of them", None);
        return None;
    };
    let mut templates = Vec::with_capacity(sources.len());
    for source in sources {
        let is_fixed = !source.contains("{{") && !source.contains("{%");
        if is_fixed && source.parse::<Mailbox>().is_err() {
            options.fault(&["to"], "holds what is no address of mail", None);
        }
        templates.extend(Template::parse_option(options, &["to"], source, Form::Plain));
    }
    Some(templates)
}

/// Whether what is sent there stays on this machine.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Debug for EmailConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmailConfig")
            .field("server", &self.place())
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl Build for EmailConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(EmailSink::new(self.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{Destination, SinkConfig, SinkKind};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn read(options: Value) -> Result<SinkConfig, Vec<String>> {
        let Value::Object(options) = options else { panic!("a table") };
        let to = Destination { integration: "email:x", timeout: Duration::from_secs(1) };
        SinkKind::of("email:x").unwrap().validate(options, &to).map_err(|faults| {
            faults
                .into_iter()
                .map(|fault| format!("{} {}", fault.path.join("."), fault.problem))
                .collect()
        })
    }

    fn with(options: Value) -> Value {
        let mut all = json!({
            "host": "mail.example", "from": "Shop <shop@example.org>",
            "to": "{{ payload.email }}", "text": "{{ payload.text }}",
        });
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    }

    #[test]
    fn every_fault_is_found_and_none_shows_a_value() {
        let faults = read(json!({
            "host": "mail.example:25", "from": "hunter2", "to": [], "tls": "ssl",
            "user": "ann", "subject": "{{", "html": "{{ hunter3 }}", "format": "payload",
        }))
        .unwrap_err();
        for (key, fault) in ["host", "tls", "password", "from", "to", "subject", "html", "format"]
            .iter()
            .zip(&faults)
        {
            assert!(fault.starts_with(&format!("{key} ")), "{key}: {faults:?}");
        }
        assert_eq!(faults.len(), 8, "{faults:?}");
        assert!(!format!("{faults:?}").contains("hunter2"));
        let faults = read(json!({})).unwrap_err();
        assert_eq!(faults.len(), 4, "host, from, to, text: {faults:?}");
        assert_eq!(
            read(with(json!({"to": ["a@b.example", "nobody"]}))).unwrap_err(),
            ["to holds what is no address of mail"]
        );
    }

    #[test]
    fn a_password_never_travels_in_the_clear_and_is_never_shown() {
        let login = json!({"tls": "none", "user": "ann", "password": "hunter2"});
        assert_eq!(read(with(login.clone())).unwrap_err(), ["password would travel in the clear"]);
        let mut local = with(login);
        local["host"] = json!("127.0.0.1");
        let config = read(local).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    }
}
