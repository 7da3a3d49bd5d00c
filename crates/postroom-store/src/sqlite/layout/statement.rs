//! The store's statements, for a table that somebody else made.
//!
//! They are the same texts. What differs are the names (`names.rs`), and how a row is found by its id: that is an
//! expression over the columns of its key, and no index has it. So the columns are compared too.

use super::Foreign;

/// A list of ids, as statements get it.
const LIST: &str = "IN (SELECT value FROM json_each(";

impl Foreign {
    /// A statement, or several, for this ledger.
    pub(in crate::sqlite) fn rendered(&self, sql: &str) -> String {
        let sql = marked_parts(&without_comments(sql))
            // Ids are texts here, in one form.
            .replace(" COLLATE NOCASE", "")
            // No index of somebody else's table is named.
            .replace(" INDEXED BY outbox_sent", "")
            // The size of what is stored, and not of what is made of it.
            .replace("octet_length(m.payload)", "octet_length(m.stored)")
            // As a claim's list of parcels has it.
            .replace("'\"' || lower(m.id) || '\"'", "json_quote(m.id)")
            .replace("/*keys*/", &self.key_columns());
        let sql = self.lists(&sql);
        let sql = if sql.contains("UPDATE integration_outbox") {
            sql.replace("WHERE id = ?2", &format!("WHERE {}", self.by_number("?2")))
        } else {
            sql
        };
        self.names.put(&self.look_ups(&sql))
    }

    /// The columns of the key, as views of views have them.
    fn key_columns(&self) -> String {
        self.key.view_columns().iter().map(|(name, _)| format!(", m.{name}")).collect()
    }

    /// A condition on the number of the row with this id.
    fn by_number(&self, id: &str) -> String {
        format!(
            "seq = (SELECT found.seq FROM integration_outbox AS found WHERE found.id = {id}{})",
            self.key.bounds("found", id)
        )
    }

    /// Conditions on a list of ids become conditions on the numbers of their rows.
    fn lists(&self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find(LIST) {
            let (before, after) = rest.split_at(at);
            let column = before.trim_end();
            let list = &after[LIST.len()..];
            let is_id = column.ends_with("m.id")
                || (column.ends_with("id")
                    && column[..column.len() - 2].ends_with(char::is_whitespace));
            let Some(end) = list.find("))").filter(|_| is_id) else {
                out.push_str(&rest[..at + LIST.len()]);
                rest = list;
                continue;
            };
            out.push_str(&column[..column.len() - 2]);
            out.push_str(&format!(
                "seq IN (SELECT found.seq FROM json_each({}) AS wanted \
                 CROSS JOIN integration_outbox AS found ON found.id = wanted.value{})",
                &list[..end],
                self.key.bounds("found", "wanted.value")
            ));
            rest = &list[end + 2..];
        }
        out.push_str(rest);
        out
    }

    /// Look-ups `m.id = x` compare the columns of the key too, unless the row is found by its number.
    fn look_ups(&self, sql: &str) -> String {
        const LOOK_UP: &str = "m.id = ";
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find(LOOK_UP) {
            let (before, after) = rest.split_at(at + LOOK_UP.len());
            out.push_str(before);
            let end = after.find(|c: char| c.is_whitespace() || c == ')' || c == ';');
            let (value, after) = after.split_at(end.unwrap_or(after.len()));
            out.push_str(value);
            let condition = before[..at].trim_end();
            let is_found = condition.ends_with("m.seq = p.seq AND");
            if !is_found {
                out.push_str(&self.key.bounds("m", value));
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

/// Without what only Postroom's own outbox has, and with what only such a ledger has.
fn marked_parts(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, marked)) = rest.split_once("/*foreign:") {
        out.push_str(before);
        let (text, after) = marked.split_once("*/").unwrap_or((marked, ""));
        out.push_str(text);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// No quoted text of these statements has two hyphens.
fn without_comments(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or(line).trim_end());
    lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}
