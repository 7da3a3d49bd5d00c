//! One connection to Redis or to a cluster, made when it is needed and again after it is lost.

use crate::error::QueueError;
use crate::server::Server;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError,
    RedisResult, TlsCertificates, Value,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long connecting may take, and how long an answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The connection that all queues of a server share.
pub(crate) struct Link {
    server: Arc<Server>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wire: Option<Wire>,
    /// Counts the connections, so that a lost one is not taken for its successor.
    number: u64,
}

#[derive(Clone)]
pub(crate) enum Wire {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What is sent.
enum Request<'a> {
    One(&'a Cmd),
    Several(&'a Pipeline),
}

impl Wire {
    async fn send(&mut self, request: &Request<'_>) -> RedisResult<Vec<RedisResult<Value>>> {
        match (self, request) {
            (Self::One(connection), Request::One(command)) => {
                command.query_async(connection).await.map(|answer| vec![Ok(answer)])
            }
            (Self::Cluster(connection), Request::One(command)) => {
                command.query_async(connection).await.map(|answer| vec![Ok(answer)])
            }
            (Self::One(connection), Request::Several(all)) => all.query_async(connection).await,
            (Self::Cluster(connection), Request::Several(all)) => all.query_async(connection).await,
        }
    }

    /// Sends one command on a connection that nobody else uses.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

impl Link {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server, state: Mutex::default() }
    }

    /// Sends one command, and reads its answer.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, QueueError> {
        let answer = self.send(Request::One(command)).await?.into_iter().next();
        let answer = answer.unwrap_or(Ok(Value::Nil));
        let read = answer.and_then(|value| Ok(redis::from_redis_value(value)?));
        read.map_err(|error| QueueError::of(&self.server.place, error))
    }

    /// Sends several commands at once. One answer for each; that one of them is an error does
    /// not touch the others.
    pub(crate) async fn ask_all(
        &self,
        pipeline: &mut Pipeline,
    ) -> Result<Vec<RedisResult<Value>>, QueueError> {
        self.send(Request::Several(pipeline.ignore_errors())).await
    }

    /// Asks, and once more when the connection turns out to be lost: it may have been for long.
    async fn send(&self, request: Request<'_>) -> Result<Vec<RedisResult<Value>>, QueueError> {
        let mut is_second = false;
        loop {
            let (mut wire, number) = self.wire().await?;
            let error = match wire.send(&request).await {
                Ok(answers) => return Ok(answers),
                Err(error) => self.failed(number, error).await,
            };
            if is_second || !error.is_lost() {
                return Err(error);
            }
            is_second = true;
        }
    }

    async fn wire(&self) -> Result<(Wire, u64), QueueError> {
        let mut state = self.state.lock().await;
        if let Some(wire) = &state.wire {
            return Ok((wire.clone(), state.number));
        }
        // Under the lock: whoever else needs it would only connect as well.
        let wire = connect(&self.server, Some(ANSWER_MAX)).await?;
        state.wire = Some(wire.clone());
        state.number += 1;
        Ok((wire, state.number))
    }

    /// Gives up the connection when it is of no use any more.
    async fn failed(&self, number: u64, error: RedisError) -> QueueError {
        if error.code().is_none() || error.is_unrecoverable_error() {
            let mut state = self.state.lock().await;
            if state.number == number {
                state.wire = None;
            }
        }
        QueueError::of(&self.server.place, error)
    }
}

/// A connection of its own. Without a limit on answers it is for commands that block.
pub(crate) async fn connect(
    server: &Server,
    answer_max: Option<Duration>,
) -> Result<Wire, QueueError> {
    let certificates = server.certificates().await?;
    let failed = |error| QueueError::of(&server.place, error);
    if server.is_cluster {
        let nodes = server.answering().await?.into_iter().map(|node| server.info(node));
        let nodes = nodes.collect::<RedisResult<Vec<_>>>().map_err(failed)?;
        let mut builder = ClusterClient::builder(nodes).connection_timeout(CONNECT_MAX);
        if let Some(answer_max) = answer_max {
            builder = builder.response_timeout(answer_max);
        }
        if let Some(certificates) = certificates {
            builder = builder.certs(certificates);
        }
        let client = builder.build().map_err(failed)?;
        return client.get_async_connection().await.map(Wire::Cluster).map_err(failed);
    }
    let info = server.info(&server.first).map_err(failed)?;
    one(info, certificates, CONNECT_MAX, answer_max).await.map(Wire::One).map_err(failed)
}

/// Whether one node is there and lets us in.
pub(crate) async fn ping(
    node: ConnectionInfo,
    certificates: Option<TlsCertificates>,
    limit: Duration,
) -> RedisResult<()> {
    let mut connection = one(node, certificates, limit, Some(limit)).await?;
    redis::cmd("PING").query_async(&mut connection).await
}

async fn one(
    info: ConnectionInfo,
    certificates: Option<TlsCertificates>,
    connect_max: Duration,
    answer_max: Option<Duration>,
) -> RedisResult<MultiplexedConnection> {
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates),
        None => Client::open(info),
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_max))
        .set_response_timeout(answer_max);
    client?.get_multiplexed_async_connection_with_config(&settings).await
}
