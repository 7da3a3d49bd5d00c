//! The pages of the documentation, and the fences in them.

use std::path::{Path, PathBuf};

/// A page, by its path from the repository's root.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced block.
pub(crate) struct Fence {
    /// What stands behind the opening fence: the language, and tags.
    info: String,
    pub(crate) text: String,
    /// Where its text begins, counted from 1.
    pub(crate) line: usize,
}

impl Fence {
    pub(crate) fn language(&self) -> &str {
        self.info.split([' ', ',']).next().unwrap_or_default()
    }

    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        self.info.split([' ', ',']).skip(1).any(|word| word == tag)
    }
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(root().join(path));
        let text = text.unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), text }
    }

    pub(crate) fn fences(&self) -> Vec<Fence> {
        let mut fences = Vec::new();
        let mut open: Option<Fence> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    let (info, text) = (info.trim().to_owned(), String::new());
                    open = Some(Fence { info, text, line: index + 2 });
                }
                (Some(_), Some(_)) => fences.extend(open.take()),
                (Some(fence), None) => {
                    fence.text.push_str(line);
                    fence.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.path);
        fences
    }

    /// Where a fence is, for messages.
    pub(crate) fn place(&self, fence: &Fence) -> String {
        format!("{}:{}", self.path, fence.line)
    }

    /// The lines outside of fences, with their numbers.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut fenced = false;
        let lines = self.text.lines().enumerate().filter(|(_, line)| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fence && !fenced
        });
        lines.map(|(index, line)| (index + 1, line)).collect()
    }
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page there is.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for (folder, deep) in [("", false), ("docs", true), ("examples", true)] {
        collect(folder, deep, &mut paths);
    }
    paths.sort();
    assert!(paths.len() > 8, "{paths:?}");
    paths.iter().map(|path| Page::read(path)).collect()
}

fn collect(folder: &str, deep: bool, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        // What npm and venv bring along is not ours.
        if entry.path().is_dir() && deep && name != "node_modules" && !name.starts_with('.') {
            collect(&path, deep, paths);
        } else if name.ends_with(".md") {
            paths.push(path);
        }
    }
}
