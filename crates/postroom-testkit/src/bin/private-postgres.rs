//! Runs a private PostgreSQL, prints its URL, and stays until its
//! standard input closes: for trying things by hand, and to kill in the test kit's own tests.

use postroom_testkit::Postgres;
use std::io::Read as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Postgres::private(&[]).await?;
    println!("{}", server.url());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
