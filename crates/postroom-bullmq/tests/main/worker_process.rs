//! Our worker in a process of its own, so that it can be killed.

use crate::recording::quick;
use crate::servers::{LONG, redis};
use async_trait::async_trait;
use postroom_bullmq::{Health, Job, JobFailure, Processor, Queue, Worker};
use postroom_testkit::Process;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The address of Redis and the queue, for the process.
const ADDRESS: &str = "POSTROOM_TEST_REDIS";
const QUEUE: &str = "POSTROOM_TEST_QUEUE";

/// A worker that is ready. It prints the lines that the one in Node does.
pub(crate) async fn start(address: SocketAddr, queue: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker_process::works", "--nocapture"]);
    let process = Process::spawn(command.env(ADDRESS, address.to_string()).env(QUEUE, queue));
    process.wait_for_line("ready", LONG).await;
    process
}

/// Not a test but the process itself; as a test it does nothing.
#[tokio::test]
async fn works() {
    let (Ok(address), Ok(name)) = (std::env::var(ADDRESS), std::env::var(QUEUE)) else { return };
    let queue = Queue::open(&redis(address.parse().unwrap()), &name).unwrap();
    let worker = Worker::new(&queue, quick(), Arc::new(Printing));
    let mut health = worker.health();
    tokio::spawn(async move {
        health.wait_for(|health| *health == Health::Up).await.unwrap();
        println!("ready");
    });
    worker.run(std::future::pending()).await;
}

#[derive(Debug)]
struct Printing;

#[async_trait]
impl Processor for Printing {
    async fn process(&self, job: Job) -> Result<(), JobFailure> {
        println!("started {} {} {}", job.id(), job.name(), job.data());
        match job.name() {
            "hang" => std::future::pending().await,
            "slow" => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => {}
        }
        println!("completed {}", job.id());
        Ok(())
    }
}
