//! A replica that outgrows its memory limit is killed by the kernel: somebody uploads messages to it, one beside the other, none of which
//! is ever complete, so that nothing of them is admitted and no other replica inherits them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use holdfast_tests::cluster::stage::{self, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, eventually};
use serde_json::json;

/// Enough for the load, not for the uploads.
const LIMIT: &str = "48Mi";
/// Just under what a call may bring.
const UPLOAD: usize = 8_000_000;
/// The exit code of a process that ended by SIGKILL.
const KILLED: i32 = 137;

pub fn run(namespace: &Namespace) -> Result<String> {
    let resources = json!({"requests": {"cpu": "50m", "memory": LIMIT}, "limits": {"memory": LIMIT}});
    let stage = Stage::set(
        namespace,
        &json!({"podTemplate": {"resources": resources}, "stateStore": {"cacheSize": "4Mi"}}),
    )?;
    let ran = stage.under_load(Talk { sessions: 24, long: true, leave: true, files: false }, || {
        let pod = stage.busiest()?;
        stage.note("too much for one pod");
        let mut uploads = Uploads::to(namespace, stage::name(&pod))?;
        // One after the other, and none too many: the process that is started in its place is not to be killed again.
        eventually("the kernel kills it", budgets::DEATH_SEEN, || {
            let lives = stage.pods.lives();
            let ends = &lives.get(stage::name(&pod)).context("the pod is unknown")?.ends;
            if ends.is_empty() {
                uploads.one_more()?;
                bail!("it bears {} uploads", uploads.open.len());
            }
            Ok(())
        })?;
        let lives = stage.pods.lives();
        let ends = &lives[stage::name(&pod)].ends;
        // The engine tells why in words only where it heard of the kernel's reason before it saw the end.
        ensure!(ends.iter().all(|end| end.exit_code == KILLED), "it was not killed: {ends:?}");
        stage.settled(3)
    })?;
    stage.report("pod_oom_killed", &ran, |ran| {
        ran.recovered()?;
        ensure!(ran.summary.resumed > 0, "no call was taken over");
        Ok(())
    })
}

/// Requests that never end, to one pod. Gone when dropped.
struct Uploads {
    forward: Child,
    /// kubectl writes to it for every connection, and dies when nobody could read it.
    output: BufReader<ChildStdout>,
    address: String,
    open: Vec<TcpStream>,
}

impl Uploads {
    fn to(namespace: &Namespace, pod: &str) -> Result<Self> {
        let args = ["-n", namespace.name(), "port-forward", &format!("pod/{pod}"), ":8080"];
        let mut forward =
            Command::new("kubectl").args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = BufReader::new(forward.stdout.take().context("its output")?);
        let mut uploads = Self { forward, output, address: String::new(), open: Vec::new() };
        let mut line = String::new();
        uploads.output.read_line(&mut line)?;
        // Forwarding from 127.0.0.1:41234 -> 8080
        let address = line.split_whitespace().nth(2).with_context(|| format!("kubectl said {line:?}"))?;
        uploads.address = address.to_owned();
        Ok(uploads)
    }

    fn one_more(&mut self) -> Result<()> {
        let begun = format!(
            "POST /v1/calls HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {UPLOAD}\r\n\r\n{{\"input\":\""
        );
        let mut connection = TcpStream::connect(&self.address)?;
        connection.set_write_timeout(Some(budgets::CONNECT))?;
        connection.write_all(begun.as_bytes())?;
        connection.write_all(&vec![b'a'; UPLOAD - 1000])?;
        self.open.push(connection);
        Ok(())
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        let _ = self.forward.kill();
        let _ = self.forward.wait();
    }
}
