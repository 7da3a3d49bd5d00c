//! Where rows go that do not say so themselves.

use super::Dialect;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One or several integrations. `{column}` stands for what a row has there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Destination {
    /// One.
    One(String),
    /// Several: the row is for the first, and a message in Postroom's own outbox for each of the others.
    Several(Vec<String>),
}

impl Destination {
    /// The first, which the row itself is for.
    fn first(&self) -> &str {
        match self {
            Self::One(one) => one,
            Self::Several(many) => many.first().map_or("", String::as_str),
        }
    }

    /// What is wrong with it, in words.
    pub(super) fn faults(&self) -> Vec<String> {
        let all: Vec<&String> = match self {
            Self::One(one) => vec![one],
            Self::Several(many) if many.is_empty() => {
                return vec!["`to` is an empty list: name an integration".to_owned()];
            }
            Self::Several(many) => many.iter().collect(),
        };
        let fault = |text: &&String| {
            let is_closed = text.matches('{').count() == text.matches('}').count();
            (text.is_empty() || !is_closed).then(|| {
                format!(
                    "{text:?} is no integration: expected \"kafka:orders\", or \"kafka:{{column}}\""
                )
            })
        };
        all.iter().filter_map(fault).collect()
    }

    /// The others.
    pub(super) fn others(&self) -> &[String] {
        match self {
            Self::One(_) => &[],
            Self::Several(many) => many.get(1..).unwrap_or_default(),
        }
    }
}

/// Where the rows go that fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// What columns must be. `type` means the event type where there is no such column. A text that ends with `*`
    /// fits whatever begins so.
    pub when: BTreeMap<String, String>,
    /// Where they go.
    pub to: Destination,
}

/// The expression for the integration of a row. `said` is what the row itself says, if it does.
pub(crate) fn integration(
    said: Option<&str>,
    to: Option<&Destination>,
    routes: &[Route],
    event_type: &str,
    dialect: Dialect,
) -> String {
    let default = match (said, to) {
        (Some(said), _) => dialect.text(&format!("({said})")),
        (None, Some(to)) => template(to.first(), dialect),
        (None, None) => "NULL".to_owned(),
    };
    choose(routes, event_type, dialect, |to| template(to.first(), dialect), &default)
}

/// The expression for the integrations of a row besides its own, if any row has some.
pub(crate) fn besides(
    to: Option<&Destination>,
    routes: &[Route],
    event_type: &str,
    dialect: Dialect,
) -> Option<String> {
    let all = to.into_iter().chain(routes.iter().map(|route| &route.to));
    all.flat_map(Destination::others).next()?;
    let array = |to: &Destination| {
        let others: Vec<_> = to.others().iter().map(|one| template(one, dialect)).collect();
        dialect.list(&others)
    };
    let default = to.map_or_else(|| dialect.list(&[]), array);
    Some(choose(routes, event_type, dialect, array, &default))
}

fn choose(
    routes: &[Route],
    event_type: &str,
    dialect: Dialect,
    value: impl Fn(&Destination) -> String,
    default: &str,
) -> String {
    if routes.is_empty() {
        return default.to_owned();
    }
    let cases = routes.iter().map(|route| {
        let conditions = route.when.iter().map(|(column, wanted)| {
            let is = match column.as_str() {
                "type" => dialect.text(&format!("({event_type})")),
                column => dialect.text(&format!("m.{}", dialect.quoted(column))),
            };
            match wanted.strip_suffix('*') {
                Some(beginning) => dialect.starts_with(&is, &literal(beginning)),
                None => format!("{is} = {}", literal(wanted)),
            }
        });
        let conditions: Vec<_> = conditions.collect();
        let conditions =
            if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
        format!(" WHEN {conditions} THEN {}", value(&route.to))
    });
    format!("CASE{} ELSE {default} END", cases.collect::<String>())
}

/// A text with `{column}` in it, as an expression.
fn template(text: &str, dialect: Dialect) -> String {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((column, after)) = after.split_once('}') else { break };
        if !before.is_empty() {
            parts.push(literal(before));
        }
        parts.push(dialect.text(&format!("m.{}", dialect.quoted(column))));
        rest = after;
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(literal(rest));
    }
    parts.join(" || ")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PG: Dialect = Dialect::Postgres;

    fn one(text: &str) -> Destination {
        Destination::One(text.to_owned())
    }

    #[test]
    fn a_template_reads_columns() {
        let sql = integration(None, Some(&one("kafka:{topic}.it's")), &[], "m.type", PG);
        assert_eq!(sql, "'kafka:' || m.\"topic\"::text || '.it''s'");
    }

    #[test]
    fn sqlite_has_words_of_its_own() {
        let route =
            Route { when: [("type".to_owned(), "a.*".to_owned())].into(), to: one("x:{topic}") };
        assert_eq!(
            integration(Some("m.goes"), None, &[route], "m.kind", Dialect::Sqlite),
            "CASE WHEN substr(CAST((m.kind) AS TEXT), 1, length('a.')) = 'a.' \
             THEN 'x:' || CAST(m.\"topic\" AS TEXT) ELSE CAST((m.goes) AS TEXT) END"
        );
    }

    #[test]
    fn the_first_route_that_fits_counts() {
        let route = |column: &str, wanted: &str, to| Route {
            when: [(column.to_owned(), wanted.to_owned())].into(),
            to,
        };
        let both = Destination::Several(vec!["a".into(), "b:{x}".into()]);
        let routes = [route("type", "order.*", one("kafka:orders")), route("shop", "7", both)];
        assert_eq!(
            integration(None, Some(&one("noop")), &routes, "m.kind", PG),
            "CASE WHEN starts_with((m.kind)::text, 'order.') THEN 'kafka:orders' \
             WHEN m.\"shop\"::text = '7' THEN 'a' ELSE 'noop' END"
        );
        assert_eq!(
            besides(Some(&one("noop")), &routes, "m.kind", PG).unwrap(),
            "CASE WHEN starts_with((m.kind)::text, 'order.') THEN ARRAY[]::text[] \
             WHEN m.\"shop\"::text = '7' THEN ARRAY['b:' || m.\"x\"::text]::text[] \
             ELSE ARRAY[]::text[] END"
        );
        assert_eq!(
            besides(None, &routes[1..], "m.kind", Dialect::Sqlite).unwrap(),
            "CASE WHEN CAST(m.\"shop\" AS TEXT) = '7' THEN json_array('b:' || CAST(m.\"x\" AS TEXT)) \
             ELSE json_array() END"
        );
        assert_eq!(besides(Some(&one("noop")), &routes[..1], "m.kind", PG), None);
    }
}
