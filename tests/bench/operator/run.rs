//! One size: Agents are made and become Ready, nothing happens, some change, the operator starts again.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use holdfast_tests::{
    apiserver::{Process, free_ports, tail},
    fake_apiserver::{FakeApiServer, Resource},
    redis::{Options, RedisServer},
};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::measured;

/// Agents of one namespace, which share its Secrets.
const PER_NAMESPACE: usize = 100;
/// Changes whose way to the Deployment is timed.
const CHANGES: usize = 300;
/// How long nothing happens.
const REST: Duration = Duration::from_secs(20);
const READY: Duration = Duration::from_secs(600);
/// Longer than anything the operator puts off by itself, but for its next look at a store.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    pub agents: usize,
    /// From the first `kubectl apply` until every Agent is Ready.
    pub ready_seconds: f64,
    pub cpu_ms_per_agent: f64,
    pub calls_per_agent: f64,
    /// By verb and resource, for all Agents together.
    pub calls: BTreeMap<String, u64>,
    pub resident_bytes: u64,
    pub peak_bytes: u64,
    pub change_ms_p50: f64,
    pub change_ms_p99: f64,
    pub change_ms_max: f64,
    pub rest_seconds: f64,
    /// Without those of the Lease.
    pub rest_writes: u64,
    pub rest_lease_writes: u64,
    pub rest_cpu_ms_per_second: f64,
    /// A new process that finds everything as it should be.
    pub restart: Restart,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    pub seconds: f64,
    pub cpu_ms_per_agent: f64,
    pub calls_per_agent: f64,
    /// What it wrote that was not so before. Without those of the Lease.
    pub changed: u64,
    pub resident_bytes: u64,
    pub peak_bytes: u64,
}

fn agents() -> Resource {
    Resource::new("holdfast.dev/v1alpha1", "agents")
}

fn deployments() -> Resource {
    Resource::new("apps/v1", "deployments")
}

struct Stage {
    server: FakeApiServer,
    redis: RedisServer,
    folder: TempDir,
    count: usize,
}

struct Operator {
    process: Process,
}

pub async fn run(count: usize) -> Result<Measurement> {
    let redis = Options::default().with("appendonly", "yes").with("appendfsync", "always").start()?;
    let stage = Stage { server: FakeApiServer::start().await?, redis, folder: tempfile::tempdir()?, count };
    stage.furnish()?;
    let operator = stage.operator("first")?;
    stage.leads().await.with_context(|| tail(&operator.process.log()))?;
    let (calls, cpu, started) = (stage.server.calls(), operator.cpu()?, Instant::now());
    for index in 0..count {
        stage.apply(index, "You help customers.")?;
    }
    stage.all_ready().await.with_context(|| tail(&operator.process.log()))?;
    let ready_seconds = started.elapsed().as_secs_f64();
    stage.settled().await?;
    let per_agent = |cpu: Duration| cpu.as_secs_f64() * 1000.0 / count as f64;
    let cpu_ms_per_agent = per_agent(operator.cpu()?.saturating_sub(cpu));
    let calls = difference(&stage.server.calls(), &calls);
    let (resident_bytes, peak_bytes) = measured::memory(operator.process.id())?;

    let rest = stage.rest(&operator).await?;
    let mut changes = stage.changes().await.with_context(|| tail(&operator.process.log()))?;
    changes.sort_by(f64::total_cmp);
    stage.settled().await?;
    let share = |part: f64| changes[((changes.len() - 1) as f64 * part).round() as usize];
    drop(operator);
    Ok(Measurement {
        agents: count,
        ready_seconds,
        cpu_ms_per_agent,
        calls_per_agent: total(&calls) as f64 / count as f64,
        calls,
        resident_bytes,
        peak_bytes,
        change_ms_p50: share(0.5),
        change_ms_p99: share(0.99),
        change_ms_max: share(1.0),
        rest_seconds: REST.as_secs_f64(),
        rest_writes: rest.writes,
        rest_lease_writes: rest.lease_writes,
        rest_cpu_ms_per_second: rest.cpu_ms_per_second,
        restart: stage.restart().await?,
    })
}

struct Rest {
    writes: u64,
    lease_writes: u64,
    cpu_ms_per_second: f64,
}

impl Operator {
    fn cpu(&self) -> Result<Duration> {
        measured::cpu(self.process.id())
    }
}

impl Stage {
    /// What the manifests point at.
    fn furnish(&self) -> Result<()> {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        for namespace in 0..self.count.div_ceil(PER_NAMESPACE) {
            for (name, key, value) in [("redis", "url", self.redis.url()), ("openai", "api-key", "k".into())]
            {
                let secret = json!({"apiVersion": "v1", "kind": "Secret",
                    "metadata": {"name": name, "namespace": format!("team-{namespace}")}, "data": {key: STANDARD.encode(value)}});
                self.server.apply(&Resource::new("v1", "secrets"), &secret)?;
            }
        }
        Ok(())
    }

    fn name(index: usize) -> (String, String) {
        (format!("team-{}", index / PER_NAMESPACE), format!("agent-{}", index % PER_NAMESPACE))
    }

    /// As the API server would store it: with every default.
    fn apply(&self, index: usize, prompt: &str) -> Result<()> {
        let (namespace, name) = Self::name(index);
        let manifest = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 3, "systemPrompt": prompt,
            "model": {"provider": "OpenAI", "name": "gpt-4o-mini", "apiKeySecretRef": {"name": "openai", "key": "api-key"}},
            "stateStore": {"type": "Redis", "redis": {"urlSecretRef": {"name": "redis", "key": "url"}}},
        }});
        let agent = holdfast_crds::manifest::parse(&manifest.to_string())?;
        self.server.apply(&agents(), &serde_json::to_value(agent)?)?;
        Ok(())
    }

    fn operator(&self, name: &str) -> Result<Operator> {
        let program = match std::env::var_os("HOLDFAST_OPERATOR") {
            Some(given) => PathBuf::from(given),
            None => std::env::current_exe()?.with_file_name("holdfast-operator"),
        };
        let kubeconfig = self.folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, self.server.kubeconfig())?;
        let [port] = free_ports()?;
        let arguments = [
            "run".into(),
            format!("--listen=127.0.0.1:{port}"),
            "--lease=holdfast".into(),
            "--log-format=json".into(),
        ];
        let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("RUST_LOG", "info".into())];
        let log = self.folder.path().join(format!("{name}.log"));
        Ok(Operator { process: Process::start(&program, &arguments, &environment, log)? })
    }

    async fn until(&self, what: &str, within: Duration, is_so: impl Fn() -> bool) -> Result<()> {
        let waiting = async {
            while !is_so() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(within, waiting).await.with_context(|| format!("{what}: not within {} s", within.as_secs()))
    }

    async fn leads(&self) -> Result<()> {
        let leases = Resource::new("coordination.k8s.io/v1", "leases");
        let held = || self.server.count(&leases, |lease| lease["spec"]["holderIdentity"].is_string()) == 1;
        self.until("a leader", Duration::from_secs(30), held).await?;
        self.settled().await
    }

    async fn all_ready(&self) -> Result<()> {
        let ready = |agent: &Value| {
            let conditions = agent["status"]["conditions"].as_array();
            let generation = &agent["metadata"]["generation"];
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Ready"
                    && condition["status"] == "True"
                    && condition["observedGeneration"] == *generation
            })
        };
        self.until("every Agent Ready", READY, || self.server.count(&agents(), ready) == self.count).await
    }

    /// Nobody but the leader, which renews, has asked for anything for a while.
    async fn settled(&self) -> Result<()> {
        let (mut before, mut since) = (total(&self.server.calls()), Instant::now());
        let deadline = Instant::now() + READY;
        while since.elapsed() < SETTLED {
            sleep(Duration::from_millis(100)).await;
            let now = total(&self.server.calls());
            if now != before {
                (before, since) = (now, Instant::now());
            }
            ensure!(Instant::now() < deadline, "the operator never comes to rest");
        }
        Ok(())
    }

    async fn rest(&self, operator: &Operator) -> Result<Rest> {
        let (before, cpu) = (self.server.calls(), operator.cpu()?);
        sleep(REST).await;
        let calls = difference(&self.server.calls(), &before);
        let cpu = operator.cpu()?.saturating_sub(cpu);
        let lease_writes = written(&calls, |resource| resource == "leases");
        Ok(Rest {
            writes: written(&calls, |resource| resource != "leases"),
            lease_writes,
            cpu_ms_per_second: cpu.as_secs_f64() * 1000.0 / REST.as_secs_f64(),
        })
    }

    /// How long, in milliseconds, until the Deployment says what the Agent says. One at a time, all over the place.
    async fn changes(&self) -> Result<Vec<f64>> {
        const MANIFEST: &str = "holdfast.dev/manifest";
        let said =
            |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"][MANIFEST].clone();
        let mut took = Vec::new();
        for round in 0..CHANGES {
            let index = round * 7919 % self.count;
            let (namespace, name) = Self::name(index);
            let before = self.server.get(&deployments(), &namespace, &name).context("a Deployment")?;
            let mut seen = self.server.changes(&deployments());
            let started = Instant::now();
            self.apply(index, &format!("You help customers, round {round}."))?;
            let changed = async {
                while let Some(deployment) = seen.recv().await {
                    let metadata = &deployment["metadata"];
                    if metadata["namespace"] == namespace
                        && metadata["name"] == name
                        && said(&deployment) != said(&before)
                    {
                        break;
                    }
                }
            };
            timeout(Duration::from_secs(30), changed).await.context("a change that does not arrive")?;
            took.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(took)
    }

    async fn restart(&self) -> Result<Restart> {
        // Until its lease has run out nobody else leads; that wait is not what is measured.
        self.server.apply(
            &Resource::new("coordination.k8s.io/v1", "leases"),
            &json!({"metadata": {"name": "holdfast", "namespace": "default"}, "spec": {"holderIdentity": ""}}),
        )?;
        let (calls, started) = (self.server.calls(), Instant::now());
        let versions = self.versions();
        let operator = self.operator("second")?;
        let looked =
            || difference(&self.server.calls(), &calls).get("patch deployments").copied().unwrap_or_default();
        self.until("a look at every Agent", READY, || looked() >= self.count as u64).await?;
        let seconds = started.elapsed().as_secs_f64();
        self.settled().await?;
        let (resident_bytes, peak_bytes) = measured::memory(operator.process.id())?;
        let calls = difference(&self.server.calls(), &calls);
        Ok(Restart {
            seconds,
            cpu_ms_per_agent: operator.cpu()?.as_secs_f64() * 1000.0 / self.count as f64,
            calls_per_agent: total(&calls) as f64 / self.count as f64,
            changed: self.versions() - versions,
            resident_bytes,
            peak_bytes,
        })
    }

    /// How often anything but the Lease has changed.
    fn versions(&self) -> u64 {
        let (all, of_leases) = self.server.changed(&Resource::new("coordination.k8s.io/v1", "leases"));
        all - of_leases
    }
}

fn difference(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = now.iter().map(|(call, count)| (call.clone(), count - before.get(call).unwrap_or(&0)));
    since.filter(|(_, count)| *count > 0).collect()
}

/// Whatever was asked, but for the Lease, which is renewed whether there are Agents or not.
fn total(calls: &BTreeMap<String, u64>) -> u64 {
    calls.iter().filter(|(call, _)| !call.ends_with(" leases")).map(|(_, count)| count).sum()
}

fn written(calls: &BTreeMap<String, u64>, of: impl Fn(&str) -> bool) -> u64 {
    let calls = calls.iter().filter_map(|(call, count)| Some((call.split_once(' ')?, count)));
    let writes =
        calls.filter(|((verb, resource), _)| !matches!(*verb, "get" | "list" | "watch") && of(resource));
    writes.map(|(_, count)| count).sum()
}
