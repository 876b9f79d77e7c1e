//! Sidecar processes: started from the built binary, reached over HTTP, ended by signals like any pod's.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};

use crate::http::Http;

/// A replica, on one machine with nothing else to wait for, is ready well within this.
const READY: Duration = Duration::from_secs(20);

/// `HOLDFAST_SIDECAR`, or the one built beside this program, if it was built from the sources as they are.
pub fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("HOLDFAST_SIDECAR") {
        return Ok(program.into());
    }
    // target/<profile>/<program> or target/<profile>/deps/<test> → target/<profile>/holdfast-sidecar
    let own = std::env::current_exe()?;
    let mut built = own.ancestors().skip(1).take(2).map(|folder| folder.join("holdfast-sidecar"));
    let built =
        built.find(|program| program.is_file()).with_context(|| format!("holdfast-sidecar {REMEDY}"))?;
    // A suite that is run alone builds no program, and would judge whichever was built last.
    let age = std::fs::metadata(&built)?.modified()?;
    for sources in ["sidecar/src", "crds/src"] {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(sources);
        if let Some(newer) = newer_than(age, &sources)? {
            bail!("{} {REMEDY}: {} is newer than it", built.display(), newer.display());
        }
    }
    Ok(built)
}

const REMEDY: &str = "is not built from these sources; run `cargo test --workspace --no-run` first, or `cargo build -p holdfast-sidecar \
                      --features failpoints,mutants`, or name another by HOLDFAST_SIDECAR";

/// A file in `folder`, which may not be there, that was changed after `age`.
fn newer_than(age: SystemTime, folder: &Path) -> Result<Option<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(None) };
    for entry in entries {
        let entry = entry?;
        let (path, metadata) = (entry.path(), entry.metadata()?);
        if metadata.is_dir() {
            if let Some(newer) = newer_than(age, &path)? {
                return Ok(Some(newer));
            }
        } else if metadata.modified()? > age {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

pub struct Replica {
    pub name: String,
    pub url: String,
    pub admin: String,
    log: PathBuf,
    child: Child,
}

impl Replica {
    /// Starts one on free ports and waits until it is ready. Its log goes to `folder`.
    pub async fn start(folder: &Path, name: &str, manifest: &Path, env: &[(&str, &str)]) -> Result<Self> {
        let mut replica = Self::spawn(folder, name, manifest, env)?;
        let started = Instant::now();
        let http = Http::default();
        while !http.get(&format!("{}/readyz", replica.admin)).await.is_ok_and(|answer| answer.status == 200) {
            if let Some(status) = replica.child.try_wait()? {
                bail!("{name} ended before it was ready ({status}):\n{}", replica.log_tail());
            }
            if started.elapsed() > READY {
                bail!("{name} is not ready within {} s:\n{}", READY.as_secs(), replica.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(replica)
    }

    /// Starts one and does not wait.
    pub fn spawn(folder: &Path, name: &str, manifest: &Path, env: &[(&str, &str)]) -> Result<Self> {
        Self::spawn_by(Command::new(program()?), folder, name, manifest, env)
    }

    /// Starts one by a command that ends with the program.
    pub fn spawn_by(
        mut command: Command,
        folder: &Path,
        name: &str,
        manifest: &Path,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let (port, admin) = (free_port()?, free_port()?);
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .arg("run")
            .arg(manifest)
            .args(["--listen", &format!("127.0.0.1:{port}"), "--admin-listen", &format!("127.0.0.1:{admin}")])
            .args(["--replica", name, "--log-format", "json"])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("holdfast-sidecar does not start")?;
        let url = format!("http://127.0.0.1:{port}");
        Ok(Self { name: name.to_owned(), url, admin: format!("http://127.0.0.1:{admin}"), log, child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status()?;
        if !sent.success() {
            bail!("SIG{name} did not reach {}", self.name);
        }
        Ok(())
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for its end.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > within {
                bail!("{} did not end within {} s:\n{}", self.name, within.as_secs(), self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // A paused process cannot die.
        let _ = self.signal("CONT");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
