//! The official clients, each in its own language, against the server; and the page that says what
//! they showed.
//!
//! Each client has a program that proves features by name. It runs once for all tests here; what
//! fails is named, with the client's own error.

mod features;
mod program;
mod report;
mod rust;
mod servers;
mod table;

use postroom_testkit::KurrentDbClient;
use report::Report;
use servers::Servers;
use std::collections::BTreeSet;
use tokio::sync::OnceCell;

/// A language that has an official client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Language {
    Rust,
    Node,
    Python,
}

impl Language {
    const ALL: [Self; 3] = [Self::Rust, Self::Node, Self::Python];

    fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Node => "Node",
            Self::Python => "Python",
        }
    }

    /// Its official client.
    fn package(self) -> &'static str {
        match self {
            Self::Rust => "`kurrentdb`",
            Self::Node => "`@kurrent/kurrentdb-client`",
            Self::Python => "`kurrentdbclient`",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Rust => "1.2",
            Self::Node => KurrentDbClient::Node.version(),
            Self::Python => KurrentDbClient::Python.version(),
        }
    }

    /// What its client showed, once for all tests; an error is the reason of a skip.
    async fn report(self) -> Result<&'static Report, &'static str> {
        static REPORTS: [OnceCell<Result<Report, String>>; 3] =
            [const { OnceCell::const_new() }; 3];
        let report = REPORTS[self as usize].get_or_init(|| async move {
            let servers = Servers::start().await;
            match self {
                Self::Rust => Ok(rust::prove_all(servers).await),
                Self::Node => program::prove_all(KurrentDbClient::Node, servers).await,
                Self::Python => program::prove_all(KurrentDbClient::Python, servers).await,
            }
        });
        report.await.as_ref().map_err(String::as_str)
    }
}

async fn conforms(test: &str, language: Language) {
    let report = match language.report().await {
        Ok(report) => report,
        Err(reason) => return postroom_testkit::skip(test, reason),
    };
    let failures = report.failures();
    assert!(failures.is_empty(), "the {} client failed in\n{failures}", language.name());
    let known: BTreeSet<&str> = features::every().map(|feature| feature.name).collect();
    let unknown: Vec<&str> = report.features().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "features that are not in features.rs: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_client_works_with_the_server() {
    conforms("conformance::rust_client_works_with_the_server", Language::Rust).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_client_works_with_the_server() {
    conforms("conformance::node_client_works_with_the_server", Language::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_works_with_the_server() {
    conforms("conformance::python_client_works_with_the_server", Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_says_what_the_clients_showed() {
    let mut reports = Vec::new();
    for language in Language::ALL {
        match language.report().await {
            Ok(report) => reports.push((language, report)),
            Err(reason) => {
                let test = "conformance::page_says_what_the_clients_showed";
                return postroom_testkit::skip(test, reason);
            }
        }
    }
    let (page, path) = (table::page(&reports), table::path());
    if std::env::var_os(table::WRITE).is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(
        page == written,
        "docs/eventlog-conformance.md is not what the clients showed; first difference (now, \
         written): {differs:?}. If that is right, write it again: {}=1 cargo test -p \
         postroom-eventlog --test main conformance::",
        table::WRITE
    );
}
