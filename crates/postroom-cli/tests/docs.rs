//! README and `docs/` are true: what they show is run, and what exists is described.

mod configurations;
mod console;
mod coverage;
mod links;
pub(crate) mod pages;
mod sql;

use pages::{Page, pages};

/// The languages of fences, and who looks after each. Prose in a fence is `text`; `sh` is for
/// commands that nobody runs here, `json` for data.
const LANGUAGES: [&str; 9] =
    ["console", "js", "json", "python", "rust", "sh", "sql", "text", "toml"];
/// The pages with `js` and `python`, which `through_bullmq.rs` and `eventlog.rs` run.
const PAGES_WITH_PROGRAMS: [&str; 2] = ["docs/bullmq.md", "docs/eventlog.md"];

#[test]
fn every_fence_has_a_language_that_is_looked_after() {
    for page in pages() {
        for fence in page.fences() {
            let place = page.place(&fence);
            assert!(LANGUAGES.contains(&fence.language()), "{place}: unknown language");
            let is_program = ["js", "python"].contains(&fence.language());
            let is_run = PAGES_WITH_PROGRAMS.contains(&page.path.as_str());
            assert!(!is_program || is_run, "{place}: not run");
            if fence.language() == "json" {
                let parsed = serde_json::from_str::<serde_json::Value>(&fence.text);
                assert!(parsed.is_ok(), "{place}: {parsed:?}");
            }
        }
    }
}

#[test]
fn every_page_with_rust_is_compiled() {
    let libraries = ["crates/postroom/src/lib.rs", "crates/postroom-relay/src/lib.rs"];
    let libraries = libraries.map(|path| Page::read(path).text);
    for page in pages() {
        let has_rust = page.fences().iter().any(|fence| fence.language() == "rust");
        let include = format!("include_str!(\"../../../{}\")", page.path);
        assert!(
            !has_rust || libraries.iter().any(|library| library.contains(&include)),
            "{} is no doctest: add it to crates/postroom/src/lib.rs",
            page.path
        );
    }
}
