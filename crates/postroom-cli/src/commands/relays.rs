//! `postroom relays`: who delivers from this outbox.

use super::each::each_open;
use super::outbox;
use crate::args::Show;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align};
use chrono::{DateTime, Utc};
use postroom_core::RelayRow;
use serde_json::{Value, json};

/// The relays of one outbox, and the time there.
struct Found {
    relays: Vec<RelayRow>,
    now: DateTime<Utc>,
}

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    let found = each_open(&databases, async |store| {
        Ok(Found { relays: store.relays().await?, now: store.now().await? })
    })
    .await?;
    if args.json {
        let relays = found.each.iter().flat_map(|one| {
            let Found { relays, now } = &one.found;
            relays.iter().map(|relay| one.named(as_json(relay, *now)))
        });
        output::print_json(&relays.collect::<Vec<_>>())?;
        return found.end();
    }
    if found.each.iter().all(|one| one.found.relays.is_empty()) {
        if !found.each.is_empty() {
            output::print("no relay runs, and none has ended within a day\n")?;
        }
        return found.end();
    }
    let mut table = found
        .table()
        .text("NAME", 12)
        .id("ID")
        .column("STARTED", Align::Left)
        .column("HEARTBEAT", Align::Left)
        .column("VERSION", Align::Left)
        .column("LANES", Align::Right)
        .column("CLAIMS", Align::Right);
    for one in &found.each {
        for relay in &one.found.relays {
            table.row(one.row(vec![
                relay.name.clone(),
                relay.id.0.to_string(),
                output::time(relay.started_at),
                heartbeat(relay, one.found.now),
                relay.version.clone(),
                output::count(u64::from(relay.lanes)),
                output::count(relay.claims),
            ]));
        }
    }
    output::print_table(&table)?;
    found.end()
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
