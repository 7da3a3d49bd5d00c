//! A private server that cannot outlive its owner.
//!
//! A small shell script, the guard, starts the server and reads from a pipe whose other end this
//! process holds. When this process ends, even by SIGKILL, the pipe closes, and the guard stops
//! the server and removes its folder.

use crate::skip::{NotInstalled, OrSkip as _};
use anyhow::{Context as _, bail, ensure};
use nix::unistd::{Uid, User};
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Ends when the server does. The word `keep` stops the server and leaves the folder; a closed
/// pipe stops it and removes the folder.
const GUARD: &str = r#"
folder=$1; signal=$2; shift 2
exec 3<&0
"$@" </dev/null >>"$folder/log" 2>&1 3<&- &
server=$!
(
    read -r word <&3
    kill -"$signal" "$server"
    if [ "$word" != keep ]; then
        while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
        cd / && rm -rf "$folder"
    fi
) >/dev/null 2>&1 &
wait "$server"
"#;

/// What kind of server it is.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name, for messages.
    pub(crate) name: &'static str,
    /// How its folder's name begins.
    pub(crate) prefix: &'static str,
    /// Whom it runs as when the tests run as root, which it refuses.
    pub(crate) user: &'static str,
    /// The signal that stops it as a crash would.
    pub(crate) crash: &'static str,
}

/// A server under guard, with a folder of its own.
#[derive(Debug)]
pub(crate) struct Guarded {
    kind: Kind,
    account: Option<User>,
    folder: PathBuf,
    /// `None` while stopped.
    guard: Mutex<Option<Child>>,
}

impl Guarded {
    /// Makes the folder, which belongs to whom the server runs as.
    pub(crate) fn new(kind: Kind) -> anyhow::Result<Self> {
        Self::new_in(&std::env::temp_dir(), kind)
    }

    /// The same, with the folder below `parent`.
    pub(crate) fn new_in(parent: &Path, kind: Kind) -> anyhow::Result<Self> {
        let account = account(&kind)?;
        let folder = tempfile::Builder::new()
            .prefix(kind.prefix)
            .tempdir_in(parent)
            .with_context(|| format!("a temporary folder for {}", kind.name))?;
        if let Some(user) = &account {
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .with_context(|| format!("handing a temporary folder to the user {}", kind.user))?;
        }
        Ok(Self { kind, account, folder: folder.keep(), guard: Mutex::new(None) })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a program that prepares the folder, as whom the server runs as.
    pub(crate) fn prepare(&self, command: &mut Command) -> anyhow::Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.confine(command);
        let output = command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {program}"))?;
        ensure!(
            output.status.success(),
            "{program} failed ({}) in {}; the user that runs it needs access to every folder \
             above\n{}{}",
            output.status,
            self.folder.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Starts the server by `command`, and returns once it is ready.
    pub(crate) fn start(
        &self,
        server: &Command,
        limit: Duration,
        is_ready: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let name = self.kind.name;
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(guard.is_none(), "this {name} server is running already");
        let mut child = self.spawn_guard(server)?;
        let deadline = Instant::now() + limit;
        while !is_ready() {
            if let Some(status) = child.try_wait().with_context(|| format!("waiting for {name}"))? {
                self.end(child)?;
                bail!("{name} ended at its start ({status}); its log ends\n{}", self.log_end());
            }
            if Instant::now() > deadline {
                self.end(child)?;
                bail!("{name} did not start within {limit:?}; its log\n{}", self.log_end());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        *guard = Some(child);
        Ok(())
    }

    /// Stops the server as a crash would, and returns once it has ended.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        guard.map_or(Ok(()), |guard| self.end(guard))
    }

    fn spawn_guard(&self, server: &Command) -> anyhow::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "postroom-guard"]).arg(&self.folder).arg(self.kind.crash);
        command.arg(server.get_program()).args(server.get_args());
        self.confine(&mut command);
        command
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the owner alone: the guard acts once that has ended.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting the shell that guards {}", self.kind.name))
    }

    /// Runs it as its own user, with temporary files of its own: MariaDB removes at its start
    /// whatever temporary tables it finds, and those could be another server's.
    fn confine(&self, command: &mut Command) {
        command.env("TMPDIR", &self.folder);
        if let Some(user) = &self.account {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }

    fn end(&self, mut guard: Child) -> anyhow::Result<()> {
        if let Some(mut pipe) = guard.stdin.take() {
            // The pipe is broken when the server ended by itself; then there is nothing to say.
            let _ = pipe.write_all(b"keep\n");
        }
        guard.wait().with_context(|| format!("waiting for {} to end", self.kind.name))?;
        Ok(())
    }

    pub(crate) fn log_end(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Best effort: if this fails, the guard does it when the process ends.
        if self.stop().is_ok() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn account(kind: &Kind) -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name(kind.user)
        .with_context(|| format!("looking up the user {}", kind.user))?
        .with_context(|| {
            format!(
                "{} refuses to run as root and there is no user {}: create one, or run the tests \
                 as another user",
                kind.name, kind.user
            )
        })?;
    Ok(Some(user))
}

/// A port of the loopback interface that nobody listens on at the moment.
///
/// # Errors
/// When there is none.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}

/// Starts something on a free port. Someone else can take the port between our look and the
/// server's start: then another one is tried.
pub(crate) fn on_free_port(
    mut start: impl FnMut(u16) -> anyhow::Result<()>,
    was_taken: impl Fn() -> bool,
) -> anyhow::Result<u16> {
    let mut tries = 0;
    loop {
        tries += 1;
        let port = free_port()?;
        match start(port) {
            Ok(()) => return Ok(port),
            Err(_) if tries < 5 && was_taken() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does what blocks on a thread where it may.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("a thread of the test kit panicked")?
}

/// A server that all tests of this process share, started at the first call.
///
/// # Panics
/// When it cannot be started: as a skip of this test where it is not installed.
pub(crate) async fn shared<T: Send + Sync>(
    server: &'static OnceLock<Result<T, NotStarted>>,
    start: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> &'static T {
    // `get_or_init` blocks while another test starts the server: not on an async thread.
    let started = || server.get_or_init(|| start().map_err(|error| NotStarted::of(&error)));
    let started = tokio::task::spawn_blocking(started).await.expect("starting a server panicked");
    started.as_ref().map_err(NotStarted::error).or_skip()
}

/// The same for a server that is hard to have: why there is none, for a skip of more than one test.
pub(crate) async fn shared_or_reason<T: Send + Sync>(
    server: &'static OnceLock<Result<T, String>>,
    start: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<&'static T, &'static str> {
    let started = || server.get_or_init(|| start().map_err(|error| format!("{error:#}")));
    let started = tokio::task::spawn_blocking(started).await.expect("starting a server panicked");
    started.as_ref().map_err(String::as_str)
}

/// Why a server did not start, for every test that asks for it.
#[derive(Debug)]
pub(crate) struct NotStarted {
    is_installed: bool,
    problem: String,
}

impl NotStarted {
    fn of(error: &anyhow::Error) -> Self {
        let is_installed = error.downcast_ref::<NotInstalled>().is_none();
        Self { is_installed, problem: format!("{error:#}") }
    }

    fn error(&self) -> anyhow::Error {
        let problem = self.problem.clone();
        if self.is_installed { anyhow::anyhow!(problem) } else { NotInstalled(problem).into() }
    }
}
