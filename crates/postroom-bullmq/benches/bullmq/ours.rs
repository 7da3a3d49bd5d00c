//! Our side.

use crate::server::{Measured, Server};
use crate::{CALL, CALLS, CONCURRENCY, JOBS};
use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use postroom_bullmq::{Job, JobFailure, NewJob, Processor, Queue, Worker, WorkerOptions};
use postroom_core::RawJson;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) struct Ours {
    queue: Queue,
    jobs: Vec<NewJob>,
}

impl Ours {
    pub(crate) fn new(server: &Server) -> Self {
        // The shape of an outbox's job, with a payload of 300 bytes.
        let job = |n: usize| NewJob {
            id: format!("job-{n}"),
            name: "order.placed".to_owned(),
            data: RawJson::trusted(
                json!({"outboxId": format!("job-{n}"), "payload": {"text": "x".repeat(300)}})
                    .to_string(),
            ),
            keep_finished: false,
            failed_before: 0,
        };
        Self { queue: server.queue.clone(), jobs: (0..JOBS).map(job).collect() }
    }

    pub(crate) async fn add(&self, server: &Server) -> anyhow::Result<Measured> {
        server
            .adds(async || {
                let calls = self.jobs.chunks(CALL).map(|part| self.queue.add(part));
                stream::iter(calls)
                    .buffer_unordered(CALLS)
                    .try_for_each(|_| async { Ok(()) })
                    .await?;
                Ok(())
            })
            .await
    }

    pub(crate) async fn consume(&self, server: &Server) -> anyhow::Result<Measured> {
        let options = WorkerOptions { concurrency: CONCURRENCY, ..WorkerOptions::new("bench") };
        let worker = Worker::new(&self.queue, options, Arc::new(Noop));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(worker.run(async move {
            let _ = stopped.await;
        }));
        let measured = server.consumes().await?;
        let _ = stop.send(());
        running.await?;
        Ok(measured)
    }
}

#[derive(Debug)]
struct Noop;

#[async_trait]
impl Processor for Noop {
    async fn process(&self, _: Job) -> Result<(), JobFailure> {
        Ok(())
    }
}
