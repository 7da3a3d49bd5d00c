//! `postroom relays`: who delivers from this outbox.

use super::outbox;
use crate::args::Show;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use chrono::{DateTime, Utc};
use postroom_core::RelayRow;
use serde_json::{Value, json};

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let relays = store.relays().await?;
    let now = store.now().await?;
    if args.json {
        let relays: Vec<Value> = relays.iter().map(|relay| as_json(relay, now)).collect();
        return Ok(output::print_json(&relays)?);
    }
    if relays.is_empty() {
        return Ok(output::print("no relay runs, and none has ended within a day\n")?);
    }
    let mut table = Table::new()
        .text("NAME", 12)
        .id("ID")
        .column("STARTED", Align::Left)
        .column("HEARTBEAT", Align::Left)
        .column("VERSION", Align::Left)
        .column("LANES", Align::Right)
        .column("CLAIMS", Align::Right);
    for relay in &relays {
        table.row(vec![
            relay.name.clone(),
            relay.id.0.to_string(),
            output::time(relay.started_at),
            heartbeat(relay, now),
            relay.version.clone(),
            output::count(u64::from(relay.lanes)),
            output::count(relay.claims),
        ]);
    }
    Ok(output::print_table(&table)?)
}

fn is_alive(relay: &RelayRow, now: DateTime<Utc>) -> bool {
    relay.until >= now
}

/// How long the claims of a relay last without another heartbeat, or since when they have expired.
fn heartbeat(relay: &RelayRow, now: DateTime<Utc>) -> String {
    if is_alive(relay, now) {
        format!("expires in {}", output::age(now, relay.until))
    } else {
        format!("EXPIRED {} ago", output::age(relay.until, now))
    }
}

fn as_json(relay: &RelayRow, now: DateTime<Utc>) -> Value {
    json!({
        "id": relay.id.0,
        "name": relay.name,
        "alive": is_alive(relay, now),
        "started_at": output::time(relay.started_at),
        "until": output::time(relay.until),
        "version": relay.version,
        "lanes": relay.lanes,
        "claims": relay.claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;
    use postroom_core::RelayId;

    #[test]
    fn a_relay_is_alive_until_its_time_is_over() {
        let now = Utc::now();
        let relay = |seconds| RelayRow {
            id: RelayId::random(),
            name: "relay".to_owned(),
            version: "1.0.0".to_owned(),
            lanes: 2,
            started_at: now - TimeDelta::hours(1),
            until: now + TimeDelta::seconds(seconds),
            claims: 3,
        };
        assert_eq!(heartbeat(&relay(20), now), "expires in 20.0 s");
        assert_eq!(heartbeat(&relay(-300), now), "EXPIRED 5 min ago");
        assert_eq!(as_json(&relay(20), now)["alive"], true);
        assert_eq!(as_json(&relay(-300), now)["alive"], false);
    }
}
