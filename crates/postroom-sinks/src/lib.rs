//! Where Postroom delivers: one file per sink, one registry.
