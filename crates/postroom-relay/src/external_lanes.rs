//! Lanes that run beside the relay's own pipeline, through another transport.

use crate::health::LaneHealth;

/// Other lanes on the same store. The relay does not take their messages; it rescues and prunes
/// for them, and shows them with its own.
pub trait ExternalLanes: Send + Sync {
    /// Whether one of these lanes serves this integration.
    fn serves(&self, integration: &str) -> bool;

    /// How they are.
    fn health(&self) -> Vec<LaneHealth>;
}
