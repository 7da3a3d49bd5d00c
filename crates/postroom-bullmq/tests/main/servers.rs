//! A queue of its own for each test.

use postroom_bullmq::{NewJob, Queue, Redis, RedisConfig};
use postroom_core::RawJson;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// Longer than anything takes, for waiting with an end.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn config(address: SocketAddr) -> RedisConfig {
    RedisConfig { url: format!("redis://{address}"), ..RedisConfig::default() }
}

pub(crate) fn redis(address: SocketAddr) -> Redis {
    Redis::new(&config(address)).unwrap()
}

/// A queue on the server at `address` that is called like the test that asks.
pub(crate) fn queue(address: SocketAddr) -> Queue {
    Queue::open(&redis(address), &name()).unwrap()
}

/// The test's name, which is unique within a process.
pub(crate) fn name() -> String {
    std::thread::current().name().expect("tests have names").replace("::", "-")
}

/// A queue on the server that all tests share, and that server.
pub(crate) async fn shared() -> (Queue, &'static postroom_testkit::Redis) {
    let name = name();
    let server = postroom_testkit::Redis::shared().await;
    (Queue::open(&redis(server.address()), &name).unwrap(), server)
}

pub(crate) fn job(id: &str, name: &str, data: Value) -> NewJob {
    let data = RawJson::trusted(data.to_string());
    NewJob {
        id: id.to_owned(),
        name: name.to_owned(),
        data,
        keep_finished: false,
        failed_before: 0,
    }
}

pub(crate) fn kept(id: &str, name: &str, data: Value) -> NewJob {
    NewJob { keep_finished: true, ..job(id, name, data) }
}

pub(crate) fn ids(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
