//! What PostgreSQL's errors mean.

use crate::tls;
use postroom_core::Outcome;

/// What went wrong. The server's words beside a code can repeat values, and are left out; the
/// names of a constraint and a column cannot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// A code such as 23514, and what it is about.
    Code(String, Option<String>),
    /// A code that usually concerns the table, such as 42501, and here one row of it.
    Row(String, &'static str),
    /// TLS: a certificate that cannot be trusted, or none at all.
    Tls(String),
    /// No word, and the connection is gone.
    Lost(String),
}

impl Fault {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        if let Some(answer) = error.as_db_error() {
            let about = answer.constraint().map(|name| format!("the constraint {name}"));
            let about = about.or_else(|| answer.column().map(|name| format!("the column {name}")));
            let code = answer.code().code().to_owned();
            return match answer.routine().and_then(|routine| guard(routine, &code)) {
                Some(guard) => Self::Row(code, guard),
                None => Self::Code(code, about),
            };
        }
        if let Some(fault) = tls::fault_behind(error) {
            return Self::Tls(fault.to_string());
        }
        let mut root: &(dyn std::error::Error + 'static) = error;
        while let Some(source) = root.source() {
            root = source;
        }
        let words = root.to_string();
        // The driver's own words for a server without TLS.
        if words.contains("does not support TLS") { Self::Tls(words) } else { Self::Lost(words) }
    }

    /// Whether it may be the fault of one row among others.
    pub(super) fn concerns_a_row(&self) -> bool {
        let code = match self {
            Self::Code(code, _) => code,
            Self::Row(..) => return true,
            Self::Tls(_) | Self::Lost(_) => return false,
        };
        // Data, constraints, limits, exceptions of triggers.
        ["22", "23", "54", "P0"].iter().any(|class| code.starts_with(class))
            || ["44000", "09000", "27000"].contains(&code.as_str())
    }

    /// Whether another connection may do better: this one is gone, or leads to a server that has
    /// become read-only while another took its place.
    pub(super) fn concerns_the_connection(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Code(code, _) => code == "25006",
            Self::Row(..) | Self::Tls(_) => false,
        }
    }
}

/// What judges single rows with codes that otherwise concern the table. The server names the
/// routine of its own that has raised an error: that of a missing right is another.
fn guard(routine: &str, code: &str) -> Option<&'static str> {
    match routine {
        "ExecWithCheckOptions" if code == "42501" => Some("row-level security"),
        // What a trigger raises with other codes is told by these.
        "exec_stmt_raise" if ["0A", "28", "3D", "3F", "42"].contains(&code.get(..2)?) => {
            Some("a trigger")
        }
        _ => None,
    }
}

/// Decides by the code.
pub(super) fn classify(place: &str, fault: &Fault) -> Outcome {
    let (code, about) = match fault {
        Fault::Code(code, about) => (code.as_str(), about),
        Fault::Row(code, guard) => {
            return Outcome::reject(format!(
                "PostgreSQL at {place} answered {code}: {guard} of the table refuses this row; \
                 correct the row, or ask the table's owner"
            ));
        }
        Fault::Lost(problem) => {
            return Outcome::retry(format!("cannot reach PostgreSQL at {place}: {problem}"));
        }
        Fault::Tls(problem) => {
            return Outcome::refuse(format!(
                "TLS with {place} failed ({problem}): connect by the name that its certificate is \
                 made out to, name its authority in `ca_file`, or say sslmode=disable in `url`"
            ));
        }
    };
    let about = about.as_ref().map_or_else(String::new, |about| format!(" about {about}"));
    let text = format!("PostgreSQL at {place} answered {code}{about}");
    let class = code.get(..2).unwrap_or_default();
    match (class, code) {
        ("28", _) => Outcome::refuse(format!("{text}: check the user and password in `url`")),
        ("3D", _) => Outcome::refuse(format!("{text}: there is no such database; check `url`")),
        ("3F", _) | (_, "42P01") => {
            Outcome::refuse(format!("{text}: there is no such table; create it, or check `table`"))
        }
        (_, "42703") => Outcome::refuse(format!(
            "{text}: the table lacks a column; add it, or name those it has in `columns`"
        )),
        (_, "42501") => Outcome::refuse(format!(
            "{text}: the user needs INSERT, and SELECT on the key's column"
        )),
        (_, "42P10") => Outcome::refuse(format!(
            "{text}: the column of the idempotency key needs a UNIQUE constraint; add it"
        )),
        ("42", _) | ("0A", _) => {
            Outcome::refuse(format!("{text}: the table does not fit; check `table` and `columns`"))
        }
        ("23", _) | ("44", _) => Outcome::reject(format!(
            "{text}: the table does not take this row; correct the row or the constraint"
        )),
        ("22", _) => Outcome::reject(format!(
            "{text}: a value does not fit its column; correct the row or the column's type"
        )),
        ("54", _) => Outcome::reject(format!("{text}: it is too large; send a reference instead")),
        ("P0" | "09" | "27", _) => Outcome::reject(format!(
            "{text}: a trigger of the table refuses this row; ask its owner"
        )),
        // Conflicts, resources, shutdown, a standby, a lock, and all that is not known.
        _ => Outcome::retry(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_class_and_what_is_final_a_remedy() {
        let table = [
            ("08006", "retry"),
            ("25006", "retry"),
            ("40001", "retry"),
            ("40P01", "retry"),
            ("53100", "retry"),
            ("53200", "retry"),
            ("53300", "retry"),
            ("55P03", "retry"),
            ("57014", "retry"),
            ("57P01", "retry"),
            ("57P03", "retry"),
            ("58030", "retry"),
            ("XX000", "retry"),
            ("28000", "refuse"),
            ("28P01", "refuse"),
            ("3D000", "refuse"),
            ("3F000", "refuse"),
            ("0A000", "refuse"),
            ("42501", "refuse"),
            ("42601", "refuse"),
            ("42703", "refuse"),
            ("42804", "refuse"),
            ("42P01", "refuse"),
            ("42P10", "refuse"),
            ("428C9", "refuse"),
            ("22001", "reject"),
            ("22003", "reject"),
            ("22007", "reject"),
            ("22P02", "reject"),
            ("22P05", "reject"),
            ("23502", "reject"),
            ("23503", "reject"),
            ("23505", "reject"),
            ("23514", "reject"),
            ("23P01", "reject"),
            ("44000", "reject"),
            ("54000", "reject"),
            ("P0001", "reject"),
        ];
        for (code, expected) in table {
            let fault = Fault::Code(code.to_owned(), None);
            let outcome = classify("db.example:5432", &fault);
            let found = match &outcome {
                Outcome::Retry { .. } => "retry",
                Outcome::Reject { .. } => "reject",
                Outcome::Refuse { .. } => "refuse",
                Outcome::Delivered | Outcome::Gone { .. } => "other",
            };
            assert_eq!(found, expected, "{code}");
            assert_eq!(fault.concerns_a_row(), expected == "reject", "{code}");
            if let Outcome::Reject { error } | Outcome::Refuse { error } = &outcome {
                assert!(error.split_once(": ").unwrap().1.len() > 15, "{error}");
            }
        }
        for (routine, code, is_of_the_row) in [
            ("ExecWithCheckOptions", "42501", true),
            ("ExecWithCheckOptions", "44000", false),
            ("aclcheck_error", "42501", false),
            ("exec_stmt_raise", "42501", true),
            ("exec_stmt_raise", "0A000", true),
            ("exec_stmt_raise", "40001", false),
            ("exec_stmt_raise", "P0001", false),
        ] {
            let guard = guard(routine, code);
            assert_eq!(guard.is_some(), is_of_the_row, "{routine} {code}");
            if let Some(guard) = guard {
                let fault = Fault::Row(code.to_owned(), guard);
                assert!(fault.concerns_a_row());
                assert!(matches!(classify("db:1", &fault), Outcome::Reject { .. }));
            }
        }
        let outcome = classify("db:1", &Fault::Lost("reset".to_owned()));
        assert!(matches!(outcome, Outcome::Retry { .. }));
        let outcome = classify("db:1", &Fault::Tls("UnknownIssuer".to_owned()));
        assert!(matches!(outcome, Outcome::Refuse { .. }));
    }
}
