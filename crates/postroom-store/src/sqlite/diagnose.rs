//! What is wrong with an outbox and does not mend itself.

use super::parcels::InFlight;
use super::reconcile::Unlike;
use super::upkeep::count;
use super::{SqliteStore, layout, migrate};
use crate::migrations::trigger_is_missing;
use postroom_core::{Finding, Reconciled};
use sqlx::Error;

const COUNTS: &str = concat!(
    include_str!("sql/diagnose_counts.sql"),
    include_str!("sql/in_neither.sql"),
    "    ),\n    (SELECT count(*)\n",
    include_str!("sql/reconcile_unlike.sql"),
    "    )"
);

pub(super) async fn diagnose(store: &SqliteStore) -> Result<Vec<Finding>, Error> {
    let counts = sqlx::query(COUNTS).fetch_one(&store.readers).await?;
    let mut findings = Finding::disagreements(&Reconciled {
        removed: count(&counts, 0)? + odd_parcels(store).await?,
        freed: count(&counts, 1)?,
        made: count(&counts, 2)?,
        followed: count(&counts, 3)?,
        ..Reconciled::default()
    });
    let mut session = store.readers.session().await?;
    match store.readers.lookup.layout() {
        Some(layout) => {
            let examined = layout::examine(session.connection(), layout).await;
            findings.extend(examined.map_err(|error| Error::Configuration(error.into()))?);
        }
        None => {
            let missing = migrate::missing_triggers(session.connection()).await?;
            findings.extend(missing.into_iter().map(trigger_is_missing));
        }
    }
    Ok(findings)
}

/// How many parcels nobody holds that do not say what an open message says.
async fn odd_parcels(store: &SqliteStore) -> Result<u64, Error> {
    let mut unlike = Unlike::from_the_beginning();
    let mut odd = 0;
    loop {
        let found = unlike.next(&store.readers).await?;
        if found.is_empty() {
            return Ok(odd);
        }
        let in_flight = InFlight::read(&mut store.readers.session().await?).await?;
        odd += found.iter().filter(|parcel| !in_flight.has(parcel)).count() as u64;
    }
}
