//! What a server's replies mean.

use crate::tls;
use postroom_core::Outcome;
use std::error::Error as _;
use std::fmt;

/// Where in the conversation a reply came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Connect,
    StartTls,
    Login,
    Sender,
    Recipient,
    Content,
}

/// What the server said, or that it said nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Reply {
    /// A code such as 550, with the finer one such as 5.1.1 where there is one. The words beside
    /// them often repeat an address, and are left out.
    Code(u16, Option<String>),
    /// It does not offer what is needed.
    Unsupported,
    /// Its certificate cannot be trusted, or TLS failed otherwise.
    Tls(String),
    /// No word, and the connection is gone.
    Lost(String),
}

impl Reply {
    /// Whether nothing more can be said over this connection.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Code(421, _) | Self::Tls(_) | Self::Lost(_) => true,
            Self::Code(..) | Self::Unsupported => false,
        }
    }

    /// Whether it concerns what we may do (5.7.x), such as relaying, rather than an address.
    fn concerns_policy(&self) -> bool {
        matches!(self, Self::Code(_, Some(finer)) if finer.starts_with("5.7."))
    }

    /// Whether it concerns who we are, and so every mail.
    pub(super) fn wants_login(&self) -> bool {
        matches!(self, Self::Code(530 | 534 | 535 | 538, _))
    }
}

impl From<lettre::transport::smtp::Error> for Reply {
    fn from(error: lettre::transport::smtp::Error) -> Self {
        if let Some(code) = error.status() {
            let words = error.source().map(ToString::to_string).unwrap_or_default();
            return Self::Code(u16::from(code), enhanced(&words));
        }
        if let Some(fault) = tls::fault_behind(&error) {
            return Self::Tls(fault.to_string());
        }
        let mut root: &dyn std::error::Error = &error;
        while let Some(source) = root.source() {
            root = source;
        }
        Self::Lost(root.to_string())
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code, Some(finer)) => write!(f, "{code} {finer}"),
            Self::Code(code, None) => write!(f, "{code}"),
            Self::Unsupported => f.write_str("nothing of the kind"),
            Self::Tls(problem) | Self::Lost(problem) => f.write_str(problem),
        }
    }
}

/// The code of RFC 3463 at the beginning of a reply's words.
fn enhanced(words: &str) -> Option<String> {
    let code = words.split_whitespace().next()?;
    let mut parts = code.split('.');
    let is_code = code.len() <= 11
        && parts.clone().count() == 3
        && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_code.then(|| code.to_owned())
}

/// Decides by the step and the code. What comes before a recipient concerns every mail, and what
/// comes after concerns this one.
pub(super) fn classify(place: &str, step: Step, reply: &Reply) -> Outcome {
    let code = match reply {
        Reply::Code(code, _) => *code,
        Reply::Lost(problem) => {
            let what = if step == Step::Connect { "cannot connect to" } else { "no answer from" };
            return Outcome::retry(format!("{what} {place}: {problem}"));
        }
        Reply::Tls(problem) => {
            return Outcome::refuse(format!(
                "TLS with {place} failed ({problem}): connect by the name that its certificate is \
                 made out to, name its authority in `ca_file`, and check `tls` and `port`"
            ));
        }
        Reply::Unsupported => {
            return match step {
                Step::Login => Outcome::refuse(format!(
                    "{place} offers no login by PLAIN or LOGIN: check `tls` and `port`, or leave \
                     out `user` and `password`"
                )),
                Step::Recipient | Step::Content | Step::Sender => Outcome::reject(format!(
                    "{place} takes no addresses outside of ASCII: use an address in ASCII"
                )),
                Step::Connect | Step::StartTls => Outcome::refuse(format!(
                    "{place} offers no STARTTLS: use `tls = \"tls\"` if its port expects TLS from \
                     the first byte, or `tls = \"none\"` to do without"
                )),
            };
        }
    };
    let text = format!("{place} answered {reply}");
    match (step, code) {
        (_, 530 | 534 | 535 | 538) => {
            Outcome::refuse(format!("{text}: check `user` and `password`, and `tls`"))
        }
        (Step::Recipient, 0..=499) => Outcome::retry(format!("{text} to a recipient")),
        (_, 0..=499) => Outcome::retry(text),
        (Step::Connect, _) => {
            Outcome::refuse(format!("{text} to the connection: check `host` and `port`"))
        }
        (Step::StartTls, _) => Outcome::refuse(format!("{text} to STARTTLS: check `tls`")),
        (Step::Login, _) => Outcome::refuse(format!("{text}: check `user` and `password`")),
        (Step::Sender, 552) | (Step::Content, 523 | 552) => Outcome::reject(format!(
            "{text}: the mail is too large; send a link instead of the content"
        )),
        (Step::Sender, _) => Outcome::refuse(format!(
            "{text} to the sender: check `from`, and that this server may send for it"
        )),
        // A server that does not relay says so for every recipient: no mail is to be lost for it.
        (Step::Recipient, _) if reply.concerns_policy() => Outcome::retry(format!(
            "{text} to a recipient: where it does not relay, check `host` and the login"
        )),
        (Step::Recipient, _) => Outcome::reject(format!(
            "{text} to a recipient: correct the address; where it says relaying, check `host` and \
             the login"
        )),
        (Step::Content, _) => Outcome::reject(format!(
            "{text} to the content: look at what the templates make of this message"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_has_its_class_and_what_is_final_a_remedy() {
        use Step::{Connect, Content, Login, Recipient, Sender, StartTls};
        let code = |code: u16| Reply::Code(code, None);
        let finer = |code: u16, finer: &str| Reply::Code(code, Some(finer.to_owned()));
        let lost = Reply::Lost("connection reset".to_owned());
        let tls = Reply::Tls("UnknownIssuer".to_owned());
        let no = Reply::Unsupported;
        let table: &[(Step, Reply, &str)] = &[
            (Connect, lost.clone(), "retry"),
            (Connect, tls.clone(), "refuse"),
            (Connect, code(421), "retry"),
            (Connect, code(554), "refuse"),
            (Connect, code(521), "refuse"),
            (Connect, code(550), "refuse"),
            (StartTls, no.clone(), "refuse"),
            (StartTls, code(454), "retry"),
            (StartTls, code(501), "refuse"),
            (StartTls, tls, "refuse"),
            (StartTls, lost.clone(), "retry"),
            (Login, no.clone(), "refuse"),
            (Login, code(421), "retry"),
            (Login, code(432), "retry"),
            (Login, code(454), "retry"),
            (Login, code(500), "refuse"),
            (Login, code(504), "refuse"),
            (Login, code(530), "refuse"),
            (Login, code(534), "refuse"),
            (Login, code(535), "refuse"),
            (Login, code(538), "refuse"),
            (Login, lost.clone(), "retry"),
            (Sender, code(421), "retry"),
            (Sender, code(451), "retry"),
            (Sender, code(452), "retry"),
            (Sender, code(455), "retry"),
            (Sender, code(501), "refuse"),
            (Sender, code(503), "refuse"),
            (Sender, code(530), "refuse"),
            (Sender, code(550), "refuse"),
            (Sender, code(552), "reject"),
            (Sender, code(553), "refuse"),
            (Sender, code(555), "refuse"),
            (Recipient, code(421), "retry"),
            (Recipient, code(450), "retry"),
            (Recipient, code(451), "retry"),
            (Recipient, code(452), "retry"),
            (Recipient, code(501), "reject"),
            (Recipient, code(530), "refuse"),
            (Recipient, code(550), "reject"),
            (Recipient, code(551), "reject"),
            (Recipient, code(552), "reject"),
            (Recipient, code(553), "reject"),
            (Recipient, code(554), "reject"),
            (Recipient, code(556), "reject"),
            (Recipient, finer(550, "5.1.1"), "reject"), // no such mailbox
            (Recipient, finer(550, "5.1.10"), "reject"), // the domain takes no mail
            (Recipient, finer(552, "5.2.2"), "reject"), // mailbox full
            (Recipient, finer(550, "5.7.1"), "retry"),  // not authorized, blocked
            (Recipient, finer(554, "5.7.1"), "retry"),  // relay access denied
            (Recipient, finer(550, "5.7.25"), "retry"), // no reverse DNS
            (Recipient, finer(530, "5.7.0"), "refuse"), // login required
            (Content, code(421), "retry"),
            (Content, code(450), "retry"),
            (Content, code(451), "retry"),
            (Content, code(452), "retry"),
            (Content, code(503), "reject"),
            (Content, code(523), "reject"),
            (Content, code(550), "reject"),
            (Content, code(552), "reject"),
            (Content, code(554), "reject"),
            (Content, finer(554, "5.7.1"), "reject"), // taken for spam
            (Content, no, "reject"),
            (Content, lost, "retry"),
        ];
        for (step, reply, expected) in table {
            let outcome = classify("mail.example:587", *step, reply);
            let found = match &outcome {
                Outcome::Retry { .. } => "retry",
                Outcome::Reject { .. } => "reject",
                Outcome::Refuse { .. } => "refuse",
                Outcome::Delivered | Outcome::Gone { .. } => "other",
            };
            assert_eq!(found, *expected, "{step:?} {reply:?}");
            if let Outcome::Reject { error } | Outcome::Refuse { error } = &outcome {
                assert!(error.starts_with("mail.example:587") || error.starts_with("TLS with"));
                let (_, remedy) = error.split_once(": ").unwrap();
                assert!(remedy.len() > 10, "{error}");
            }
        }
    }

    #[test]
    fn of_a_replys_words_only_the_finer_code_is_kept() {
        assert_eq!(enhanced("5.1.1 <ann@example.org> unknown").as_deref(), Some("5.1.1"));
        for words in ["", "no such user ann@example.org", "5.1", "1.2.3.4", "5..1", "a.b.c"] {
            assert_eq!(enhanced(words), None, "{words}");
        }
        assert_eq!(Reply::Code(550, enhanced("5.1.1 x")).to_string(), "550 5.1.1");
    }
}
