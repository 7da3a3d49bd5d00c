//! Every relative link leads to a file, and every anchor to a heading.

use super::pages::{Page, pages, root};
use std::path::{Component, Path, PathBuf};

#[test]
fn links_lead_somewhere() {
    let mut seen = 0;
    for page in pages() {
        for (line, target) in links(&page) {
            if target.contains("://") {
                continue;
            }
            let place = format!("{}:{line}: {target}", page.path);
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { page.path.clone() } else { resolve(&page, path) };
            assert!(root().join(&path).exists(), "{place}: there is no {path}");
            let found =
                anchor.is_empty() || anchors(&Page::read(&path)).contains(&anchor.to_owned());
            assert!(found, "{place}: {path} has no such heading");
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} links were found");
}

/// The targets of `[text](target)`, with their lines.
fn links(page: &Page) -> Vec<(usize, String)> {
    let lines = page.prose().into_iter();
    lines
        .flat_map(|(number, line)| {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets.map(move |(target, _)| (number, target.to_owned()))
        })
        .collect()
}

/// A path from the page's folder, as a path from the root.
fn resolve(page: &Page, path: &str) -> String {
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let mut resolved = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => assert!(resolved.pop(), "{path} leaves the repository"),
            part => resolved.push(part),
        }
    }
    resolved.to_str().unwrap().to_owned()
}

/// The anchors that headings get: lower case, hyphens for spaces, nothing but letters, digits,
/// hyphens and underscores.
fn anchors(page: &Page) -> Vec<String> {
    let headings = page.prose().into_iter().filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect()
}
