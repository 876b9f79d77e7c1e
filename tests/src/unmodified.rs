//! Other people's software, as they publish it: installed once into the cache, pinned, and run as they say.
//!
//! Where it cannot be had (no Python, no npm, no network) a test says so and is skipped.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Where what is installed is kept.
fn cache() -> anyhow::Result<PathBuf> {
    let chosen = std::env::var_os("HOLDFAST_CACHE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/holdfast"));
    let folder = chosen.or(home).context("neither HOLDFAST_CACHE nor HOME is set")?.join("interop");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Runs `install` for `folder` unless it has been done, one process at a time.
fn once(folder: &Path, install: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock()?;
    let done = folder.join("installed");
    if !done.exists() {
        install()?;
        File::create(done)?;
    }
    Ok(())
}

fn run(program: &mut Command) -> anyhow::Result<()> {
    let output =
        program.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program:?} failed: {}", said.lines().last().unwrap_or_default());
    Ok(())
}

/// A Python with `requirement` in it, for example `mcp==1.30.0`.
pub fn python(requirement: &str) -> anyhow::Result<PathBuf> {
    let folder = cache()?.join(requirement.replace("==", "-"));
    let python = folder.join("bin/python");
    once(&folder, || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        run(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            requirement,
        ]))
    })?;
    Ok(python)
}

/// The folder of an npm package, for example `@copilotkit/aimock` at `1.43.0`.
pub fn npm(package: &str, version: &str) -> anyhow::Result<PathBuf> {
    let folder = cache()?.join(format!("{}-{version}", package.rsplit('/').next().unwrap_or(package)));
    once(&folder, || {
        std::fs::create_dir_all(&folder)?;
        let npm = &mut Command::new("npm");
        run(npm
            .args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"])
            .arg(&folder)
            .arg(format!("{package}@{version}")))
    })?;
    Ok(folder.join("node_modules").join(package))
}

/// Says on the terminal why a test proves nothing here. To be used as `let Some(x) = or_skip(…) else { return };`.
pub fn or_skip<T>(found: anyhow::Result<T>) -> Option<T> {
    found.map_err(|why| eprintln!("SKIPPED: this needs software that cannot be had here: {why:#}")).ok()
}

/// A server that ends with the test.
pub struct Server {
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts what `command` makes of a free port, and waits until it listens.
    pub async fn start(command: impl FnOnce(u16) -> Command) -> anyhow::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let child = command(port).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { address, child };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            ensure!(server.child.try_wait()?.is_none(), "the server ended before it listened");
            ensure!(Instant::now() < deadline, "the server does not listen after 30 s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
