//! `cargo xtask bench eventlog`: the event log over the wire, with the official client for Rust,
//! against what its disk and its bytes allow.
//!
//! The server is a process of its own, as it would be; this program is both.

#[path = "../../../postroom-relay/benches/bench/figure.rs"]
mod figure;
#[path = "../../../postroom-relay/benches/bench/size.rs"]
mod size;

mod append;
mod bare;
mod catch_up;
mod latency;
mod memory;
mod reported;
mod server;

use server::Server;
use size::Size;
use std::env;

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The bytes of an event's data, JSON.
const PAYLOAD: usize = 300;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(folder) = env::var_os(server::FOLDER) {
        return runtime.block_on(server::serve(folder.as_ref()));
    }
    let size = Size::asked_for();
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        if wanted("append_batch") {
            append::batches(size).await?;
        }
        if wanted("catch_up") {
            catch_up::run(size).await?;
        }
        if wanted("append_single") {
            append::singles(size).await?;
        }
        if wanted("live_latency") {
            latency::run(size).await?;
        }
        if wanted("memory") {
            memory::run(size).await?;
        }
        Ok(())
    })
}

/// An event whose data has [`PAYLOAD`] bytes.
fn event() -> kurrentdb::EventData {
    kurrentdb::EventData::binary("happened", payload().into()).id(uuid::Uuid::new_v4())
}

fn payload() -> Vec<u8> {
    let mut data = b"{\"text\":\"".to_vec();
    data.resize(PAYLOAD - 2, b'x');
    data.extend(b"\"}");
    data
}
