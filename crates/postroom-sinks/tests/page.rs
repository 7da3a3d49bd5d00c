//! The first configuration on a sink's page, delivering to a real server in the place of the one
//! that it names. That a relay accepts all of a page, the command's own tests see to.

use crate::destination;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{self, deliver_all};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What stands for `${…_SECRET}`, and what for all other variables.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const VARIABLE: &str = "hunter2";

/// The first fence of a language on the page of `sink`.
pub(crate) fn fence(sink: &str, language: &str) -> String {
    let path = pages().join(format!("{sink}.md"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("the page has a fence");
    rest.split("```").next().unwrap().to_owned()
}

/// A sink as the page configures it, but for what is `replaced`; what is null is left out.
pub(crate) fn sink(sink: &str, replaced: Value) -> Arc<dyn Sink> {
    let page: Value = toml::from_str(&without_variables(&fence(sink, "toml"))).unwrap();
    let (integration, options) = page["integrations"].as_object().unwrap().iter().next().unwrap();
    let mut options = options.as_object().unwrap().clone();
    merge(&mut options, replaced);
    destination::sink(integration, Value::Object(options))
}

/// Delivers one message by such a sink, with what the templates of the pages ask for.
pub(crate) async fn deliver(sink: &str, replaced: Value) {
    let sink = self::sink(sink, replaced);
    let customer = json!({"name": "Ann", "email": "ann@page.test"});
    let payload = json!({"orderId": "o-1", "customer": customer, "items": ["tea"],
        "phone": "+14155550100", "code": "1234"});
    let payload = RawJson::trusted(payload.to_string());
    let message = Message { payload, ..sink_contract::message("e-1") };
    assert_eq!(deliver_all(&*sink, &[message]).await, [Outcome::Delivered]);
}

fn merge(all: &mut Map<String, Value>, replaced: Value) {
    let Value::Object(replaced) = replaced else { panic!("options are a table") };
    for (key, value) in replaced {
        match (all.get_mut(&key), value) {
            (_, Value::Null) => drop(all.remove(&key).expect("the page has it")),
            (Some(Value::Object(inner)), value @ Value::Object(_)) => merge(inner, value),
            (_, value) => drop(all.insert(key, value)),
        }
    }
}

fn without_variables(text: &str) -> String {
    let mut parts = text.split("${");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("a variable ends");
        filled.push_str(if name.ends_with("_SECRET") { SECRET } else { VARIABLE });
        filled.push_str(rest);
    }
    filled
}

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sinks")
}

#[test]
fn the_configuration_of_every_page_is_delivered_by() {
    let mut tests = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"), &mut tests);
    let mut seen = 0;
    for page in std::fs::read_dir(pages()).unwrap() {
        let path = page.unwrap().path();
        let sink = path.file_stem().unwrap().to_str().unwrap();
        if std::fs::read_to_string(&path).unwrap().contains("```toml\n") {
            let calls = ["deliver", "sink"].map(|call| format!("page::{call}(\"{sink}\","));
            assert!(calls.iter().any(|call| tests.contains(call)), "{sink}.md is not tried");
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} pages were found");
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}
