//! Settings of a layout, put into its expressions.

use super::{Assignments, Dialect, Layout, Sent};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use toml::Value;

/// Puts every `{name}` of an expression in, as an SQL literal.
pub(super) fn resolve(layout: &Layout, schema: &str, dialect: Dialect) -> StoreResult<Layout> {
    let mut values = vec![("{schema}".to_owned(), schema.to_owned())];
    for (name, value) in &layout.settings {
        let Some(literal) = literal(value, dialect) else {
            return Err(StoreError::plain(
                StoreErrorKind::Refused,
                format!(
                    "the layout of {}: the setting {name} must be a text, a number, true or false, or a \
                     list of texts",
                    layout.table
                ),
            ));
        };
        values.push((format!("{{{name}}}"), literal));
    }
    let put = |text: &mut String| {
        for (name, literal) in &values {
            *text = text.replace(name, literal);
        }
    };
    let put_all = |set: &mut Assignments| set.values_mut().for_each(put);
    let mut layout = layout.clone();
    let message = &mut layout.message;
    put(&mut message.event_type);
    put(&mut message.payload);
    put(&mut layout.state.status);
    let (message, state) = (&mut layout.message, &mut layout.state);
    for optional in [
        &mut message.integration,
        &mut message.event_id,
        &mut message.stream,
        &mut message.stored,
        &mut message.headers,
        &mut message.tenant_id,
        &mut message.user_id,
        &mut message.correlation_id,
        &mut message.causation_id,
        &mut message.source,
        &mut message.ordering_key,
        &mut message.schema_version,
        &mut message.occurred_at,
        &mut message.created_at,
        &mut message.max_attempts,
        &mut state.open,
        &mut state.due_at,
        &mut state.attempts,
        &mut state.last_error,
        &mut state.sent_at,
        &mut state.taken,
        &mut layout.identity,
    ] {
        optional.iter_mut().for_each(put);
    }
    let write = &mut layout.write;
    if let Sent::Set(set) = &mut write.sent {
        put_all(set);
    }
    for set in [&mut write.failed, &mut write.dead, &mut write.reopened, &mut write.postponed] {
        put_all(set);
    }
    put_all(&mut layout.claimed);
    put_all(&mut layout.insert);
    if let Some(create) = &mut layout.create {
        put(&mut create.sql);
    }
    Ok(layout)
}

/// A value as an SQL literal. A list of texts leads into a JSON document: by an array on PostgreSQL, else by a path.
fn literal(value: &Value, dialect: Dialect) -> Option<String> {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    Some(match value {
        Value::String(one) => text(one),
        Value::Integer(one) => one.to_string(),
        Value::Boolean(one) => one.to_string(),
        Value::Array(many) => {
            let many = many.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
            match dialect {
                Dialect::Postgres => {
                    let many: Vec<_> = many.into_iter().map(text).collect();
                    format!("ARRAY[{}]::text[]", many.join(", "))
                }
                Dialect::Mysql | Dialect::Sqlite => {
                    // A name with a quotation mark in it has no path.
                    if many.iter().any(|one| one.contains('"')) {
                        return None;
                    }
                    let path: String = many.iter().map(|one| format!(".\"{one}\"")).collect();
                    text(&format!("${path}"))
                }
            }
        }
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stand_in_expressions_as_literals() {
        let mut layout = Layout::built_in("metadata", Dialect::Postgres).unwrap();
        layout.settings.insert("path".into(), Value::Array(vec!["meta".into(), "it's".into()]));
        let resolved = layout.resolved("postroom_x", Dialect::Postgres).unwrap();
        assert!(
            resolved
                .state
                .status
                .contains("#>> (ARRAY['meta', 'it''s']::text[] || 'outbox_status'::text)")
        );
        assert!(!format!("{resolved:?}").contains("{path}"));
        assert!(resolved.message.payload.starts_with("postroom_x.without_state(m.payload, "));
        let resolved = layout.resolved("main", Dialect::Sqlite).unwrap();
        assert!(resolved.state.status.contains("'$.\"meta\".\"it''s\"'"));
    }
}
