//! Where the ledger of a table stands that somebody else made.

/// The schema of the ledger of `table`, which is named as in a statement. It has letters, digits and underscores
/// only, so that it can stand in any statement.
#[must_use]
pub fn ledger_schema(table: &str) -> String {
    let plain = table.chars().filter(|c| *c != '"');
    let name: String = plain
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    let name = name.strip_prefix("public_").unwrap_or(&name);
    // PostgreSQL cuts names at 63 bytes.
    format!("postroom_{}", name.chars().take(48).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::ledger_schema;

    #[test]
    fn a_ledger_is_named_after_its_table() {
        assert_eq!(ledger_schema("outbox_events"), "postroom_outbox_events");
        assert_eq!(ledger_schema("public.outbox_events"), "postroom_outbox_events");
        assert_eq!(ledger_schema("billing.\"Events\""), "postroom_billing_events");
        assert_eq!(ledger_schema("x; DROP TABLE y"), "postroom_x__drop_table_y");
    }
}
