//! What is fetched once and kept between runs, outside the repository.

use std::path::PathBuf;

/// The folder for it; `None` where there is no place for caches.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(base.join("postroom"))
}
