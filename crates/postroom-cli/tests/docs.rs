//! README and `docs/` are true: what they show is run, and what exists is described.

mod configurations;
mod console;
mod coverage;
mod links;
pub(crate) mod pages;
mod sql;

use pages::{Page, pages};

/// The languages of fences, and who looks after each. Prose in a fence is `text`; `sh` is for
/// commands that nobody runs here, `json` for data; `through_bullmq.rs` runs the one page with `js`.
const LANGUAGES: [&str; 8] = ["console", "js", "json", "rust", "sh", "sql", "text", "toml"];

#[test]
fn every_fence_has_a_language_that_is_looked_after() {
    for page in pages() {
        for fence in page.fences() {
            let place = page.place(&fence);
            assert!(LANGUAGES.contains(&fence.language()), "{place}: unknown language");
            assert!(fence.language() != "js" || page.path == "docs/bullmq.md", "{place}: not run");
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
