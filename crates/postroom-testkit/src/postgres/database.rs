//! A database of its own for one test.

use crate::contract::Commit;
use crate::url::with_database;
use anyhow::Context as _;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// An empty database that is dropped with the value, whoever is still connected to it.
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    url: String,
    name: String,
}

impl TestDatabase {
    pub(super) async fn create(server_url: &str) -> anyhow::Result<Self> {
        let name = format!("postroom_{}", Uuid::new_v4().simple());
        let url = with_database(server_url, &name)?;
        let client = connect(server_url).await?;
        client
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .context("CREATE DATABASE: the user needs the right CREATEDB")?;
        Ok(Self { server_url: server_url.to_owned(), url, name })
    }

    /// The URL that applications connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `sql` in a transaction that stays open until the answer is awaited, or dropped: then it
    /// is rolled back.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn open_transaction(&self, sql: &str) -> Commit {
        let client = self.client().await;
        client.batch_execute(&format!("BEGIN; {sql}")).await.expect("the transaction's work");
        Box::pin(async move { client.batch_execute("COMMIT").await.expect("commit") })
    }

    /// A connection of its own, closed when the client is dropped.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn client(&self) -> Client {
        connect(&self.url).await.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        // A thread with a runtime of its own, since a destructor cannot await. It is waited for,
        // so that a process that ends right after its last test leaves nothing behind.
        let dropping = std::thread::spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = connect(&server_url).await?;
                client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
                Ok(())
            })
        });
        // Best effort: the server may be stopped, or gone.
        let _ = dropping.join();
    }
}

pub(super) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .context("connecting to PostgreSQL; is the server running?")?;
    // It ends when the client is dropped; what goes wrong before, the client reports.
    tokio::spawn(connection);
    Ok(client)
}
