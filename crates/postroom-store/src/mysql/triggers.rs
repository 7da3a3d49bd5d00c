//! The triggers that keep deliveries in step.

use super::error::number;
use super::{MIGRATIONS, fetch};
use crate::migrations::{Planned, TRIGGERS, make_trigger};
use sqlx::{Error, MySqlConnection};

/// There is no such trigger.
const NO_TRIGGER: u16 = 1360;
/// There is one, and whoever asks may not see it.
const NOT_SHOWN: u16 = 1227;

/// Those that are missing. Each is asked for by name: the information schema shows triggers only
/// to those who may make them, which a relay may not.
pub(super) async fn missing(connection: &mut MySqlConnection) -> Result<Vec<&'static str>, Error> {
    let mut missing = Vec::new();
    for name in TRIGGERS {
        if let Err(error) = fetch(connection, format!("SHOW CREATE TRIGGER {name}")).await {
            match number(&error) {
                Some(NO_TRIGGER) => missing.push(name),
                Some(NOT_SHOWN) => {}
                _ => return Err(error),
            }
        }
    }
    Ok(missing)
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
