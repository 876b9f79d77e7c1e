//! A stage in a cluster: an Agent of the operator's making, its store in a pod, clients that come through a Service, and a
//! model and tools outside the cluster, as they are in life, whose ledgers no pod can reach.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::pods::Pods;
use super::ran::{Ran, Watched, watch};
use super::talk::Talk;
use super::{Namespace, budgets, eventually, kubectl};
use crate::fake_model::FakeModel;
use crate::fake_tools::FakeTools;
use crate::http::Http;
use crate::ledger::{Ledger, now_millis};
use crate::load::{Call, Client, How, Session, Told};
use crate::summary::{Spread, Summary, see_the_end_of_those_left};
use crate::timeline::Timeline;

/// The Agent's name in every suite's namespace.
pub const AGENT: &str = "agent";
/// Short enough for a suite, longer than most answers; the one answer in eight that is longer is given back.
pub const DRAIN: Duration = Duration::from_secs(5);

/// So many calls, begun after an outage and ended, show that it is over.
const ENOUGH: usize = 10;

/// What did not come by chance in so many times as many will not come.
const WITHIN_REASON: usize = 4;

/// How many clients come during an outage.
const NEWCOMERS: usize = 12;

/// One Redis in one pod; what it acknowledges outlives its process.
pub const REDIS: &str = include_str!("stage/redis.yaml");
const ENTRANCE: &str = include_str!("stage/entrance.yaml");

pub struct Stage<'a> {
    pub namespace: &'a Namespace,
    pub pods: Pods,
    pub client: Client,
    /// Where clients come in.
    pub door: String,
    model: FakeModel,
    tools: FakeTools,
    faults: std::sync::Mutex<Vec<(u64, String)>>,
    runtime: Runtime,
}

/// A load that goes on, and whoever watches it.
struct Going {
    hurting: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
    talking: tokio::task::JoinHandle<()>,
    watching: tokio::task::JoinHandle<Watched>,
}

/// Clients on their way.
pub struct Newcomers(tokio::task::JoinHandle<Vec<()>>);

/// The Agent every suite starts from. `changes` are merged into its `spec`.
pub fn agent(model: &str, tools: &str, changes: &Value) -> Value {
    let mut spec = json!({
        "replicas": 3,
        "systemPrompt": "You help customers.",
        "model": {"provider": "OpenAI", "name": "fake", "baseUrl": model},
        "loop": {"callTimeout": "120s", "toolTimeout": "10s"},
        "tools": [{
            "name": "fake", "mcp": {"url": tools},
            "safety": {"lookup": "ReadOnly", "put": "Idempotent", "refund": "Unsafe"},
        }],
        "stateStore": {"type": "Redis", "redis": {"url": "redis://redis:6379/0"}},
        "shutdown": {"drainTimeout": format!("{}s", DRAIN.as_secs()), "saveTimeout": "5s", "relayTimeout": "60s"},
    });
    merge(&mut spec, changes);
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": AGENT}, "spec": spec})
}

/// RFC 7396.
fn merge(into: &mut Value, changes: &Value) {
    let Value::Object(changes) = changes else {
        into.clone_from(changes);
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, change) in changes {
        if change.is_null() {
            into.as_object_mut().map(|fields| fields.remove(name));
        } else {
            merge(&mut into[name], change);
        }
    }
}

impl<'a> Stage<'a> {
    /// With the store that most suites use.
    pub fn set(namespace: &'a Namespace, changes: &Value) -> Result<Self> {
        namespace.apply(REDIS)?;
        namespace.wait("pod/redis", "condition=Ready", budgets::POD_READY)?;
        Self::set_without_store(namespace, changes)
    }

    /// The suite has its own idea of a store.
    pub fn set_without_store(namespace: &'a Namespace, changes: &Value) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let host = std::env::var("HOLDFAST_HOST_ADDRESS").context(
            "HOLDFAST_HOST_ADDRESS, where pods reach this machine, is not set; run tests/rig/suites",
        )?;
        let (model, tools, client) = runtime.block_on(async {
            let model = FakeModel::witness(([0, 0, 0, 0], 0).into(), Ledger::in_memory()).await?;
            let tools = FakeTools::witness(([0, 0, 0, 0], 0).into(), Ledger::in_memory()).await?;
            anyhow::Ok((model, tools, kube::Client::try_default().await?))
        })?;
        let at = |port: u16, path: &str| format!("http://{host}:{port}{path}");
        let manifest = agent(&at(model.address.port(), "/v1"), &at(tools.address.port(), "/mcp"), changes);
        namespace.apply(ENTRANCE)?;
        namespace.apply(&manifest.to_string())?;
        namespace.wait(&format!("agent/{AGENT}"), "condition=Ready", budgets::AGENT_READY)?;
        let pods = runtime.block_on(Pods::of(client, namespace.name(), AGENT))?;
        let client = Client {
            http: Http::patient(budgets::CONNECT),
            patience: budgets::CALL_ENDED,
            ..Client::default()
        };
        let door = door(namespace)?;
        client.doors.open(&door);
        let stage = Self { namespace, pods, client, door, model, tools, faults: Default::default(), runtime };
        stage.first_answer()?;
        Ok(stage)
    }

    /// A call that is no part of the load: the Service's endpoints have reached the node that clients come in by.
    fn first_answer(&self) -> Result<()> {
        let url = format!("{}/v1/users/nobody/sessions/first/calls", self.door);
        eventually("an answer through the Service", budgets::FIRST_ANSWER, || {
            let answer = self.runtime.block_on(self.client.http.post(&url, &json!({"input": "hello"})))?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
            Ok(())
        })
    }

    /// Clients talk, `hurt` does what the suite is about, the clients finish what they began, and everything is judged.
    pub fn under_load(&self, talk: Talk, hurt: impl FnOnce() -> Result<()>) -> Result<Ran> {
        let going = self.start_talking(talk);
        let hurt = eventually("a load in full swing", budgets::LOAD_BEGUN, || {
            ensure!(going.begun.load(Relaxed) >= 2 * talk.sessions, "{} calls", going.begun.load(Relaxed));
            ensure!(!going.talking.is_finished(), "the clients stopped talking");
            Ok(())
        })
        .and_then(|()| hurt());
        going.hurting.store(false, Relaxed);
        let ended =
            self.runtime.block_on(async { tokio::time::timeout(budgets::CALL_ENDED, going.talking).await });
        ended.context("clients still wait for the end of their calls")??;
        let watched = self.runtime.block_on(going.watching)?;
        hurt?;
        let summary = self.judge()?;
        Ok(Ran { summary, watched })
    }

    fn start_talking(&self, talk: Talk) -> Going {
        let hurting = Arc::new(AtomicBool::new(true));
        let begun = Arc::new(AtomicUsize::new(0));
        let sessions = (0..talk.sessions).map(|n| {
            let (client, hurting, begun) = (self.client.clone(), Arc::clone(&hurting), Arc::clone(&begun));
            async move {
                for call in 0.. {
                    if !hurting.load(Relaxed) {
                        break;
                    }
                    begun.fetch_add(1, Relaxed);
                    client.converse(&Talk::session(n), &talk.line(n, call)).await;
                }
            }
        });
        let sessions: Vec<_> = sessions.collect();
        let talking = self.runtime.spawn(async move {
            futures::future::join_all(sessions).await;
        });
        let watching = self.runtime.spawn(watch(
            self.client.http.clone(),
            self.door.clone(),
            talk.sessions,
            Arc::clone(&hurting),
        ));
        Going { hurting, begun, talking, watching }
    }

    /// Clients who come while the store is away: whoever was talking already only waits. Their calls are judged like all others.
    pub fn newcomers(&self, after: Duration) -> Newcomers {
        let come = (0..NEWCOMERS).map(|n| {
            let client = self.client.clone();
            async move {
                tokio::time::sleep(after).await;
                let name = format!("{}-{n}", now_millis());
                let session = Session { user: format!("late-{n}"), session: format!("late-{name}") };
                let call =
                    Call { id: format!("late-{name}"), said: format!("late {name}"), how: How::Stream };
                client.converse(&session, &call).await;
            }
        });
        Newcomers(self.runtime.spawn(futures::future::join_all(come)))
    }

    /// Waits until they have what they came for.
    pub fn served(&self, newcomers: Newcomers) -> Result<()> {
        let served = async { tokio::time::timeout(budgets::CALL_ENDED, newcomers.0).await };
        self.runtime.block_on(served).context("clients who came during the outage still wait")??;
        Ok(())
    }

    fn judge(&self) -> Result<Summary> {
        self.runtime.block_on(async {
            let mut told = self.client.log.told();
            see_the_end_of_those_left(&self.client, &self.door, &mut told, budgets::CALL_ENDED).await?;
            let (model, tools) = (self.model.ledger().records(), self.tools.ledger().records());
            Summary::of(&self.client.http, &self.door, told, model, tools).await
        })
    }

    /// The states of the load's sessions, of those that there are.
    pub fn states(&self, sessions: usize) -> Result<Vec<Value>> {
        let mut states = Vec::new();
        for n in 0..sessions {
            let url = format!("{}{}/state", self.door, Talk::session(n).path());
            let answer = self.runtime.block_on(self.client.http.get(&url))?;
            ensure!(matches!(answer.status, 200 | 404), "{} {}", answer.status, answer.body);
            states.extend((answer.status == 200).then_some(answer.body));
        }
        Ok(states)
    }

    /// Puts a file where the agent finds it; `path` is that of the interface.
    pub fn hand_in(&self, path: &str, content: &str) -> Result<()> {
        let url = format!("{}{path}", self.door);
        let answer = self.runtime.block_on(self.client.http.put_text(&url, content, &[]))?;
        ensure!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.body);
        Ok(())
    }

    pub fn read_file(&self, path: &str) -> Result<String> {
        let answer = self.runtime.block_on(self.client.http.get(&format!("{}{path}", self.door)))?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        answer.body.as_str().map(str::to_owned).context("not a text")
    }

    /// What the model was asked so far.
    pub fn asked(&self) -> Vec<Value> {
        self.model.ledger().records().into_iter().filter(|record| record["event"] == "asked").collect()
    }

    /// Notes for the timeline that something was done now.
    pub fn note(&self, what: &str) {
        let mut faults = self.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        faults.push((now_millis(), what.to_owned()));
    }

    /// The table of a run, and where its picture is; together with the reason where `judged` says it went wrong.
    pub fn report(&self, name: &str, ran: &Ran, judged: impl FnOnce(&Ran) -> Result<()>) -> Result<String> {
        let lives = self.pods.lives();
        let stopping = Spread::of(lives.values().filter_map(|life| life.stopping()));
        let ends = lives.values().flat_map(|life| &life.ends);
        let ends: BTreeSet<_> = ends.map(|end| format!("{} {}", end.exit_code, end.reason)).collect();
        let faults = self.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let timeline = Timeline { pods: lives, told: ran.summary.told.clone(), faults };
        let picture = timeline.write(name)?;
        let mut report = ran.summary.to_string();
        let mut row = |what: &str, value: &str| report.push_str(&format!("  {what:<52} {value:>5}\n"));
        row("sessions seen with shutdownInterrupted", &ran.watched.interrupted.len().to_string());
        row(
            "reads of a state, and how many failed",
            &format!("{}, {}", ran.watched.reads, ran.watched.failures.len()),
        );
        row(
            "requests that met an idle connection's end, sent again",
            &self.client.http.asked_again().to_string(),
        );
        row("exit codes of agents", &format!("{ends:?}"));
        if !stopping.is_empty() {
            row("a pod from being told to stop to its exit", &stopping.to_string());
        }
        row("a picture of it", &picture.display().to_string());
        match judged(ran) {
            Ok(()) => Ok(report),
            Err(error) => Err(anyhow!("{report}{}\n{error:#}", ran.troubles(&self.pods))),
        }
    }

    /// Does it so many times, and then, within reason, until a call was given back and finished elsewhere: whether a replica that stops
    /// has an answer that is longer than its drain is chance. `once` must wait until whoever stops has gone.
    pub fn until_handed_over(&self, times: usize, once: impl Fn() -> Result<()>) -> Result<()> {
        for n in 0..WITHIN_REASON * times {
            if n >= times && self.client.log.told().iter().any(|told| told.resumes > 0) {
                break;
            }
            once()?;
        }
        Ok(())
    }

    /// `kubectl rollout restart`, and until it is through.
    pub fn restart(&self) -> Result<()> {
        self.note("rollout restart");
        let deployment = format!("deployment/{AGENT}");
        self.namespace.kubectl(&["rollout", "restart", &deployment])?;
        self.rolled_out()
    }

    /// Another manifest, and until every replica is of it.
    pub fn change(&self, spec: &Value) -> Result<()> {
        let before: BTreeSet<_> = self.pod_list()?.iter().map(|pod| name(pod).to_owned()).collect();
        let patch = json!({ "spec": spec }).to_string();
        self.namespace.kubectl(&["patch", &format!("agent/{AGENT}"), "--type=merge", "-p", &patch])?;
        self.replaced(&before)
    }

    /// None of the pods of before is left, and as many others are ready.
    pub fn replaced(&self, before: &BTreeSet<String>) -> Result<()> {
        eventually("every replica replaced", budgets::ROLLED_OUT, || {
            let left = self.pod_list()?.iter().filter(|pod| before.contains(name(pod))).count();
            ensure!(left == 0, "{left} pods of before are left");
            Ok(())
        })?;
        self.settled(before.len())
    }

    /// Calls come to their end again, for every session.
    pub fn flows(&self) -> Result<()> {
        let since = now_millis();
        let ended = |told: &Told| told.began > since && told.outcome.is_some();
        eventually("calls that begin and end", budgets::CALL_ENDED, || {
            let ended = self.client.log.told().iter().filter(|told| ended(told)).count();
            ensure!(ended >= ENOUGH, "{ended} calls have");
            Ok(())
        })
    }

    pub fn rolled_out(&self) -> Result<()> {
        let timeout = format!("--timeout={}s", budgets::ROLLED_OUT.as_secs());
        self.namespace.kubectl(&["rollout", "status", &format!("deployment/{AGENT}"), &timeout]).map(drop)
    }

    /// As many replicas as wanted, all ready, and none that still stops.
    pub fn settled(&self, replicas: usize) -> Result<()> {
        eventually("all old pods gone, all new ones ready", budgets::SETTLED, || {
            let pods = self.pod_list()?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            ensure!(pods.len() == replicas && ready == replicas, "{} pods, {ready} ready", pods.len());
            Ok(())
        })
    }

    /// Until there is no such pod.
    pub fn gone(&self, pod: &str) -> Result<()> {
        let timeout = format!("--timeout={}s", budgets::SETTLED.as_secs());
        self.namespace.kubectl(&["wait", &format!("pod/{pod}"), "--for=delete", &timeout]).map(drop)
    }

    /// The Agent's pods as the API server has them.
    pub fn pod_list(&self) -> Result<Vec<Value>> {
        let selector = format!("holdfast.dev/agent={AGENT}");
        let list = self.namespace.kubectl(&["get", "pods", "-l", &selector, "-o", "json"])?;
        let mut list: Value = serde_json::from_str(&list)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    pub fn pod(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.namespace.kubectl(&["get", "pod", name, "-o", "json"])?)?)
    }

    /// One that serves. Chosen by how much runs on it: hurting an idle one would show nothing.
    pub fn busiest(&self) -> Result<Value> {
        let started = Instant::now();
        loop {
            let mut best = None;
            for pod in self.pod_list()?.into_iter().filter(is_ready) {
                let running = self.running_calls(&pod).unwrap_or(0);
                if best.as_ref().is_none_or(|(most, _)| running > *most) {
                    best = Some((running, pod));
                }
            }
            match best {
                Some((running, pod)) if running >= 2 => return Ok(pod),
                _ if started.elapsed() > budgets::LOAD_BEGUN => bail!("no replica has anything to do"),
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// By the replica's own metrics, through the API server: nobody else may read them.
    fn running_calls(&self, pod: &Value) -> Result<u64> {
        let (namespace, name) = (self.namespace.name(), name(pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:9090/proxy/metrics");
        let metrics = kubectl(&["get", "--raw", &path])?;
        let figure = metrics.lines().find_map(|line| line.strip_prefix("holdfast_calls_active "));
        Ok(figure.context("no holdfast_calls_active")?.trim().parse::<f64>()? as u64)
    }
}

pub fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn node(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// How often its agent's process was started again.
pub fn restarts(pod: &Value) -> u64 {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses.into_iter().flatten().filter_map(|status| status["restartCount"].as_u64()).sum()
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The Service's port on the control-plane node, which no suite drains: the way in of a client outside the cluster.
fn door(namespace: &Namespace) -> Result<String> {
    let port = namespace.kubectl(&["get", "service/entrance", "-o", "jsonpath={.spec.ports[0].nodePort}"])?;
    let address = kubectl(&[
        "get",
        "nodes",
        "-l",
        "node-role.kubernetes.io/control-plane",
        "-o",
        "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}",
    ])?;
    ensure!(!port.is_empty() && !address.is_empty(), "no way in: {address}:{port}");
    Ok(format!("http://{address}:{port}"))
}
