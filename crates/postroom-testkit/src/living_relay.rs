//! A relay for tests that take by themselves.

use postroom_core::{Heartbeat, RelayId, Store};
use std::time::Duration;

/// A relay that sends one heartbeat and no more: what is taken under it is held for `claim_time`.
///
/// # Panics
/// When the store fails.
pub async fn living_relay(store: &dyn Store, claim_time: Duration) -> RelayId {
    let relay = RelayId::random();
    let beat = Heartbeat { relay, name: "test", lanes: 1, held: &[], claim_time };
    store.beat(&beat).await.expect("a heartbeat");
    relay
}
