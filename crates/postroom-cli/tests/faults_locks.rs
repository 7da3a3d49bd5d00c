//! Commands that wait for a lock: they say so within a limit, and Ctrl-C ends them at once.

use crate::faults_database::proxied;
use crate::faults_outbox::{Outbox, SOON, wait_until_ready};
use postroom_core::MessageId;
use postroom_store::postgres::locks;
use postroom_testkit::{Passage, Process, Signal, eventually};
use std::time::{Duration, Instant};

/// What ends at once has ended by then, on a loaded machine too: a command has a second for the batch
/// it is at, and no wait for a lock or a connection is as short.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A SENT message of an outbox whose relay is idle and listens.
async fn sent_by_an_idle_relay(outbox: &Outbox) -> (Process, MessageId) {
    let relay = outbox.relay("", "[integrations.noop]");
    let id = &outbox.enqueue("noop", 1).await[0];
    outbox.wait_for(id, "SENT").await;
    wait_until_ready(&relay, true).await;
    (relay, id.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_a_replay_returns_while_an_idle_relay_listens() {
    let outbox = Outbox::postgres().await;
    let (relay, id) = sent_by_an_idle_relay(&outbox).await;
    let client = outbox.client().await;
    eventually("the relay to listen", SOON, async || {
        let held =
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'";
        let held: i64 = client.query_one(held, &[]).await.unwrap().get(0);
        (held > 0).then_some(())
    })
    .await;
    let mut replay = start(&outbox, &["messages", "replay", &id.to_string()]);
    assert_eq!(replay.wait(SOON).await.code(), Some(0), "{}", replay.stderr());
    drop(relay);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_a_replay_that_waits_for_another_one_says_so_within_its_limit() {
    let outbox = Outbox::postgres().await;
    let (_relay, id) = sent_by_an_idle_relay(&outbox).await;
    let client = outbox.client().await;
    let lock = format!("SELECT pg_advisory_lock({})", locks::REPLAY);
    client.query_one(&lock, &[]).await.unwrap();
    let mut replay = start(&outbox, &["messages", "replay", &id.to_string()]);
    assert_eq!(replay.wait(SOON).await.code(), Some(1), "{}", replay.stderr());
    let said = replay.stderr();
    for part in ["another `postroom messages replay`", "Wait for it to finish, then run this again"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_ctrl_c_ends_a_command_that_waits_for_a_lock_on_postgres() {
    let outbox = Outbox::postgres().await;
    let (_relay, id) = sent_by_an_idle_relay(&outbox).await;
    let client = outbox.client().await;
    let lock = format!("SELECT pg_advisory_lock({})", locks::REPLAY);
    client.query_one(&lock, &[]).await.unwrap();
    for args in [["messages", "replay", &id.to_string()], ["messages", "replay", "--all"]] {
        let mut replay = start(&outbox, &args);
        outbox.wait_until_blocked().await;
        assert_ends_at_once(&mut replay).await;
        eventually("the statement to end", SOON, async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                           AND datname = current_database()";
            let waiting: i64 = client.query_one(waiting, &[]).await.unwrap().get(0);
            (waiting == 0).then_some(())
        })
        .await;
    }
    let counts = outbox.store.status_counts().await.unwrap();
    assert_eq!(counts.counts, [("SENT".to_owned(), 1)], "nothing was replayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_an_operation_on_a_locked_message_says_so_within_its_limit_on_every_database() {
    for outbox in [Outbox::postgres().await, Outbox::mariadb().await, Outbox::sqlite().await] {
        let id = &outbox.enqueue("noop", 1).await[0];
        let blocked = outbox.block_completion(id).await;
        let mut cancel = start(&outbox, &["messages", "cancel", &id.to_string()]);
        assert_eq!(cancel.wait(SOON).await.code(), Some(1), "{}", cancel.stderr());
        let said = cancel.stderr();
        assert!(
            said.to_lowercase().contains("wait for it to finish, then run this again"),
            "{said}"
        );

        let mut cancel = start(&outbox, &["messages", "cancel", "--all"]);
        wait_until_at_work(&outbox, &cancel).await;
        assert_ends_at_once(&mut cancel).await;
        blocked.end().await;
        let cancelled = start(&outbox, &["messages", "cancel", &id.to_string()]).wait(SOON).await;
        // What was under way when it was interrupted may have been done since.
        assert!(matches!(cancelled.code(), Some(0 | 1)));
        outbox.wait_for(id, "DEAD").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_a_migration_that_waits_for_another_one_says_so_and_ctrl_c_ends_it() {
    let outbox = Outbox::postgres().await;
    let client = outbox.client().await;
    let lock = format!("SELECT pg_advisory_lock({})", locks::MIGRATION);
    client.query_one(&lock, &[]).await.unwrap();
    let mut migrate = start(&outbox, &["migrate"]);
    let said = migrate.wait_for_line("another `postroom migrate` is running", SOON).await;
    assert!(said.contains("of PostgreSQL"), "{said}");
    assert_ends_at_once(&mut migrate).await;

    let outbox = Outbox::mariadb().await;
    let mut connection = outbox.mariadb_connection().await;
    let lock = "SELECT GET_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40)), 0)";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    let mut migrate = start(&outbox, &["migrate"]);
    eventually("the migration to wait", SOON, async || {
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                       WHERE DB = DATABASE() AND STATE = 'User lock'";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut connection).await.unwrap();
        (waiting > 0).then_some(())
    })
    .await;
    assert_ends_at_once(&mut migrate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_55_ctrl_c_ends_a_command_whose_server_never_greets() {
    for outbox in [Outbox::postgres().await, Outbox::mariadb().await] {
        let (proxy, url) = proxied(&outbox);
        proxy.set(Passage::Silent);
        for args in [&["stats"][..], &["migrate"], &["messages", "list"], &["messages", "watch"]] {
            let before = proxy.connections();
            let mut command = outbox.folder().start(&[args, &["--database", &url]].concat());
            eventually("a connection attempt", SOON, async || {
                (proxy.connections() > before).then_some(())
            })
            .await;
            if args.contains(&"watch") {
                // It goes on until somebody ends it, so that is no failure.
                assert_eq!(end_at_once(&mut command).await, Some(0), "{}", command.stderr());
            } else {
                assert_ends_at_once(&mut command).await;
            }
        }
        let mut stats = outbox.folder().start(&["stats", "--database", &url]);
        assert_eq!(stats.wait(SOON).await.code(), Some(1), "a limit of its own");
        assert!(stats.stderr().contains("answer"), "{}", stats.stderr());
    }
}

fn start(outbox: &Outbox, args: &[&str]) -> Process {
    let url = outbox.url();
    outbox.folder().start(&[args, &["--database", &url]].concat())
}

/// Waits until a command waits for a lock, or has opened the file that cannot be written now.
async fn wait_until_at_work(outbox: &Outbox, command: &Process) {
    if !outbox.url().starts_with("sqlite") {
        return outbox.wait_until_blocked().await;
    }
    let files = format!("/proc/{}/fd", command.id());
    eventually("the command to be at work", SOON, async || {
        let mut open = std::fs::read_dir(&files).ok()?.flatten();
        open.any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.ends_with("outbox.db")))
            .then_some(())
    })
    .await;
}

/// Ctrl-C, and what a shell sees of a program that it ended.
async fn assert_ends_at_once(command: &mut Process) {
    assert_eq!(end_at_once(command).await, Some(130), "{}", command.stderr());
    assert!(command.stderr().contains("interrupted"), "{}", command.stderr());
}

/// Ctrl-C; the exit code.
async fn end_at_once(command: &mut Process) -> Option<i32> {
    let began = Instant::now();
    command.signal(Signal::SIGINT);
    let status = command.wait(SOON).await;
    assert!(began.elapsed() < AT_ONCE, "after {:?}", began.elapsed());
    status.code()
}
