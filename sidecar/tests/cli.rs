//! The program as people start it: what it prints, how it ends, and that a conversation outlives its process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hello.yaml");

fn sidecar() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-sidecar"));
    command.env_remove("HOLDFAST_LISTEN").env("HOLDFAST_LOG_FORMAT", "pretty").stdin(Stdio::null());
    command
}

/// A running sidecar on ports of its own; killed with the test.
struct Running {
    child: Child,
    curl: String,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(state: &Path) -> Self {
        let mut child = sidecar()
            .args(["run", HELLO, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .env("HOLDFAST_STATE_DIR", state)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let printed = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = printed.lines().map(|line| line.expect("text"));
        let first = lines.next().expect("a greeting");
        let address = first.rsplit(' ').next().expect("an address").to_owned();
        let curl = lines.find(|line| line.trim_start().starts_with("curl")).expect("a curl line");
        Self { child, curl: curl.trim().to_owned(), address }
    }

    /// Pastes the printed line into a shell.
    fn paste(&self) -> serde_json::Value {
        let output = Command::new("bash").args(["-c", &self.curl]).output().expect("a shell");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
    }

    fn ended(mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return status,
            None if Instant::now() > patience => panic!("it does not end"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_conversation_goes_on_after_ctrl_c_sigterm_and_kill() {
    let state = tempfile::tempdir().expect("a folder");
    let first = Running::start(state.path());
    assert_eq!(first.paste()["text"], "You said: hello. This is the first thing I remember.");
    first.signal("-INT");
    assert_eq!(first.ended().code(), Some(0));
    let second = Running::start(state.path());
    assert_eq!(second.paste()["text"], "You said: hello. I remember 1 earlier turn.");
    second.signal("-KILL");
    assert_eq!(second.ended().code(), None);
    let third = Running::start(state.path());
    assert_eq!(third.paste()["text"], "You said: hello. I remember 2 earlier turns.");
    third.signal("-TERM");
    assert_eq!(third.ended().code(), Some(0));
}

#[test]
fn a_folder_in_use_is_a_failure_that_says_so() {
    let state = tempfile::tempdir().expect("a folder");
    let _first = Running::start(state.path());
    let second = sidecar()
        .args(["run", HELLO, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .env("HOLDFAST_STATE_DIR", state.path())
        .output()
        .expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("is in use by"), "{second:?}");
}

#[test]
fn every_mistake_of_a_manifest_is_said_at_once_and_the_code_is_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = folder.path().join("agent.yaml");
    let text = "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: { name: a }\nspec:\n  modle: {}\n  model: { provider: Scripted }\n  loop: { maxIterations: 0 }\n";
    std::fs::write(&manifest, text).expect("written");
    for command in ["validate", "run"] {
        let output = sidecar().arg(command).arg(&manifest).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("agent.yaml:5:") && said.contains("agent.yaml:7:"), "{said}");
    }
    let good = sidecar().args(["validate", HELLO]).output().expect("it runs");
    assert_eq!(good.status.code(), Some(0));
    let missing = sidecar().args(["validate", "/no/such/file"]).output().expect("it runs");
    assert_eq!(missing.status.code(), Some(2));
    let wrong = sidecar().args(["run"]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
}

/// The reasons that the API server and the operator give, at both commands.
#[test]
fn files_that_a_conversation_would_not_find_are_refused_by_their_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = folder.path().join("agent.yaml");
    let redis = "stateStore: { type: Redis, redis: { url: redis://127.0.0.1:1/0 } }";
    for (spec, reason) in [
        ("filesystem: { type: Remote }".to_owned(), "LocalStoreWithDistributedFilesystem"),
        (
            "stateStore: { type: InMemory }\n  filesystem: { type: Remote }".to_owned(),
            "LocalStoreWithDistributedFilesystem",
        ),
        (format!("replicas: 2\n  {redis}\n  filesystem: {{ type: Local }}"), "LocalFilesystemWithReplicas"),
        (
            format!("autoscaling: {{ maxReplicas: 2 }}\n  {redis}\n  filesystem: {{ type: Local }}"),
            "LocalFilesystemWithReplicas",
        ),
    ] {
        let text = format!(
            "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {{ name: a }}\nspec:\n  model: {{ provider: Scripted }}\n  {spec}\n"
        );
        std::fs::write(&manifest, text).expect("written");
        for command in ["validate", "run"] {
            let output = sidecar().arg(command).arg(&manifest).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command} {spec}: {said}");
            assert!(said.contains(&format!("({reason})")) && said.contains("spec.filesystem"), "{said}");
        }
    }
}

#[test]
fn chat_takes_lines_from_a_pipe_and_remembers() {
    let state = tempfile::tempdir().expect("a folder");
    let agent = Running::start(state.path());
    let mut chat = sidecar()
        .args(["chat", "--url", &agent.address, "--user", "alice", "--session", "a/b"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    chat.stdin.take().expect("its input").write_all(b"one\n\ntwo\n").expect("written");
    let mut said = String::new();
    chat.stdout.take().expect("its output").read_to_string(&mut said).expect("text");
    assert_eq!(wait(&mut chat).code(), Some(0));
    assert_eq!(
        said,
        "You said: one. This is the first thing I remember.\nYou said: two. I remember 1 earlier turn.\n"
    );

    let address = agent.address.clone();
    drop(agent);
    let mut alone = sidecar()
        .args(["chat", "--url", &address])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    alone.stdin.take().expect("its input").write_all(b"anybody?\n").expect("written");
    assert_eq!(wait(&mut alone).code(), Some(1));
}

#[test]
fn the_committed_description_is_fresh() {
    let printed = sidecar().arg("openapi").output().expect("it runs");
    let committed =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json")).expect("committed");
    assert!(printed.stdout == committed, "docs/openapi.json is stale: run `make generate`");
}

#[test]
fn what_is_mistyped_is_told_with_what_to_write() {
    let wrong = sidecar().args(["run", HELLO, "--listen", "8080"]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("--listen") && said.contains("127.0.0.1:8080"), "{said}");
    let help = sidecar().args(["run", "--help"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&help.stdout).into_owned();
    for name in ["HOLDFAST_STATE_DIR", "HOLDFAST_SECRETS_DIR", "HOLDFAST_SECRET_<NAME>_<KEY>", "HOLDFAST_LOG"]
    {
        assert!(said.contains(name), "{name} is not in {said}");
    }
}
