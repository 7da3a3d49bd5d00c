//! A short run of the checker; `cargo xtask chaos` does the long ones.

use postroom_testkit::chaos::{Chaos, Database};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_balance_after_every_kind_of_fault_on_postgres() {
    balances(Database::Postgres, 2_000, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_balance_after_every_kind_of_fault_on_mariadb() {
    balances(Database::MariaDb, 2_000, 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_balance_after_every_kind_of_fault_on_sqlite() {
    balances(Database::Sqlite, 1_000, 6).await;
}

async fn balances(database: Database, messages: usize, faults: usize) {
    let postroom = env!("CARGO_BIN_EXE_postroom").into();
    let balance = Chaos { messages, faults, seed: 1, database, postroom }.run().await.unwrap();
    assert!(balance.is_well(), "{balance}");
    assert_eq!(balance.committed + balance.rolled_back + balance.unknown, messages);
    assert_eq!(balance.faults.len(), faults, "every kind struck: {balance}");
}
