//! The names of a ledger's tables, views and triggers.
//!
//! SQLite has no schemas. So every name of such a ledger begins with that of its table, and a file holds any number of
//! ledgers beside Postroom's own outbox, which keeps the names that statements are written with.

use crate::layout::Layout;

/// What names of Postroom's own outbox begin with, but for that of the message table.
const OWN: &str = "outbox_";
/// The message table of Postroom's own outbox.
const MESSAGES: &str = "integration_outbox";

/// The names of one ledger.
#[derive(Clone, Debug, Default)]
pub(in crate::sqlite) struct Names {
    /// What they begin with, unless they are those of Postroom's own outbox.
    prefix: Option<String>,
}

impl Names {
    /// Those of a layout's ledger, or of Postroom's own outbox.
    pub(in crate::sqlite) fn of(layout: Option<&Layout>) -> Self {
        Self { prefix: layout.map(|layout| format!("{}_", layout.ledger_schema())) }
    }

    /// A statement of the store's own, with the names of this ledger. Nothing that a user wrote may stand in it: that
    /// could have such names too.
    pub(in crate::sqlite) fn put(&self, sql: &str) -> String {
        let Some(prefix) = &self.prefix else { return sql.to_owned() };
        let mut out = String::with_capacity(sql.len() + sql.len() / 4);
        let mut rest = sql;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            match word.strip_prefix(OWN) {
                _ if word == MESSAGES => {
                    out.push_str(prefix);
                    out.push_str(word);
                }
                Some(name) => {
                    out.push_str(prefix);
                    out.push_str(name);
                }
                None => out.push_str(word),
            }
            let next = after.find(is_of_word).unwrap_or(after.len());
            out.push_str(&after[..next]);
            rest = &after[next..];
        }
        out
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_put_in_other_words() {
        let layout = Layout { table: "main.Shop".to_owned(), ..Layout::default() };
        let names = Names::of(Some(&layout));
        assert_eq!(
            names.put("SELECT 'outbox_claim', seq FROM integration_outbox AS m, my_outbox_claim"),
            "SELECT 'postroom_main_shop_claim', seq FROM postroom_main_shop_integration_outbox AS m, my_outbox_claim"
        );
        assert_eq!(Names::of(None).put("outbox_claim"), "outbox_claim");
    }
}
