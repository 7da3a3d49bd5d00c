//! Programs under test: read, paused, killed.

use postroom_testkit::{Process, Signal};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Process {
    Process::spawn(Command::new("sh").args(["-c", script]))
}

#[tokio::test]
async fn output_is_waited_for_by_line_on_both_streams() {
    let mut process = shell("echo ready on stdout; echo warned on stderr >&2; echo last");
    assert_eq!(process.wait_for_line("ready", DEADLINE).await, "ready on stdout");
    assert_eq!(process.wait_for_line("warned", DEADLINE).await, "warned on stderr");
    assert!(process.wait(DEADLINE).await.success());
    assert_eq!(process.stdout(), "ready on stdout\nlast");
    assert_eq!(process.stderr(), "warned on stderr");
}

#[tokio::test]
async fn a_program_does_not_take_the_database_of_the_tests_for_its_own() {
    let script = "echo url=$DATABASE_URL";
    let mut command = Command::new("sh");
    let mut process = Process::spawn(command.args(["-c", script]));
    assert!(process.wait(DEADLINE).await.success());
    assert_eq!(process.stdout(), "url=");
    let is_hidden = command.get_envs().any(|variable| variable == ("DATABASE_URL".as_ref(), None));
    assert!(is_hidden, "also where this process has none");
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("DATABASE_URL", "sqlite://own.db");
    let mut process = Process::spawn(&mut command);
    assert!(process.wait(DEADLINE).await.success());
    assert_eq!(process.stdout(), "url=sqlite://own.db");
}

#[tokio::test]
async fn a_kill_leaves_no_time_to_clean_up() {
    let mut process = shell("trap 'echo goodbye' EXIT TERM; echo up; while :; do sleep 0.1; done");
    process.wait_for_line("up", DEADLINE).await;
    let status = process.kill9();
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    assert!(!process.stdout().contains("goodbye"));
}

#[tokio::test]
async fn a_paused_process_goes_on_and_ends_by_its_own_handler() {
    let mut process = shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
    process.wait_for_line("up", DEADLINE).await;
    process.signal(Signal::SIGSTOP);
    process.signal(Signal::SIGTERM);
    assert!(!process.stdout().contains("bye"));
    process.signal(Signal::SIGCONT);
    assert_eq!(process.wait(DEADLINE).await.code(), Some(3));
    assert!(process.stdout().contains("bye"));
}

#[tokio::test]
#[should_panic(expected = "got this instead")]
async fn waiting_in_vain_shows_what_was_written() {
    let process = shell("echo got this instead; exec sleep 30");
    process.wait_for_line("got this", DEADLINE).await;
    process.wait_for_line("never", Duration::from_millis(20)).await;
}
