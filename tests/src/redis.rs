//! Real Redis servers for tests: started on a free port, killed when dropped or when the test process ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::programs::program;

const START: Duration = Duration::from_secs(10);

/// How a server is started. Everything it acknowledges is on disk, unless told otherwise.
#[derive(Debug, Clone, Default)]
pub struct Options {
    password: Option<String>,
    tls: Option<Certificates>,
    more: Vec<String>,
}

impl Options {
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.with("requirepass", password)
    }

    /// Any line of a redis.conf.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.more.push(format!("{name} {value}"));
        self
    }

    /// Nothing on disk: for suites that ask what a server decides, not what it keeps.
    #[must_use]
    pub fn volatile(self) -> Self {
        self.with("appendonly", "no")
    }

    /// Serves TLS only.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    pub fn start(self) -> Result<RedisServer> {
        RedisServer::start(self)
    }
}

pub struct RedisServer {
    options: Options,
    dir: TempDir,
    port: u16,
    process: Option<Process>,
}

struct Process {
    server: Child,
    /// Ends the server when this process does, however it ends: its input closes.
    watchdog: Child,
    _leash: ChildStdin,
}

impl RedisServer {
    pub fn start(options: Options) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("holdfast-redis-").tempdir()?;
        // Somebody may take a free port before the server does: try another.
        let mut server = Self { options, dir, port: 0, process: None };
        for _ in 0..5 {
            server.port = free_port()?;
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(error) if error.to_string().contains("exited") => {}
                Err(error) => return Err(error),
            }
        }
        bail!("redis-server does not start: {}", server.log());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Without credentials.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}/0", self.port)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.server.id())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.server.kill();
            let _ = process.server.wait();
            let _ = process.watchdog.kill();
            let _ = process.watchdog.wait();
        }
    }

    /// Starts again on the same port and the same data, and waits until the data is loaded.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.launch()
    }

    /// Like `restart`, but does not wait for the data.
    pub fn restart_without_waiting(&mut self) -> Result<()> {
        self.kill();
        self.spawn()?;
        self.wait(|answer| !answer.is_empty())
    }

    /// Stops the world for the server; connections stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("no server is running")?.to_string();
        ensure!(Command::new("kill").args([&format!("-{name}"), &pid]).status()?.success());
        Ok(())
    }

    /// One command over a connection of its own; the answer as Redis writes it. Plain connections only.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        command(self.port, self.options.password.as_deref(), words)
    }

    /// A figure of `INFO`.
    pub fn info(&self, field: &str) -> Result<u64> {
        let info = self.command(&["INFO", "everything"])?;
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.with_context(|| format!("INFO has no {field}"))?.trim().parse().context("a number")
    }

    fn launch(&mut self) -> Result<()> {
        self.spawn()?;
        if self.options.tls.is_some() {
            return self.wait_for_port();
        }
        self.wait(|answer| !answer.starts_with("-LOADING") && !answer.is_empty())
    }

    fn spawn(&mut self) -> Result<()> {
        let dir = self.dir.path();
        let port = self.port;
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", dir.display()),
            "appendonly yes".to_owned(),
            "appendfsync always".to_owned(),
            "save \"\"".to_owned(),
            "logfile redis.log".to_owned(),
            "cluster-config-file nodes.conf".to_owned(),
            "enable-debug-command yes".to_owned(),
        ];
        match &self.options.tls {
            Some(certificates) => lines.extend([
                "port 0".to_owned(),
                format!("tls-port {port}"),
                "tls-auth-clients no".to_owned(),
                format!("tls-cert-file {}", certificates.file("server.crt").display()),
                format!("tls-key-file {}", certificates.file("server.key").display()),
                format!("tls-ca-cert-file {}", certificates.file("ca.crt").display()),
            ]),
            None => lines.push(format!("port {port}")),
        }
        lines.extend(self.options.more.iter().cloned());
        let config = dir.join("redis.conf");
        fs::write(&config, lines.join("\n"))?;
        let redis_server = program("redis-server")?;
        let server = Command::new(&redis_server)
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                format!("{} cannot be started; set HOLDFAST_REDIS_SERVER", redis_server.display())
            })?;
        let mut watchdog = Command::new("sh")
            .args(["-c", &format!("cat >/dev/null; kill -9 {} 2>/dev/null", server.id())])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let leash = watchdog.stdin.take().context("the watchdog's input")?;
        self.process = Some(Process { server, watchdog, _leash: leash });
        Ok(())
    }

    fn wait(&mut self, ready: impl Fn(&str) -> bool) -> Result<()> {
        self.wait_until(|server| {
            command(server.port, server.options.password.as_deref(), &["PING"])
                .is_ok_and(|answer| ready(&answer))
        })
    }

    fn wait_for_port(&mut self) -> Result<()> {
        self.wait_until(|server| TcpStream::connect(("127.0.0.1", server.port)).is_ok())
    }

    fn wait_until(&mut self, ready: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if let Some(process) = &mut self.process
                && let Some(status) = process.server.try_wait()?
            {
                bail!("redis-server exited with {status}: {}", self.log());
            }
            if ready(self) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("redis-server is not ready after {START:?}: {}", self.log());
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("redis.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three nodes that share the 16 384 hash slots.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub fn start() -> Result<Self> {
        let options =
            Options::default().volatile().with("cluster-enabled", "yes").with("cluster-node-timeout", "2000");
        let nodes = (0..3).map(|_| options.clone().start()).collect::<Result<Vec<_>>>()?;
        for (index, node) in nodes.iter().enumerate() {
            let (first, last) = Self::slots(index);
            let (first, last) = (first.to_string(), last.to_string());
            expect_ok(&node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?)?;
            let epoch = (index + 1).to_string();
            expect_ok(&node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?)?;
        }
        for node in &nodes[1..] {
            let port = node.port().to_string();
            expect_ok(&nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port])?)?;
        }
        let deadline = Instant::now() + START;
        let agreed = |node: &RedisServer| {
            let info = node.command(&["CLUSTER", "INFO"]).unwrap_or_default();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        while !nodes.iter().all(agreed) {
            ensure!(Instant::now() < deadline, "the cluster does not come together");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { nodes })
    }

    /// The first and last hash slot of a node.
    fn slots(index: usize) -> (usize, usize) {
        let third = 16_384 / 3;
        (index * third, if index == 2 { 16_383 } else { (index + 1) * third - 1 })
    }

    /// Which node has a key.
    pub fn node_of(key: &str) -> usize {
        let slot = hash_slot(key);
        (0..3).find(|index| Self::slots(*index).1 >= slot).unwrap_or(2)
    }
}

/// CRC-16 (XMODEM) of the hash tag, or of the whole key where there is none.
fn hash_slot(key: &str) -> usize {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key);
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    usize::from(crc) % 16_384
}

fn free_port() -> Result<u16> {
    // A cluster node also listens ten thousand above.
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if port < 55_000 {
            return Ok(port);
        }
    }
}

fn expect_ok(answer: &str) -> Result<()> {
    ensure!(answer.starts_with("+OK"), "Redis said {answer:?}");
    Ok(())
}

fn command(port: u16, password: Option<&str>, words: &[&str]) -> Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let mut ask = |words: &[&str]| -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        reader.get_mut().write_all(request.as_bytes())?;
        answer(&mut reader)
    };
    if let Some(password) = password {
        let said = ask(&["AUTH", password])?;
        if !said.starts_with("+OK") {
            return Ok(said);
        }
    }
    ask(words)
}

/// Simple answers with their first letter, bulk strings bare, arrays a line an element.
fn answer(reader: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let length = || line[1..].parse::<i64>().context("a length");
    match line.chars().next() {
        Some('$') => {
            let Ok(length) = usize::try_from(length()?) else { return Ok(String::new()) };
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
        }
        Some('*') => {
            let elements = (0..length()?).map(|_| answer(reader)).collect::<Result<Vec<_>>>()?;
            Ok(elements.join("\n"))
        }
        Some(_) => Ok(line.to_owned()),
        None => bail!("Redis closed the connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_slots_are_those_of_redis() {
        for (key, slot) in [("foo", 12_182), ("{foo}.bar", 12_182), ("123456789", 12_739)] {
            assert_eq!(hash_slot(key), slot, "{key}");
        }
    }
}
