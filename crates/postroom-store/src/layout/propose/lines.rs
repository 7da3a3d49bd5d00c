//! Lines of TOML.

use crate::layout::Dialect;

/// A column of the row, as an expression names it.
pub(super) fn column(dialect: Dialect, name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { format!("m.{name}") } else { format!("m.{}", dialect.quoted(name)) }
}

/// A key and its text.
pub(super) fn entry(key: &str, value: &str) -> String {
    format!("{key} = {}", toml_text(value))
}

/// A list of assignments.
pub(super) fn set(key: &str, columns: &[(&str, String)]) -> String {
    let pairs: Vec<_> = columns
        .iter()
        .map(|(name, value)| {
            let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let name = if is_bare { (*name).to_owned() } else { toml_text(name) };
            format!("{name} = {}", toml_text(value))
        })
        .collect();
    format!("{key} = {{ {} }}", pairs.join(", "))
}

/// A text as TOML has it.
pub(super) fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
