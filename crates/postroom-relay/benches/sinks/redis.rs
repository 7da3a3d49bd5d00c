//! Redis, against the same client: a batch is one pipeline, and each command has its answer.

use crate::against::{Ready, Subject, sink};
use crate::size::Size;
use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Script, Value, cmd, pipe};
use anyhow::ensure;
use postroom_testkit::Redis;
use serde_json::json;
use std::sync::Arc;

const SUBJECT: Subject = Subject {
    name: "redis",
    reference_is: "redis-rs in a bare loop: a pipeline that appends the same fields to a stream, once by a script with an expiring key",
    messages: 50_000,
    concurrency: 4,
    batch_size: 100,
};

/// The least that appends once, as the sink promises it.
const APPEND_ONCE: &str = "
if redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then
  return redis.call('XADD', KEYS[1], unpack(ARGV, 2))
end
return false
";

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = Redis::private(&[]).await?;
    let url = format!("redis://{}", server.address());
    let connection = Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let hash: String =
        cmd("SCRIPT").arg("LOAD").arg(APPEND_ONCE).query_async(&mut connection.clone()).await?;
    ensure!(hash == Script::new(APPEND_ONCE).get_hash(), "Redis knows the script");
    let deliver = move |messages: Arc<[Ready]>| {
        let (connection, hash) = (connection.clone(), hash.clone());
        async move { append(connection, &hash, &messages).await }
    };
    // The stream stays as long as it is, however many rounds there were.
    let options = json!({"url": url, "max_length": 10_000});
    SUBJECT.measure(size, sink("redis:bench", options)?, deliver).await
}

async fn append(
    mut connection: MultiplexedConnection,
    hash: &str,
    messages: &[Ready],
) -> anyhow::Result<()> {
    let mut pipeline = pipe();
    for message in messages {
        let command = pipeline.cmd("EVALSHA").arg(hash).arg(2).arg("bench");
        command.arg(format!("{{bench}}:postroom:{}", message.event_id)).arg(86_400_000);
        command.arg(&["MAXLEN", "~", "10000", "*"]);
        for (name, value) in &message.headers {
            command.arg(*name).arg(value);
        }
        command.arg(&["content-type", "application/json", "body", &message.body]);
    }
    let answers: Vec<Value> = pipeline.query_async(&mut connection).await?;
    ensure!(answers.len() == messages.len(), "{} answers", answers.len());
    Ok(())
}
