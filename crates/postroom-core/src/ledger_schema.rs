//! Where the ledger of a table stands that was there before.

/// The schema of a table's ledger, by the name of the table as a configuration has it. A name that
/// holds a schema gives another one than a name without.
#[must_use]
pub fn ledger_schema(table: &str) -> String {
    let name = plain(table);
    let name = name.strip_prefix("public_").unwrap_or(&name);
    // PostgreSQL cuts names at 63 bytes.
    format!("postroom_{}", name.chars().take(48).collect::<String>())
}

/// The database of a table's ledger on MariaDB and MySQL, where a schema is a database. The table
/// is in `database`, unless its name says otherwise.
#[must_use]
pub fn ledger_database(table: &str, database: &str) -> String {
    // They refuse names of more than 64 characters.
    const LONGEST: usize = 64;
    let whole = match table.contains('.') {
        true => table.to_owned(),
        false => format!("{database}.{table}"),
    };
    let name = format!("postroom_{}", plain(&whole));
    if name.len() <= LONGEST {
        return name;
    }
    // Tables whose names begin alike keep ledgers apart.
    let hash = whole
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}_{hash:08x}", &name[..LONGEST - 9])
}

/// A name in letters that need no quotation marks.
fn plain(name: &str) -> String {
    let unquoted = name.chars().filter(|c| *c != '"' && *c != '`');
    unquoted.map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::{ledger_database, ledger_schema};

    #[test]
    fn a_ledger_is_named_after_its_table() {
        assert_eq!(ledger_schema("outbox_events"), "postroom_outbox_events");
        assert_eq!(ledger_schema("public.outbox_events"), "postroom_outbox_events");
        assert_eq!(ledger_schema("billing.\"Events\""), "postroom_billing_events");
        assert_eq!(ledger_schema("x; DROP TABLE y"), "postroom_x__drop_table_y");
    }

    #[test]
    fn a_database_of_its_own_is_named_after_both() {
        assert_eq!(ledger_database("outbox_events", "shop"), "postroom_shop_outbox_events");
        assert_eq!(ledger_database("`billing`.events", "shop"), "postroom_billing_events");
        let (one, other) = ("e".repeat(64), format!("{}f", "e".repeat(63)));
        let (one, other) = (ledger_database(&one, "shop"), ledger_database(&other, "shop"));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }
}
