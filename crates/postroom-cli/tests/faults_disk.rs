//! A disk that runs full: the relay backs off, stays alive, is not ready, and resumes.

use crate::faults_outbox::{Outbox, SHORT_CLAIMS, SOON, wait_until_ready, webhook};
use postroom_testkit::{Postgres, Receiver, eventually, skip};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_22_a_full_disk_makes_the_relay_wait_and_it_resumes() {
    let disk = match Disk::mount("200m") {
        Ok(disk) => disk,
        Err(why) => {
            return skip(
                "faults_disk::fault_22_a_full_disk_makes_the_relay_wait_and_it_resumes",
                &format!("a small file system needs the right to mount one: {why}"),
            );
        }
    };
    let small = [("max_wal_size", "64MB"), ("min_wal_size", "32MB"), ("wal_level", "replica")];
    let server = Postgres::private_in(disk.path(), &small).await.unwrap();
    let outbox = Outbox::on(&server).await;
    let receiver = Receiver::start();
    let mut relay = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    let first = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(first, "SENT").await;

    // Producers go on until there is no room for their rows, nor for the server's log.
    let ballast = disk.fill();
    let client = outbox.client().await;
    let bulk = "INSERT INTO core_outbox.integration_outbox \
         (source_stream_id, source_event_id, integration_type, event_type, payload) \
         SELECT 's', gen_random_uuid(), 'webhook:a', 't', to_jsonb(repeat('x', 500)) \
         FROM generate_series(1, 500)";
    let mut committed = 0;
    while client.execute(bulk, &[]).await.is_ok() {
        committed += 500;
    }
    let log = "SELECT pg_switch_wal(); SELECT pg_logical_emit_message(true, 'more', 'log')";
    while client.batch_execute(log).await.is_ok() {}
    wait_until_ready(&relay, false).await;
    relay.signal(postroom_testkit::Signal::SIGCONT); // Panics if it had ended.

    fs::remove_file(ballast).unwrap();
    // The server may have given up, as it does when it cannot write its log; then someone starts
    // it again.
    if tokio_postgres::connect(&outbox.url(), tokio_postgres::NoTls).await.is_err() {
        server.stop().await.unwrap();
        server.start().await.unwrap();
    }
    wait_until_ready(&relay, true).await;
    eventually("everything to be SENT", SOON, async || {
        let counts = outbox.store.status_counts().await.ok()?;
        let sent = counts.of(postroom_core::Status::Sent);
        (sent > committed && outbox.store.backlog().await.ok()?.lanes.is_empty()).then_some(())
    })
    .await;
}

/// A small file system of its own, unmounted with the value.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size},mode=0755"), "tmpfs"]);
        let output = command.arg(folder.path()).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no free byte, and returns the file that takes them.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = fs::File::create(&path).unwrap();
        for size in [1 << 20, 1 << 12] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: whoever still has a file open there keeps it until the end.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
