//! Compiles the definitions of the wire messages, without `protoc`.

use std::error::Error;
use tonic_prost_build::Config;

const FILES: [&str; 7] = [
    "gossip.proto",
    "operations.proto",
    "persistent_subscriptions.proto",
    "server_features.proto",
    "shared.proto",
    "status.proto",
    "streams.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let messages = protox::compile(FILES, ["proto"])?;
    let config = Config::new();
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .codec_path("crate::codec::Codec")
        .include_file("messages.rs")
        .compile_fds_with_config(messages, config)?;
    Ok(())
}
