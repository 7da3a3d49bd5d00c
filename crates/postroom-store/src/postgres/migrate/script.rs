//! A migration's SQL as steps.
//!
//! A step is one transaction, or one statement that must run alone: the line
//! `-- postroom: outside a transaction` stands before such a statement (an index built or dropped
//! CONCURRENTLY, work that commits batch by batch).
//!
//! A migration of several steps may be cut off between two of them and is then run again from
//! its beginning, so each of its steps must be repeatable.

/// A transaction, or a statement that runs alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::postgres) struct Step {
    pub(in crate::postgres) sql: String,
    /// Whether it runs outside a transaction.
    pub(in crate::postgres) alone: bool,
}

impl Step {
    /// A transaction.
    pub(in crate::postgres) fn transaction(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), alone: false }
    }

    /// A statement that runs alone.
    pub(in crate::postgres) fn alone(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), alone: true }
    }
}

const ALONE: &str = "-- postroom: outside a transaction";

/// The steps of a script.
pub(super) fn steps(script: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for statement in statements(script) {
        let lines = statement.lines();
        let (marks, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.trim() == ALONE);
        let sql = lines.join("\n").trim().to_owned();
        match steps.last_mut() {
            Some(last) if marks.is_empty() && !last.alone => {
                last.sql.push_str("\n\n");
                last.sql.push_str(&sql);
            }
            _ => steps.push(Step { sql, alone: !marks.is_empty() }),
        }
    }
    steps
}

/// The statements of a script, each with the comments before it and its semicolon.
pub(super) fn statements(script: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while let Some(character) = script[at..].chars().next() {
        let rest = &script[at..];
        at += match character {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => 1 + rest[1..].find(character).map_or(rest.len() - 1, |end| end + 1),
            '$' => dollar_quoted(rest),
            ';' => {
                statements.push(script[begin..=at].trim());
                begin = at + 1;
                1
            }
            _ => character.len_utf8(),
        };
    }
    let rest = script[begin..].trim();
    if rest.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with("--")) {
        statements.push(rest);
    }
    statements
}

/// The length of the text in dollar quotes at the beginning, or of the dollar sign alone.
fn dollar_quoted(text: &str) -> usize {
    let Some(end) = text[1..].find('$').map(|end| end + 2) else { return 1 };
    let quote = &text[..end];
    let is_quote = quote[1..end - 1].chars().all(|c| c.is_alphanumeric() || c == '_')
        && !quote[1..].starts_with(|c: char| c.is_ascii_digit());
    if !is_quote {
        return 1;
    }
    text[end..].find(quote).map_or(text.len(), |close| end + close + quote.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_inside_quotes_and_comments_end_nothing() {
        let script = "
            -- one; two
            SELECT ';', \";\", 'it''s; fine' ;
            CREATE FUNCTION f() AS $$ BEGIN; END; $$;
            DO $body$ SELECT $$;$$; $body$;
            SELECT $1; -- the end;
        ";
        let found = statements(script);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found[0].starts_with("-- one; two") && found[0].ends_with("fine' ;"));
        assert!(found[1].ends_with("END; $$;"));
        assert!(found[2].ends_with("$body$;"));
        assert_eq!(found[3], "SELECT $1;");
    }

    #[test]
    fn marks_part_a_script_into_transactions_and_statements_that_run_alone() {
        let script = "
            CREATE TABLE a ();
            CREATE TABLE b ();
            -- Why it runs alone.
            -- postroom: outside a transaction
            CREATE INDEX CONCURRENTLY c ON a (d);
            CREATE TABLE e ();
        ";
        let steps = steps(script);
        let alone: Vec<_> = steps.iter().map(|step| step.alone).collect();
        assert_eq!(alone, [false, true, false]);
        assert_eq!(steps[0].sql, "CREATE TABLE a ();\n\nCREATE TABLE b ();");
        assert!(steps[1].sql.starts_with("-- Why it runs alone.\n"));
        assert!(!steps[1].sql.contains("postroom:"));
    }
}
