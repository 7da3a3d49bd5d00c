//! A private PostgreSQL server that cannot outlive its owner.
//!
//! A small shell script, the guard, starts the server and reads from a pipe whose other end this
//! process holds. When this process ends, even by SIGKILL, the pipe closes, and the guard stops
//! the server and removes its folder.

use super::binaries::find_postgres;
use anyhow::{Context as _, bail, ensure};
use nix::unistd::{Uid, User};
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Ends when the server does. The word `keep` stops the server and leaves the folder; a closed
/// pipe stops it and removes the folder.
const GUARD: &str = r#"
folder=$1; shift
exec 3<&0
"$@" </dev/null >>"$folder/log" 2>&1 3<&- &
server=$!
(
    read -r word <&3
    kill -QUIT "$server"
    if [ "$word" != keep ]; then
        while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
        cd / && rm -rf "$folder"
    fi
) >/dev/null 2>&1 &
wait "$server"
"#;

/// What every private server gets: durability that a test does not need is off, and limits are
/// wide enough for many tests at once.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("wal_level", "logical"),
    ("max_connections", "200"),
    ("timezone", "UTC"),
];

#[derive(Debug)]
pub(super) struct Server {
    binaries: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    /// `None` while stopped.
    guard: Mutex<Option<Child>>,
}

impl Server {
    /// Makes a data folder below `parent` and starts a server on it.
    pub(super) fn create(
        parent: &Path,
        settings: &[(String, String)],
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let binaries = find_postgres()?;
        let account = account()?;
        let folder = tempfile::Builder::new()
            .prefix("postroom-postgres-")
            .tempdir_in(parent)
            .context("a temporary folder for PostgreSQL")?;
        if let Some(user) = &account {
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .context("handing the temporary folder to the user postgres")?;
        }
        init(&binaries, folder.path(), account.as_ref())?;
        let mut server = Self {
            binaries,
            folder: folder.keep(),
            port: 0,
            settings: settings.to_vec(),
            guard: Mutex::new(None),
        };
        // Someone else can take the port between our look and the server's start: look again.
        let mut tries = 0;
        loop {
            tries += 1;
            server.port = free_port()?;
            match server.start(limit) {
                Ok(()) => return Ok(server),
                Err(_) if tries < 5 && server.port_was_taken() => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts the server and returns once it accepts connections.
    pub(super) fn start(&self, limit: Duration) -> anyhow::Result<()> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(guard.is_none(), "this PostgreSQL server is running already");
        let mut child = self.spawn_guard()?;
        let deadline = Instant::now() + limit;
        while !self.accepts_connections() {
            if let Some(status) = child.try_wait().context("waiting for PostgreSQL")? {
                end(child)?;
                bail!("PostgreSQL ended at its start ({status}); its log ends\n{}", self.log_end());
            }
            if Instant::now() > deadline {
                end(child)?;
                bail!("PostgreSQL did not start within {limit:?}; its log\n{}", self.log_end());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        *guard = Some(child);
        Ok(())
    }

    /// Stops the server as a crash would, and returns once it has ended.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        guard.map_or(Ok(()), end)
    }

    fn spawn_guard(&self) -> anyhow::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "postroom-guard"]).arg(&self.folder);
        command.arg(self.binaries.join("postgres"));
        command.arg("-D").arg(data(&self.folder)).arg("-p").arg(self.port.to_string());
        let defaults = SETTINGS.iter().copied();
        let extra = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.chain(extra) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        run_as(&mut command, account()?.as_ref());
        command
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the owner alone: the guard acts once that has ended.
            .process_group(0)
            .spawn()
            .context("starting the shell that guards PostgreSQL")
    }

    /// By the server's own status file: a connection could reach someone else's server.
    fn accepts_connections(&self) -> bool {
        let status = fs::read_to_string(data(&self.folder).join("postmaster.pid"));
        status.is_ok_and(|text| text.lines().nth(7).is_some_and(|line| line.trim() == "ready"))
    }

    fn port_was_taken(&self) -> bool {
        self.log_end().contains("Address already in use")
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Best effort: if this fails, the guard does it when the process ends.
        if self.stop().is_ok() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn end(mut guard: Child) -> anyhow::Result<()> {
    if let Some(mut pipe) = guard.stdin.take() {
        // The pipe is broken when the server ended by itself; then there is nothing to say.
        let _ = pipe.write_all(b"keep\n");
    }
    guard.wait().context("waiting for PostgreSQL to end")?;
    Ok(())
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Whom the server must run as: PostgreSQL refuses root.
fn account() -> anyhow::Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres").context("looking up the user postgres")?;
    let user = user.context(
        "PostgreSQL refuses to run as root and there is no user postgres: create one, or run the \
         tests as another user",
    )?;
    Ok(Some(user))
}

fn run_as(command: &mut Command, account: Option<&User>) {
    if let Some(user) = account {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
}

fn init(binaries: &Path, folder: &Path, account: Option<&User>) -> anyhow::Result<()> {
    let mut command = Command::new(binaries.join("initdb"));
    command
        .args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D"])
        .arg(data(folder))
        .current_dir(folder)
        .stdin(Stdio::null());
    run_as(&mut command, account);
    let output = command
        .output()
        .with_context(|| format!("running {}", binaries.join("initdb").display()))?;
    ensure!(
        output.status.success(),
        "initdb failed ({}) in {}; the user that runs it needs access to every folder above\n{}",
        output.status,
        folder.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
