//! Who may use the server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::HashMap;
use std::fmt;
use tonic::codegen::http::HeaderValue;

/// The most users of a server.
const USERS_MAX: usize = 10_000;
/// The longest header that is looked at.
const HEADER_MAX: usize = 4_096;

/// The users of a server and their passwords, of which only keyed hashes are kept.
#[derive(Clone)]
pub struct Users {
    key: hmac::Key,
    tags: HashMap<String, hmac::Tag>,
    /// What the password of a name that nobody has is compared with, so that it takes as long.
    nobody: hmac::Tag,
}

/// Why a text is no list of users. It never has a password in it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UsersError {
    /// A line without a name, a colon and a password.
    #[error("line {line}: expected `name:password`")]
    Malformed {
        /// Its number, from 1.
        line: usize,
    },
    /// A name that was there before.
    #[error("line {line}: this name is already on a line above")]
    Repeated {
        /// Its number, from 1.
        line: usize,
    },
    /// No user at all: nobody could use the server.
    #[error("there is no user: add a line `name:password`")]
    Empty,
    /// More users than a server keeps.
    #[error("more than {USERS_MAX} users")]
    TooMany,
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    NoRandomness,
}

impl Users {
    /// Reads lines of `name:password`. Empty lines, and those that begin with `#`, are passed over.
    /// A password may have colons, and spaces at its ends.
    ///
    /// # Errors
    /// When a line is something else, or names a user again.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| UsersError::NoRandomness)?;
        let mut tags = HashMap::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, password) = match text.split_once(':') {
                Some((name, password)) if !name.trim().is_empty() && !password.is_empty() => {
                    (name.trim(), password)
                }
                Some(_) | None => return Err(UsersError::Malformed { line }),
            };
            let tag = hmac::sign(&key, password.as_bytes());
            if tags.insert(name.to_owned(), tag).is_some() {
                return Err(UsersError::Repeated { line });
            }
            if tags.len() > USERS_MAX {
                return Err(UsersError::TooMany);
            }
        }
        if tags.is_empty() {
            return Err(UsersError::Empty);
        }
        // Of an empty password, which no user can have.
        let nobody = hmac::sign(&key, b"");
        Ok(Self { key, tags, nobody })
    }

    /// Whether the header `authorization` names a user and their password. The comparison takes the
    /// same time whatever the password is.
    pub(crate) fn admit(&self, header: Option<&HeaderValue>) -> bool {
        let Some((name, password)) = header.and_then(credentials) else { return false };
        let (tag, is_known) = match self.tags.get(&name) {
            Some(tag) => (tag, true),
            None => (&self.nobody, false),
        };
        let is_equal = hmac::verify(&self.key, password.as_bytes(), tag.as_ref()).is_ok();
        is_known && is_equal
    }
}

/// The name and password of a header for basic authentication.
fn credentials(header: &HeaderValue) -> Option<(String, String)> {
    let header = header.to_str().ok().filter(|header| header.len() <= HEADER_MAX)?;
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("count", &self.tags.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text))).unwrap()
    }

    #[test]
    fn users_are_admitted_with_their_password_alone() {
        let users = Users::parse("# staff\n\nadmin:change:it\nreader: spaced \r\n").unwrap();
        assert!(users.admit(Some(&header("admin:change:it"))));
        assert!(users.admit(Some(&header("reader: spaced "))));
        for wrong in ["admin:changeit", "admin:", "admin", "reader:spaced", "nobody:", ":", ""] {
            assert!(!users.admit(Some(&header(wrong))), "{wrong}");
        }
        assert!(!users.admit(None));
        for garbage in ["Basic", "Basic !!!", "Bearer abc", "", "basic \u{7f}"] {
            if let Ok(value) = HeaderValue::from_str(garbage) {
                assert!(!users.admit(Some(&value)), "{garbage}");
            }
        }
    }

    #[test]
    fn an_error_names_the_line_and_never_the_password() {
        let error = Users::parse("admin:secret\nsecret2\n").unwrap_err();
        assert_eq!(error, UsersError::Malformed { line: 2 });
        assert!(!error.to_string().contains("secret"));
        assert_eq!(Users::parse(":secret").unwrap_err(), UsersError::Malformed { line: 1 });
        assert_eq!(Users::parse("a:").unwrap_err(), UsersError::Malformed { line: 1 });
        assert_eq!(Users::parse("a:b\na:c").unwrap_err(), UsersError::Repeated { line: 2 });
        assert_eq!(Users::parse("# none").unwrap_err(), UsersError::Empty);
        let users = Users::parse("admin:secret").unwrap();
        assert!(!format!("{users:?}").contains("secret"));
    }
}
