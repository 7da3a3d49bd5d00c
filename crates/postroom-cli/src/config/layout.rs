//! The keys of a database that say how its message table is read and written.

use super::reader::Section;
use postroom_store::Layout;
use postroom_store::layout::Dialect;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The keys beside `layout` itself.
pub(super) const KEYS: [&str; 13] = [
    "table", "key", "identity", "to", "routes", "vanished", "feed", "settings", "message", "state",
    "write", "claimed", "insert",
];

/// The layout that a database's section describes: a built-in one, with what the section says laid over it. `None`
/// for Postroom's own table. What is built in depends on the kind of database at `url`.
pub(super) fn layout(section: &Section<'_>, url: &str) -> Option<Arc<Layout>> {
    let name = section.string("layout").unwrap_or_else(|| postroom_store::layout::OWN.to_owned());
    let said: Vec<&str> = section.keys().filter(|key| KEYS.contains(key)).collect();
    if name == postroom_store::layout::OWN {
        for key in said {
            let hint = "say layout = \"custom\", or one of the built-in layouts, beside it";
            section.fault_at(&[key], "describes a table of another layout", Some(hint.to_owned()));
        }
        return None;
    }
    // Where layouts are not for that kind of database, opening it says so.
    let dialect = Dialect::of(url).unwrap_or(Dialect::Postgres);
    let Some(built_in) = Layout::built_in(&name, dialect) else {
        let known = Layout::names(dialect).join(", ");
        section.fault_at(&["layout"], "is unknown", Some(format!("known here: {known}")));
        return None;
    };
    let Ok(Value::Object(mut whole)) = serde_json::to_value(&built_in) else {
        return Some(Arc::new(built_in));
    };
    let mut is_sound = true;
    for key in said {
        let value = section.json(key)?;
        // By itself first, so that a fault is shown where it is.
        let alone = Map::from_iter([(key.to_owned(), value.clone())]);
        if let Err(error) = serde_json::from_value::<Layout>(Value::Object(alone)) {
            section.fault_at(&[key], &format!("is wrong: {error}"), None);
            is_sound = false;
        }
        lay_over(&mut whole, key, value);
    }
    if !is_sound {
        return None;
    }
    let layout = match serde_json::from_value::<Layout>(Value::Object(whole)) {
        Ok(layout) => layout,
        Err(error) => {
            section.fault(format!("the layout is wrong: {error}"), None);
            return None;
        }
    };
    if let Err(error) = layout.check() {
        section.fault(error.to_string(), Some("docs/adopting.md describes layouts".to_owned()));
    }
    Some(Arc::new(layout))
}

/// Tables of expressions are completed; everything else is replaced, lists of assignments too.
fn lay_over(whole: &mut Map<String, Value>, key: &str, value: Value) {
    match (whole.get_mut(key), value) {
        (Some(Value::Object(known)), Value::Object(said)) => known.extend(said),
        (_, value) => {
            whole.insert(key.to_owned(), value);
        }
    }
}
