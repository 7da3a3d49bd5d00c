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
        if !is_there(connection, name).await? {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// Whether there is a trigger of this name.
pub(super) async fn is_there(connection: &mut Session, name: &str) -> Result<bool, Error> {
    match fetch(connection, format!("SHOW CREATE TRIGGER {name}")).await {
        Ok(_) => Ok(true),
        Err(error) => match number(&error) {
            Some(NO_TRIGGER) => Ok(false),
            Some(NOT_SHOWN) => Ok(true),
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
