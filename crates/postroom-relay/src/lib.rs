//! The relay: claims due messages, delivers them through lanes, records every outcome.
