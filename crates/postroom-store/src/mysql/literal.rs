//! Values as SQL writes them.
//!
//! Lists of numbers, ids and tokens are written into the statements: there are no arrays here, and a
//! statement of its own for every length would fill the server's cache. They come from the database and
//! from this program. A name, which a producer may have chosen, is written as its bytes.

use postroom_core::Token;
use uuid::Uuid;

/// Puts values in the places of a statement's `{names}`. Its comments stay behind: they name the places too,
/// and lists are long.
pub(super) fn filled(sql: &str, places: &[(&str, &str)]) -> String {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.starts_with("--")).collect();
    let mut sql = lines.join("\n");
    for (name, value) in places {
        sql = sql.replace(&format!("{{{name}}}"), value);
    }
    sql
}

/// Numbers as they stand in `IN (…)`. None at all match nothing.
pub(super) fn numbers(numbers: impl IntoIterator<Item = i64>) -> String {
    joined(numbers, |number| number.to_string())
}

/// Ids as they stand in `IN (…)`.
pub(super) fn ids<'a>(ids: impl IntoIterator<Item = &'a Uuid>) -> String {
    joined(ids, |one| id(*one))
}

/// Tokens as they stand in `IN (…)`.
pub(super) fn tokens<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> String {
    joined(tokens, |one| token(*one))
}

/// Names as they stand in `IN (…)`.
pub(super) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    joined(texts, text)
}

pub(super) fn id(id: Uuid) -> String {
    format!("'{}'", id.hyphenated())
}

pub(super) fn token(token: Token) -> String {
    format!("x'{}'", token.0.simple())
}

/// Compared by the column's collation, as literals are.
pub(super) fn text(text: &str) -> String {
    if text.is_empty() { "''".to_owned() } else { format!("_utf8mb4 0x{}", hex(text)) }
}

/// The bytes of a text in hexadecimal digits.
pub(super) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of which these are the bytes.
pub(super) fn unhex(digits: &str) -> Option<String> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok()
}

fn joined<T>(values: impl IntoIterator<Item = T>, write: impl Fn(T) -> String) -> String {
    let values: Vec<String> = values.into_iter().map(write).collect();
    if values.is_empty() { "NULL".to_owned() } else { values.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_from_its_bytes_whatever_is_in_it() {
        for name in ["", "noop", "a'b\\\"c;--", "kafka:größe", "\u{1f4ee} %_?"] {
            assert_eq!(unhex(&hex(name)).as_deref(), Some(name));
        }
        for broken in ["a", "zz", "ff", "é"] {
            assert_eq!(unhex(broken), None, "{broken}");
        }
    }
}
