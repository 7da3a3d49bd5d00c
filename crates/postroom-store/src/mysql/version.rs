//! What a server of some version can do.

/// How rows that others hold are met.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Locking {
    /// They are passed over.
    SkipLocked,
    /// They are waited for, since the server cannot pass them over.
    Wait,
}

impl Locking {
    /// The end of a SELECT that locks what it reads.
    pub(super) fn clause(self) -> &'static str {
        match self {
            Self::SkipLocked => "FOR UPDATE SKIP LOCKED",
            Self::Wait => "FOR UPDATE",
        }
    }

    /// How many keys a SELECT that locks may name: a list may be read by going through the whole table, and
    /// who cannot pass over what others have locked there would wait for it.
    pub(super) fn keys(self) -> usize {
        match self {
            Self::SkipLocked => super::LIST,
            Self::Wait => 1,
        }
    }
}

/// A server that speaks MySQL's protocol and does not keep what MySQL promises.
#[derive(Debug, thiserror::Error)]
#[error(
    "this server is {name}, which accepts SKIP LOCKED and locks nothing, so that two relays would \
     deliver the same messages: use MariaDB or MySQL"
)]
pub(super) struct Unsupported {
    name: &'static str,
}

/// By what `SELECT VERSION()` answers, such as `10.11.6-MariaDB-log` or `8.0.36`.
///
/// # Errors
/// When it is a server that no outbox can be kept on: TiDB says it is MySQL 8.
pub(super) fn locking(version: &str) -> Result<Locking, Unsupported> {
    if version.to_ascii_lowercase().contains("tidb") {
        return Err(Unsupported { name: "TiDB" });
    }
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0_u32);
    let found = (next(), next(), next());
    let since = if version.contains("MariaDB") { (10, 6, 0) } else { (8, 0, 1) };
    Ok(if found >= since { Locking::SkipLocked } else { Locking::Wait })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_can_skip_locked_rows_are_known() {
        for version in ["10.11.6-MariaDB-log", "10.6.0-MariaDB", "11.4.2-MariaDB", "8.0.36", "9.1"]
        {
            assert_eq!(locking(version).unwrap(), Locking::SkipLocked, "{version}");
        }
        for version in ["10.5.23-MariaDB-1:10.5", "5.5.68-MariaDB", "5.7.44-log", "8.0.0-dmr", ""] {
            assert_eq!(locking(version).unwrap(), Locking::Wait, "{version}");
        }
    }

    #[test]
    fn tidb_is_refused_by_name_whatever_version_it_claims() {
        for version in ["8.0.11-TiDB-v7.5.1", "5.7.25-TiDB-v6.1.0", "8.0.11-tidb-serverless"] {
            let refused = locking(version).unwrap_err().to_string();
            assert!(refused.contains("TiDB"), "{refused}");
        }
    }
}
