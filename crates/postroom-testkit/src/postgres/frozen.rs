//! A server that is stopped in the middle of everything, as by a hypervisor.

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

/// A frozen server. It goes on when this is dropped.
#[derive(Debug)]
pub struct Frozen {
    processes: Vec<i32>,
}

impl Frozen {
    /// Stops the server's main process, so that no new one begins, and then all that it has begun.
    pub(super) fn freeze(main: i32) -> anyhow::Result<Self> {
        let mut frozen = Self { processes: Vec::new() };
        frozen.stop(main)?;
        for child in children(main)? {
            // One may have ended by itself.
            let _ = frozen.stop(child);
        }
        Ok(frozen)
    }

    fn stop(&mut self, process: i32) -> anyhow::Result<()> {
        kill(Pid::from_raw(process), Signal::SIGSTOP)
            .context("stopping a process of PostgreSQL")?;
        self.processes.push(process);
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in self.processes.iter().rev() {
            let _ = kill(Pid::from_raw(*process), Signal::SIGCONT);
        }
    }
}

fn children(parent: i32) -> anyhow::Result<Vec<i32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        // It may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // After the name, which may hold anything: state, parent.
        let of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if of == Some(&parent.to_string()) {
            children.push(process);
        }
    }
    Ok(children)
}
