//! The triggers that keep deliveries in step.

use super::error::number;
use super::session::Session;
use super::{MIGRATIONS, fetch};
use crate::migrations::{Planned, TRIGGERS, make_trigger};
use sqlx::Error;

/// There is no such trigger.
const NO_TRIGGER: u16 = 1360;
/// There is one, and whoever asks may not see it.
const NOT_SHOWN: u16 = 1227;

/// Those that are missing. Each is asked for by name: the information schema shows triggers only
/// to those who may make them, which a relay may not.
pub(super) async fn missing(connection: &mut Session) -> Result<Vec<&'static str>, Error> {
    let mut missing = Vec::new();
    for name in TRIGGERS {
        if find(connection, name).await? == Trigger::Missing {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// What a session finds where it asks for a trigger by its name.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Trigger {
    Shown,
    /// It is there, and whoever asks may not see it.
    Hidden,
    Missing,
}

/// Asks for a trigger by its name.
pub(super) async fn find(connection: &mut Session, name: &str) -> Result<Trigger, Error> {
    match fetch(connection, format!("SHOW CREATE TRIGGER {name}")).await {
        Ok(_) => Ok(Trigger::Shown),
        Err(error) => match number(&error) {
            Some(NO_TRIGGER) => Ok(Trigger::Missing),
            Some(NOT_SHOWN) => Ok(Trigger::Hidden),
            _ => Err(error),
        },
    }
}

/// Making one again, as the command-line client takes it.
pub(super) fn making(name: &str) -> Planned {
    let statement = make_trigger(MIGRATIONS, name, "$$");
    Planned {
        number: None,
        name: format!("the trigger {name}"),
        sql: format!("\nDELIMITER $$\n\n{statement}\n\nDELIMITER ;"),
    }
}
