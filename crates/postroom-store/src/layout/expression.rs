//! Expressions over a row, as far as they must be understood: which columns they read.

use std::collections::BTreeSet;

/// The columns of `m` that an expression reads, as they are named in the catalogue.
pub(crate) fn columns(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    replace(expression, |column| {
        found.insert(column.to_owned());
        String::new()
    });
    found
}

/// The same expression over another row, such as `NEW`; with `row` empty, over arguments of the columns' names.
pub(crate) fn for_row(expression: &str, row: &str) -> String {
    moved(expression, row, quoted)
}

/// The same, where names are quoted otherwise.
pub(crate) fn moved(expression: &str, row: &str, quoted: fn(&str) -> String) -> String {
    replace(expression, |column| match row {
        "" => quoted(column),
        row => format!("{row}.{}", quoted(column)),
    })
}

/// A name as SQL takes it, whatever it is.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The same on MariaDB and MySQL.
pub(crate) fn backticked(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The texts that an expression compares with or gives, such as those of a constraint. A quotation mark in one of them
/// makes two of it.
pub(crate) fn literals(expression: &str) -> Vec<String> {
    expression.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Puts something else for every column of `m`. Quoted text is passed over.
fn replace(expression: &str, mut with: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        if c == '\'' {
            let end = rest[1..].find('\'').map_or(rest.len(), |end| end + 2);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            before = '\'';
            continue;
        }
        let begins_name = !(before.is_alphanumeric() || ['_', '.', '"', '`'].contains(&before));
        if begins_name && let Some(column) = rest.strip_prefix("m.") {
            let (name, length) = name(column);
            if length > 0 {
                out.push_str(&with(&name));
                rest = &column[length..];
                before = 'm';
                continue;
            }
        }
        out.push(c);
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The name at the beginning, as the catalogue has it, and its length in the text.
fn name(text: &str) -> (String, usize) {
    for quote in ['"', '`'] {
        if let Some(inner) = text.strip_prefix(quote) {
            let Some(end) = inner.find(quote) else { return (String::new(), 0) };
            return (inner[..end].to_owned(), end + 2);
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    (text[..end].to_ascii_lowercase(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_and_nothing_else() {
        let found =
            columns("coalesce(m.A, m.\"createdAt\", item.b, 'm.c', x_m.d) || m.payload->>'m.e'");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "createdAt", "payload"]);
    }

    #[test]
    fn an_expression_is_moved_to_another_row() {
        assert_eq!(for_row("m.a + m.\"B\"", "NEW"), "NEW.\"a\" + NEW.\"B\"");
        assert_eq!(for_row("m.a || 'm.a'", ""), "\"a\" || 'm.a'");
        assert_eq!(moved("m.a || m.`B`", "NEW", backticked), "NEW.`a` || NEW.`B`");
    }
}
