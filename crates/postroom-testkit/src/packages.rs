//! Packages of other languages, installed by name and version once and kept, so that tests can
//! hear what others' code makes of ours.

use crate::cache_folder;
use crate::programs::{find_program, system_python};
use crate::skip::NotInstalled;
use anyhow::{Context as _, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter of a Python environment with these packages, such as `standardwebhooks==1.1.0`.
///
/// # Errors
/// When it cannot be made, for a skip.
pub fn python_with(packages: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = installed("python", packages, |folder| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(folder.join("bin/python")).args(pip).args(packages))
    })?;
    Ok(folder.join("bin/python"))
}

/// A folder whose `node_modules` has these packages, such as `standardwebhooks@1.1.1`.
///
/// # Errors
/// When it cannot be made, for a skip.
pub fn node_with(packages: &[&str]) -> anyhow::Result<PathBuf> {
    ensure_node()?;
    installed("node", packages, |folder| {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).context("a folder for packages")?;
        let npm = ["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
        run(Command::new("npm").args(npm).arg(folder).args(packages))
    })
}

/// A folder whose `node_modules` has exactly what a lock file says. `name` and the versions in
/// it tell one set from another.
///
/// # Errors
/// When it cannot be made, for a skip.
pub(crate) fn node_locked(name: &[&str], manifest: &str, lock: &str) -> anyhow::Result<PathBuf> {
    ensure_node()?;
    installed("node", name, |folder| {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).context("a folder for packages")?;
        fs::write(folder.join("package.json"), manifest).context("package.json")?;
        fs::write(folder.join("package-lock.json"), lock).context("package-lock.json")?;
        // Not `npm ci`: it wants the optional packages of every other platform in the lock file.
        // What is there, this takes from it just the same.
        let npm = ["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
        run(Command::new("npm").args(npm).arg(folder))
    })
}

fn ensure_node() -> anyhow::Result<()> {
    let asked = Command::new("node").arg("--version").output();
    ensure!(asked.is_ok_and(|answer| answer.status.success()), "there is no node");
    Ok(())
}

/// A folder with these artifacts of Maven Central, such as `org.slf4j:slf4j-simple:1.7.36`, and all
/// that they need.
///
/// # Errors
/// When it cannot be made, for a skip.
pub(crate) fn jars_of(artifacts: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = installed("java", artifacts, |folder| {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).context("a folder for packages")?;
        let mut project = "<project><modelVersion>4.0.0</modelVersion><groupId>postroom</groupId>\
                           <artifactId>jars</artifactId><version>1</version><dependencies>"
            .to_owned();
        for artifact in artifacts {
            let mut parts = artifact.split(':');
            let mut part = || parts.next().unwrap_or_default();
            project.push_str(&format!(
                "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>\
                 <version>{}</version></dependency>",
                part(),
                part(),
                part()
            ));
        }
        project.push_str("</dependencies></project>");
        fs::write(folder.join("pom.xml"), project).context("a project for Maven")?;
        let maven = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"];
        let libraries = "-DoutputDirectory=libraries";
        run(Command::new("mvn").args(maven).arg(libraries).current_dir(folder))
    })?;
    Ok(folder.join("libraries"))
}

/// Unpacks a compressed tar file, which an artifact of Maven Central consists of, into `folder`.
///
/// # Errors
/// When it cannot be had, for a skip.
pub(crate) fn unpack_artifact(artifact: &str, archive: &str, folder: &Path) -> anyhow::Result<()> {
    find_program("mvn", "maven")?;
    let cached = installed("artifact", &[artifact], |folder| {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).context("a folder for packages")?;
        let copy = ["-q", "-B", "dependency:copy", "-DoutputDirectory=."];
        let artifact = format!("-Dartifact={artifact}");
        run(Command::new("mvn").args(copy).arg(artifact).current_dir(folder))
    })?;
    let is_jar = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jar");
    let files = fs::read_dir(&cached).context("the folder of an artifact")?;
    let jar = files.flatten().map(|file| file.path()).find(is_jar).context("it holds no jar")?;
    run(Command::new(system_python()).args(["-c", UNPACK]).arg(jar).arg(archive).arg(folder))
}

const UNPACK: &str = "\
import sys, tarfile, zipfile
jar, archive, folder = sys.argv[1:]
with zipfile.ZipFile(jar) as jar, jar.open(archive) as packed:
    with tarfile.open(fileobj=packed, mode='r|*') as files:
        files.extractall(folder)
";

/// The folder of a set of packages, filled by `install` unless it was before.
fn installed(
    language: &str,
    packages: &[&str],
    install: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let cache = cache_folder().context("neither XDG_CACHE_HOME nor HOME is set")?;
    fs::create_dir_all(&cache).context("making the cache folder")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let name = format!("{language} {}", packages.join(" "));
    let name = name.replace(|c| !is_plain(c), "-");
    let folder = cache.join(&name);
    // Test processes may want the same at the same time.
    let lock = File::create(cache.join(format!("{name}.lock"))).context("a lock file")?;
    lock.lock().context("waiting for another test's installation")?;
    // Written last, so that it says that the folder is complete.
    let complete = folder.join(".complete");
    if !complete.exists() {
        install(&folder).map_err(|error| NotInstalled(format!("{error:#}")))?;
        fs::write(&complete, "").context("completing the folder")?;
    }
    Ok(folder)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{command:?} failed ({}): {last}", output.status);
    Ok(())
}
