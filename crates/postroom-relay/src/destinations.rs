//! What the relays of one process share: the destinations, whatever database a message comes from.

use crate::metrics::Families;
use crate::pauses::Pauses;
use crate::settings::Lane;
use crate::turns::{RescuedCalls, Turns};
use std::collections::HashMap;
use std::sync::Arc;

/// The destinations of a process: for each integration one sink, one concurrency, and one state of
/// pauses, for the relays of all databases together.
#[derive(Clone)]
pub struct Destinations {
    pub(crate) each: Vec<Destination>,
    /// Where all of them count.
    pub(crate) families: Arc<Families>,
}

/// One integration, and what is shared of it.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) lane: Lane,
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) turns: Turns,
}

impl Destinations {
    /// The destinations of these lanes. Of two for one integration the later counts.
    #[must_use]
    pub fn new(lanes: Vec<Lane>) -> Self {
        let rescued = RescuedCalls::default();
        let mut each: Vec<Destination> = Vec::with_capacity(lanes.len());
        let mut by_integration = HashMap::new();
        for lane in lanes {
            let integration = lane.integration.clone();
            let destination = Destination {
                pauses: Arc::new(Pauses::new(&integration)),
                turns: Turns::new(lane.concurrency, &rescued),
                lane,
            };
            match by_integration.get(&integration) {
                Some(index) => each[*index] = destination,
                None => {
                    by_integration.insert(integration, each.len());
                    each.push(destination);
                }
            }
        }
        Self { each, families: Arc::default() }
    }
}
