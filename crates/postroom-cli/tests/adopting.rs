//! Outboxes that were there before Postroom, as `examples/adopting/` shows them: the owner's table, the owner's
//! producer in another language, the owner's queries.

mod delivery;
mod scene;
mod timings;
