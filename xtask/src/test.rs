//! `cargo xtask test`: everything that must hold, on a machine that has only a Rust toolchain.

use crate::suites::{
    benchmarks, dependencies, documentation, formatting, lints, nestjs, node, python, rust,
};
use crate::tally::Tally;
use crate::tree::Tree;
use crate::{packages, phase};
use anyhow::Context as _;
use postroom_testkit::{NotInstalled, Postgres};
use tokio::runtime::Runtime;

/// The releases of PostgreSQL that run the store contract only when asked to.
const OTHER_RELEASES: [u32; 2] = [16, 17];

/// Runs everything, or only the Rust tests that match. Says whether all is well.
pub(crate) fn run(only: Option<&str>, databases: Databases) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    let runtime = Runtime::new().context("an async runtime")?;
    install_packages(&tree);

    let mut total = Tally::default();
    if only.is_none() {
        total.add(phase::suite("formatting", || formatting::check(&tree)));
        total.add(phase::suite("lints", || lints::check(&tree)));
        total.add(phase::suite("documentation", || documentation::check(&tree)));
        total.add(phase::suite("dependencies", || dependencies::check(&tree)));
    }

    match phase::preparation("PostgreSQL", || runtime.block_on(start_postgres())) {
        Ok(server) => total.add(with_postgres(&tree, &runtime, &server, only, databases)),
        Err(error) => {
            eprintln!("{error:#}");
            total.add(Tally::failed("PostgreSQL: without it, no test and no example has run"));
        }
    }
    if databases == Databases::All {
        for release in OTHER_RELEASES {
            let name = format!("store contract on PostgreSQL {release}");
            let suite = || match runtime.block_on(Postgres::release(release)) {
                Ok(server) => rust::test_contract(&tree, &server),
                Err(error) if error.is::<NotInstalled>() => {
                    Ok(Tally::skipped(&name, &format!("{error:#}")))
                }
                Err(error) => Err(error),
            };
            total.add(phase::suite(&name, suite));
        }
    }

    total.print();
    Ok(total.is_well())
}

/// What the store contract runs on.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Databases {
    /// The installed PostgreSQL, PostgreSQL 18, MariaDB, MySQL 8, SQLite.
    Usual,
    /// The other releases of PostgreSQL, and every layout on MySQL, as well.
    All,
}

fn with_postgres(
    tree: &Tree,
    runtime: &Runtime,
    server: &Server,
    only: Option<&str>,
    databases: Databases,
) -> Tally {
    let server = server.get();
    let mut total = phase::suite("Rust tests", || rust::test(tree, server, only, databases));
    if only.is_none() {
        let python = || runtime.block_on(python::test(tree, server));
        total.add(phase::suite("Python example", python));
        let node = || runtime.block_on(node::test(tree, server));
        total.add(phase::suite("Node example", node));
        total.add(phase::suite("NestJS example", || nestjs::test(tree, server)));
        total.add(phase::suite("benchmarks", || benchmarks::check(tree)));
    }
    total
}

/// What cannot be installed is said here, and the suites that need it are skipped by name.
pub(crate) fn install_packages(tree: &Tree) {
    let missing = packages::missing();
    if missing.is_empty() {
        return;
    }
    let name = format!("installing {}", missing.join(" "));
    if let Err(error) = phase::preparation(&name, || packages::install(tree, &missing)) {
        eprintln!("{error:#}");
    }
}

/// The one server that all suites share.
enum Server {
    /// `DATABASE_URL` names it; it was there before and stays.
    Given(&'static Postgres),
    /// Started here, and stopped when dropped.
    Private(Postgres),
}

impl Server {
    fn get(&self) -> &Postgres {
        match self {
            Self::Given(server) => server,
            Self::Private(server) => server,
        }
    }
}

async fn start_postgres() -> anyhow::Result<Server> {
    if std::env::var_os("DATABASE_URL").is_some() {
        let server = Postgres::shared().await;
        // Told here once, instead of by every test.
        server.try_database().await.context("the server that DATABASE_URL names is of no use")?;
        return Ok(Server::Given(server));
    }
    Ok(Server::Private(Postgres::private(&[]).await?))
}
