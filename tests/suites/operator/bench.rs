//! What the operator's tests stand on: one API server, operators as processes, and questions asked until they are
//! answered.

// Each suite uses its part of this.
#![allow(dead_code)]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use futures::future::LocalBoxFuture;
use holdfast_crds::Agent;
use holdfast_tests::apiserver::{ApiServer, MARK, Process, free_ports, tail};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// What the operator does by itself once an event has happened: a watch, a few requests.
pub const SOON: Duration = Duration::from_secs(10);
/// "Healed within a second of its creation."
pub const HEALED: Duration = Duration::from_secs(1);
/// How long nothing must happen for us to believe that nothing happens.
pub const QUIET: Duration = Duration::from_millis(1500);

/// These look at the audit log, bring definitions of others, or say themselves what a controller would: they need a
/// server without one.
const OWN_ONLY: &[&str] = &[
    "exposure::routes_and_monitors_are_made_once_the_cluster_knows_them",
    "store::a_rotated_secret_rolls_the_pods_without_a_gap",
    "rights::a_right_to_create_that_is_taken_away_is_missed",
    "charts::an_upgrade_keeps_agents_running",
    "status::ready_follows_the_replicas",
    "status::nothing_is_written_at_rest",
    "status::an_invalid_manifest_leaves_what_runs",
    "rights::every_right_is_used_and_none_is_missing",
];

/// One test: its name, and what it does.
pub type Test = (&'static str, fn(Arc<Stand>) -> LocalBoxFuture<'static, Result<()>>);

macro_rules! trials {
    ($($module:ident :: $name:ident),* $(,)?) => {
        [$((
            concat!(stringify!($module), "::", stringify!($name)),
            |stand: std::sync::Arc<bench::Stand>| -> futures::future::LocalBoxFuture<'static, anyhow::Result<()>> {
                Box::pin(async move { $module::$name(&stand.bench).await })
            },
        )),*] as [$crate::bench::Test; _]
    };
}
pub(crate) use trials;

/// What all tests of a suite share.
pub struct Stand {
    pub bench: Bench,
    runtime: Runtime,
}

/// Runs a suite: first some tests side by side, then some in order. A failure is explained by the logs.
pub fn run<F: Future<Output = Result<(Bench, Option<Operator>)>>>(
    start: impl FnOnce() -> F,
    at_once: impl IntoIterator<Item = Test>,
    in_order: impl IntoIterator<Item = Test>,
) -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::from_args();
    if arguments.list {
        libtest_mimic::run(&arguments, named(at_once.into_iter().chain(in_order), None)).exit();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (mut bench, operator) = runtime.block_on(start())?;
    bench.operator = operator;
    let stand = Arc::new(Stand { bench, runtime });
    let side_by_side = Arguments { test_threads: arguments.test_threads.or(Some(4)), ..arguments.clone() };
    let first = libtest_mimic::run(&side_by_side, named(at_once, Some(&stand)));
    let alone = Arguments { test_threads: Some(1), ..arguments };
    let last = libtest_mimic::run(&alone, named(in_order, Some(&stand)));
    let failed = first.has_failed() || last.has_failed();
    if failed {
        eprintln!("{}", stand.bench.server.logs());
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn named(tests: impl IntoIterator<Item = Test>, stand: Option<&Arc<Stand>>) -> Vec<Trial> {
    let trial = |(name, test): Test| {
        let stand = stand.cloned();
        let ignored =
            stand.as_ref().is_some_and(|stand| stand.bench.server.is_given()) && OWN_ONLY.contains(&name);
        Trial::test(name, move || {
            let Some(stand) = stand else { return Ok(()) };
            let outcome = stand.runtime.block_on(test(Arc::clone(&stand)));
            let log = stand.bench.operator.as_ref().map(Operator::log).unwrap_or_default();
            outcome.map_err(|error| format!("{error:#}\n\noperator:\n{log}").into())
        })
        .with_ignored_flag(ignored)
    };
    tests.into_iter().map(trial).collect()
}

pub struct Bench {
    pub server: ApiServer,
    pub client: Client,
    /// The one operator that looks at everything, where the suite has one.
    pub operator: Option<Operator>,
    pub operator_program: PathBuf,
    started: AtomicUsize,
}

impl Bench {
    /// `may_be_given`: somebody's cluster will do, unless a suite breaks what it stands on.
    pub async fn start(operator_program: PathBuf, may_be_given: bool) -> Result<Self> {
        let server = if may_be_given { ApiServer::given_or_own().await? } else { ApiServer::start().await? };
        let client = server.client().await?;
        Ok(Self { server, client, operator: None, operator_program, started: AtomicUsize::new(0) })
    }

    /// An operator with the rights of its chart.
    pub fn operator(&self, args: &[&str]) -> Result<Operator> {
        self.operator_through(None, args)
    }

    /// The same, behind a proxy on this port.
    pub fn operator_through(&self, proxy: Option<u16>, args: &[&str]) -> Result<Operator> {
        let kubeconfig = match proxy {
            Some(proxy) => self.server.operator_through(proxy)?,
            None => self.server.operator()?,
        };
        self.operator_with(&kubeconfig, args, &[])
    }

    /// An operator with these rights and this environment.
    pub fn operator_with(
        &self,
        kubeconfig: &Path,
        args: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Operator> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let [port] = free_ports()?;
        let mut arguments = vec!["run".to_owned(), format!("--listen=127.0.0.1:{port}")];
        arguments.extend(args.iter().map(|argument| (*argument).to_owned()));
        let mut environment = environment.to_vec();
        environment.extend([
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("RUST_LOG", "info,kube_runtime=warn".to_owned()),
            ("POD_NAMESPACE", "holdfast-system".to_owned()),
        ]);
        let log = self.server.log_file(&format!("operator-{number}"));
        let process = Process::start(&self.operator_program, &arguments, &environment, log)?;
        Ok(Operator { process, port })
    }

    /// A namespace for one test.
    pub async fn namespace(&self, name: &str) -> Result<Space> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": {MARK: ""}}}))?;
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        Ok(Space { client: self.client.clone(), name: name.to_owned() })
    }
}

pub struct Operator {
    pub process: Process,
    pub port: u16,
}

impl Operator {
    pub fn log(&self) -> String {
        tail(&self.process.log())
    }

    /// Says no while it cannot be reached at all.
    pub async fn is_ready(&self) -> bool {
        self.get("/readyz").await.is_ok_and(|answer| answer.contains("200 OK"))
    }

    pub async fn get(&self, path: &str) -> Result<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.get("/metrics").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| anyhow!("no metric {name}"))
    }
}

/// One test's namespace.
pub struct Space {
    pub client: Client,
    pub name: String,
}

impl Space {
    pub fn api<K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(
        &self,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// As `kubectl apply --server-side` would.
    pub async fn apply(&self, name: &str, spec: Value) -> Result<Agent> {
        let agent = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": spec});
        let params = PatchParams {
            field_validation: Some(kube::api::ValidationDirective::Strict),
            ..PatchParams::apply("test").force()
        };
        Ok(self.api::<Agent>().patch(name, &params, &Patch::Apply(&agent)).await?)
    }

    pub async fn secret(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: value}});
        let api: Api<k8s_openapi::api::core::v1::Secret> = self.api();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    pub async fn condition(&self, agent: &str, type_: &str) -> Result<Condition> {
        let status = self.api::<Agent>().get(agent).await?.status.unwrap_or_default();
        let found = status.conditions.into_iter().find(|condition| condition.type_ == type_);
        found.ok_or_else(|| anyhow!("{agent} has no condition {type_}"))
    }

    /// Waits until a condition says this.
    pub async fn says(
        &self,
        agent: &str,
        type_: &str,
        status: &str,
        reason: &str,
        within: Duration,
    ) -> Result<Condition> {
        eventually(&format!("{agent}: {type_}={status} {reason}"), within, async || {
            let found = self.condition(agent, type_).await?;
            if (found.status.as_str(), found.reason.as_str()) == (status, reason) {
                return Ok(found);
            }
            bail!("it says {}={} {}: {}", found.type_, found.status, found.reason, found.message)
        })
        .await
    }

    pub async fn deployment(&self, name: &str) -> Result<Deployment> {
        eventually("a Deployment", SOON, async || Ok(self.api::<Deployment>().get(name).await?)).await
    }

    /// What the Deployment controller would report.
    pub async fn report(&self, name: &str, replicas: i32, updated: i32, available: i32) -> Result<()> {
        let deployments: Api<Deployment> = self.api();
        let generation = deployments.get(name).await?.metadata.generation;
        let status = json!({"status": {
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated,
            "readyReplicas": available, "availableReplicas": available,
        }});
        deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.api::<Agent>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Asks until there is an answer; the last refusal is the reason for giving up.
pub async fn eventually<T>(what: &str, within: Duration, ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > within => {
                return Err(error).with_context(|| format!("{what}: not within {} ms", within.as_millis()));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub fn owner(object: &impl kube::Resource) -> Option<String> {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.name.clone())
}

pub fn scripted() -> Value {
    json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "InMemory"}})
}
