//! The store's statements, as far as they need the rows themselves.
//!
//! A statement that reads content, or must know whether a row is still there, says so by a mark behind the name of the
//! message table. There the view of the rows is read instead; it names its indexes itself.

use std::borrow::Cow;

const MARK: &str = "integration_outbox /*row*/";
const INDEX: &str = " FORCE INDEX (";
/// What the first columns of a message are: people know it by its name.
const IDENTITY: &str = "m.seq, m.id, m.source_event_id";
/// The size of a row's content, which the ledger knows.
const SIZE: &str = "OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0)";

/// A statement of the store for a table that somebody else made.
pub(in crate::mysql) fn of_rows(sql: &str) -> Cow<'_, str> {
    if !sql.contains(MARK) {
        return Cow::Borrowed(sql);
    }
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(MARK) {
        out.push_str(before);
        out.push_str("outbox_row");
        rest = after;
        // An alias may stand between the name and the index.
        let hint = after.find(INDEX).filter(|at| after[..*at].split_whitespace().count() <= 2);
        if let Some(at) = hint
            && !after[..at].contains([',', '(', ')'])
            && let Some(end) = after[at..].find(')')
        {
            out.push_str(&after[..at]);
            rest = &after[at + end + 1..];
        }
    }
    out.push_str(rest);
    let out = out.replace(IDENTITY, "m.seq, m.name, m.source_event_id").replace(SIZE, "bytes");
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_their_view_without_an_index_of_the_table() {
        let sql = "SELECT m.seq, m.id, m.source_event_id FROM integration_outbox /*row*/ AS m FORCE INDEX (PRIMARY)\n\
                   LEFT JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.message_id = m.id";
        assert_eq!(
            of_rows(sql),
            "SELECT m.seq, m.name, m.source_event_id FROM outbox_row AS m\n\
             LEFT JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.message_id = m.id"
        );
        let sql =
            "SELECT seq FROM integration_outbox /*row*/ FORCE INDEX (outbox_id) WHERE id IN ('a')";
        assert_eq!(of_rows(sql), "SELECT seq FROM outbox_row WHERE id IN ('a')");
        let sql =
            "LEFT JOIN integration_outbox /*row*/ AS m\n    ON m.id = d.message_id FORCE INDEX (x)";
        assert_eq!(
            of_rows(sql),
            "LEFT JOIN outbox_row AS m\n    ON m.id = d.message_id FORCE INDEX (x)"
        );
    }

    #[test]
    fn what_has_no_mark_is_as_it_was() {
        let sql = "UPDATE integration_outbox FORCE INDEX (PRIMARY) SET status = 'SENT'";
        assert_eq!(of_rows(sql), sql);
    }
}
