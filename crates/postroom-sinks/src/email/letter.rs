//! The mail of one message.

use super::config::EmailConfig;
use crate::jinja::{Context, Template};
use crate::wrapping::is_ours;
use lettre::Address;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use postroom_core::{Message, Outcome};

/// The most recipients that servers must take in one go (RFC 5321).
const RECIPIENTS_MAX: usize = 100;

/// Headers that say how a mail is to be read, who sent it and where it goes. A stored one could
/// change that.
const FRAMING: [&str; 17] = [
    "authentication-results",
    "bcc",
    "cc",
    "date",
    "delivered-to",
    "from",
    "in-reply-to",
    "message-id",
    "mime-version",
    "received",
    "references",
    "reply-to",
    "return-path",
    "sender",
    "status",
    "subject",
    "to",
];
const FRAMING_PREFIXES: [&str; 5] = ["arc-", "content-", "dkim-", "list-", "resent-"];

/// A mail, ready to be sent.
pub(super) struct Letter {
    pub(super) recipients: Vec<Address>,
    pub(super) bytes: Vec<u8>,
}

impl Letter {
    /// Writes the mail.
    ///
    /// # Errors
    /// The rejection of a message that cannot be made into one.
    pub(super) fn compose(config: &EmailConfig, message: &Message) -> Result<Self, Outcome> {
        let wrapped = config.wrapping.wrap(message)?;
        wrapped.expect_one_line_each()?;
        let context = Context::of(message, &wrapped.idempotency_key)?;
        let recipients = recipients(&config.to, &context)?;
        let subject = one_line("subject", config.subject.render(&context)?)?;
        let id = message_id(&wrapped.once, config.from.email.domain());
        let mut builder = lettre::Message::builder()
            .message_id(Some(id))
            .from(config.from.clone())
            .subject(subject)
            .date_now();
        for recipient in &recipients {
            builder = builder.to(recipient.clone());
        }
        for (name, value) in wrapped.attributes {
            builder = builder.raw_header(header(name.into_owned(), value)?);
        }
        let render = |template: &Option<Template>| {
            template.as_ref().map(|template| template.render(&context)).transpose()
        };
        let built = match (render(&config.text)?, render(&config.html)?) {
            (Some(text), Some(html)) => {
                builder.multipart(MultiPart::alternative_plain_html(text, html))
            }
            (None, Some(html)) => builder.singlepart(SinglePart::html(html)),
            (text, None) => builder.singlepart(SinglePart::plain(text.unwrap_or_default())),
        };
        // What it says could hold an address.
        let built = built.map_err(|_| {
            Outcome::reject(
                "no mail can be made of this message: check the integration's templates and what \
                 the message gives them",
            )
        })?;
        let recipients = recipients.into_iter().map(|recipient| recipient.email).collect();
        Ok(Self { recipients, bytes: built.formatted() })
    }

    /// Whether the server must be able to handle addresses outside of ASCII.
    pub(super) fn is_international(&self, from: &Mailbox) -> bool {
        let mut addresses = self.recipients.iter().chain([&from.email]);
        !addresses.all(|address| address.user().is_ascii() && address.domain().is_ascii())
    }
}

/// One address of each template; what comes out empty is left out.
fn recipients(templates: &[Template], context: &Context) -> Result<Vec<Mailbox>, Outcome> {
    let mut recipients: Vec<Mailbox> = Vec::with_capacity(templates.len());
    for template in templates {
        let text = one_line("to", template.render(context)?)?;
        if text.is_empty() {
            continue;
        }
        let recipient: Mailbox = text.parse().map_err(|_| {
            Outcome::reject(
                "a recipient is no address of mail: correct what the message gives to `to`, one \
                 address for each template",
            )
        })?;
        if !recipients.iter().any(|other| other.email == recipient.email) {
            recipients.push(recipient);
        }
    }
    match recipients.len() {
        0 => Err(Outcome::reject(
            "the mail has no recipient: give the message what the integration's `to` names",
        )),
        1..=RECIPIENTS_MAX => Ok(recipients),
        _ => Err(Outcome::reject(format!(
            "the mail has more than {RECIPIENTS_MAX} recipients: send it to a list instead"
        ))),
    }
}

/// What stands in a header must not end its line: what follows could pass for another header.
fn one_line(key: &str, text: String) -> Result<String, Outcome> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err(Outcome::reject(format!(
            "`{key}` holds a line break or another control character: correct what the message \
             gives to the template"
        )));
    }
    Ok(text.to_owned())
}

fn header(name: String, value: String) -> Result<HeaderValue, Outcome> {
    let lower = name.to_ascii_lowercase();
    let frames = FRAMING.contains(&lower.as_str())
        || FRAMING_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    let refused = |problem: &str| {
        Outcome::reject(format!(
            "the header `{}` {problem}: correct the row's headers and set it back to PENDING",
            lower.escape_default()
        ))
    };
    if frames && !is_ours(&lower) {
        return Err(refused("would change how the mail is framed, and may not be set"));
    }
    let name = HeaderName::new_from_ascii(name)
        .map_err(|_| refused("has a name that a mail does not allow"))?;
    Ok(HeaderValue::new(name, value))
}

/// The same for every attempt at one message, and another for every other: a mailbox that drops
/// what it has seen before drops repetitions, and nothing else.
fn message_id(once: &str, domain: &str) -> String {
    let mut id = String::from("<");
    for byte in once.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/') {
            id.push(char::from(byte));
        } else {
            id.push_str(&format!("={byte:02X}"));
        }
    }
    id.push('@');
    id.push_str(if domain.is_ascii() { domain } else { "postroom.invalid" });
    id.push('>');
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_any_key_and_no_two_are_the_same() {
        assert_eq!(message_id("email:a/s-1/e-1", "x.example"), "<email=3Aa/s-1/e-1@x.example>");
        assert_eq!(message_id("a.b>\r\n", "s"), "<a=2Eb=3E=0D=0A@s>");
        assert_ne!(message_id("a=2E", "s"), message_id("a.", "s"));
    }

    #[test]
    fn fault_35_headers_that_frame_a_mail_may_not_be_stored() {
        for name in ["Bcc", "to", "Content-Type", "Resent-To", "DKIM-Signature", "a b", "é", ""] {
            assert!(header(name.to_owned(), "x".to_owned()).is_err(), "{name}");
        }
        assert!(header("x-shop".to_owned(), "Müller".to_owned()).is_ok());
        assert!(one_line("subject", "a\r\nBcc: x@y".to_owned()).is_err());
        assert!(one_line("subject", "a\0b".to_owned()).is_err());
        assert_eq!(one_line("subject", " a \n".to_owned()).unwrap(), "a");
    }
}
