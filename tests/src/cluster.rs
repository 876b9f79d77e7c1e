//! A cluster to test on: kubectl and helm as a person would type them, and what explains a failure when there is one.
//!
//! Expects the environment of `tests/rig/cluster env` (KUBECONFIG, PATH).

pub mod house;
pub mod images;
pub mod node;
pub mod operator;
pub mod pods;
pub mod ran;
pub mod redis;
pub mod stage;
pub mod talk;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a cluster may take for what it does by itself, each with its reason.
pub mod budgets {
    use std::time::Duration;

    /// An operator's pod, from an image that is on the node: scheduled, started, elected.
    pub const OPERATOR_READY: Duration = Duration::from_secs(120);
    /// From `kubectl apply` of an Agent to all replicas ready; images are on the nodes.
    pub const AGENT_READY: Duration = Duration::from_secs(120);
    /// A pod from an image that is on its node.
    pub const POD_READY: Duration = Duration::from_secs(60);
    /// A namespace with all its pods gone, grace periods included.
    pub const NAMESPACE_GONE: Duration = Duration::from_secs(180);
    /// A call through the Service once replicas are ready: endpoints reach every node.
    pub const FIRST_ANSWER: Duration = Duration::from_secs(30);
    /// A connection through the Service, while the machine is busy starting pods.
    pub const CONNECT: Duration = Duration::from_secs(10);
    /// Every session has had an answer, and is at its second.
    pub const LOAD_BEGUN: Duration = Duration::from_secs(60);
    /// A call from its first request to its end, outages of a suite and takeovers included.
    pub const CALL_ENDED: Duration = Duration::from_secs(180);
    /// A Deployment of three or four replicas replaced one by one.
    pub const ROLLED_OUT: Duration = Duration::from_secs(180);
    /// After a rollout: old pods through their preStop delay, drain and relay.
    pub const SETTLED: Duration = Duration::from_secs(120);
    /// `kubectl drain` of a node: every eviction waits for its pod's end, one of an Agent at a time.
    pub const DRAINED: Duration = Duration::from_secs(240);
    /// `kubectl drain` where not every pod can go: long enough for those that can, and for clients to notice.
    pub const PATIENCE: Duration = Duration::from_secs(30);
    /// A container that was killed, seen so by the API server.
    pub const DEATH_SEEN: Duration = Duration::from_secs(60);
    /// A Redis pod that went, on the same volume again.
    pub const REDIS_BACK: Duration = Duration::from_secs(120);
}

/// Runs a program and gives back what it printed; its error is part of ours.
pub fn run(program: &str, args: &[&str], stdin: Option<&str>) -> Result<String> {
    use std::io::Write;
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} failed ({}):\n{stdout}{stderr}", args.join(" "), output.status);
    }
    Ok(stdout)
}

pub fn kubectl(args: &[&str]) -> Result<String> {
    run("kubectl", args, None)
}

/// `kubectl apply`, as a person would: with strict validation.
pub fn apply(namespace: &str, manifest: &str) -> Result<String> {
    run("kubectl", &["-n", namespace, "apply", "-f", "-"], Some(manifest))
}

pub fn helm(args: &[&str]) -> Result<String> {
    let helm = std::env::var("HOLDFAST_HELM").unwrap_or_else(|_| "helm".into());
    run(&helm, args, None)
}

/// Asks until the answer is yes. The last error is the failure's reason.
pub fn eventually<T>(what: &str, budget: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > budget => {
                return Err(error.context(format!("{what}: not within {} s", budget.as_secs())));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(300)),
        }
    }
}

/// A namespace of its own for one suite.
pub struct Namespace(String);

impl Namespace {
    /// Runs a suite in a fresh namespace, gone when the suite ends well. When it ends badly, what is in it is written down
    /// first, and it stays to be looked at where somebody is there to look: its replicas would weigh upon the suites after it.
    pub fn scoped<T>(name: &str, suite: impl FnOnce(&Self) -> Result<T>) -> Result<T, String> {
        let namespace = Self::fresh(name).map_err(|error| format!("{error:#}"))?;
        let outcome = suite(&namespace);
        match &outcome {
            Ok(_) => discard(name),
            Err(_) => {
                explain(name);
                if std::env::var_os("CI").is_some() {
                    discard(name);
                }
            }
        }
        outcome.map_err(|error| format!("{error:#}"))
    }

    fn fresh(name: &str) -> Result<Self> {
        let wait = format!("--timeout={}s", budgets::NAMESPACE_GONE.as_secs());
        kubectl(&["delete", "namespace", name, "--ignore-not-found", "--wait", &wait])?;
        kubectl(&["create", "namespace", name])?;
        kubectl(&["label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted"])?;
        Ok(Self(name.to_owned()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    pub fn apply(&self, manifest: &str) -> Result<String> {
        apply(&self.0, manifest)
    }

    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl(&[&["-n", &self.0], args].concat())
    }

    /// `kubectl wait`, within a budget.
    pub fn wait(&self, object: &str, condition: &str, budget: Duration) -> Result<()> {
        let (condition, timeout) = (format!("--for={condition}"), format!("--timeout={}s", budget.as_secs()));
        self.kubectl(&["wait", object, &condition, &timeout]).map(drop)
    }
}

fn discard(namespace: &str) {
    let _ = kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

/// Writes down what a person would ask for next: objects, descriptions, events and logs. The objects are printed too; the rest
/// is long, and would hide the reason of the failure.
pub fn explain(namespace: &str) {
    let objects = ["-n", namespace, "get", "agents,deploy,sts,pods,svc,pvc", "-o", "wide"];
    let agents = ["-n", namespace, "logs", "-l", "holdfast.dev/agent", "--all-containers", "--prefix"];
    let operators = ["-n", OPERATOR_NAMESPACE, "logs", "-l", "app.kubernetes.io/name=holdfast", "--prefix"];
    let questions: [&[&str]; 5] = [
        &objects,
        &["-n", namespace, "describe", "agents,pods"],
        &["-n", namespace, "get", "events", "--sort-by=.lastTimestamp"],
        &[agents.as_slice(), &["--tail=-1"]].concat(),
        &[operators.as_slice(), &["--tail=400"]].concat(),
    ];
    let mut answers = String::new();
    for question in questions {
        let answer = kubectl(question).unwrap_or_else(|error| format!("{error:#}"));
        let answer = format!("\n$ kubectl {}\n{answer}", question.join(" "));
        if question == objects {
            eprintln!("{answer}");
        }
        answers.push_str(&answer);
    }
    let written = artefact(&format!("{namespace}.txt")).and_then(|path| {
        std::fs::write(&path, &answers)?;
        Ok(path)
    });
    match written {
        Ok(path) => eprintln!("descriptions, events and logs: {}", path.display()),
        Err(error) => eprintln!("{answers}\n{error:#}"),
    }
}

/// A file for people who want to know more about a run, below `target/cluster/`.
pub fn artefact(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    // target/<profile>/deps/<test>
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    let folder = target.join("cluster");
    std::fs::create_dir_all(&folder)?;
    Ok(folder.join(name))
}

pub const OPERATOR_NAMESPACE: &str = "holdfast-system";

/// Installs the CRDs and the operator from the charts of this tree, with the images built from it.
pub fn install_operator() -> Result<()> {
    let charts = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts");
    let timeout = format!("{}s", budgets::OPERATOR_READY.as_secs());
    let (crds, operator) = (format!("{charts}/holdfast-crds"), format!("{charts}/holdfast"));
    helm(&[
        "upgrade",
        "--install",
        "holdfast-crds",
        &crds,
        "-n",
        OPERATOR_NAMESPACE,
        "--create-namespace",
        "--wait",
    ])?;
    let installed = helm(&[
        "upgrade",
        "--install",
        "holdfast",
        &operator,
        "-n",
        OPERATOR_NAMESPACE,
        "--wait",
        "--timeout",
        &timeout,
        "--set",
        "image.repository=holdfast-operator",
        "--set",
        "image.tag=dev",
        "--set",
        "image.pullPolicy=Never",
        "--set",
        "sidecar.image=holdfast-sidecar:dev",
        "--set",
        "redis.image=holdfast-redis:7",
    ]);
    if installed.is_err() {
        explain(OPERATOR_NAMESPACE);
    }
    // Rebuilt under the same tag, the image is a new one all the same.
    kubectl(&["-n", OPERATOR_NAMESPACE, "rollout", "restart", "deployment/holdfast"])?;
    kubectl(&["-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/holdfast", "--timeout", &timeout])?;
    installed.map(drop)
}
