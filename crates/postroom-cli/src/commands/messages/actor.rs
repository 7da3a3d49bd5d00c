//! Who operates, for the record.

use crate::args::Actor;
use crate::failure::Failure;
use nix::unistd::{Uid, User, gethostname};

/// The longest name that is taken.
const ACTOR_CHARS: usize = 200;

impl Actor {
    /// The name that was given, or who runs this process and where.
    pub(super) fn name(&self) -> Result<String, Failure> {
        match &self.actor {
            Some(name) if name.trim().is_empty() => {
                Err(Failure::Usage("--actor is empty: the record needs a name".to_owned()))
            }
            Some(name) if name.chars().count() > ACTOR_CHARS || name.contains('\0') => {
                Err(Failure::Usage(format!(
                    "--actor is no name: it must be at most {ACTOR_CHARS} characters, without NUL"
                )))
            }
            Some(name) => Ok(name.clone()),
            None => Ok(format!("{}@{}", user(), host())),
        }
    }
}

fn user() -> String {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let uid = Uid::current();
        User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
    })
}

fn host() -> String {
    let name = gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "unknown host".to_owned())
}
