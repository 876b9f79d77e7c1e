//! One process at a time on one folder: what the last one left unfinished, the next one finishes.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_tests::fake_model::{FakeModel, obey};
use holdfast_tests::http::Http;
use holdfast_tests::replica::Replica;
use serde_json::{Value, json};

const GRACE: Duration = Duration::from_secs(20);
/// A process looks once a second for work that nobody has.
const LOOKED: Duration = Duration::from_millis(1500);

struct Bench {
    folder: tempfile::TempDir,
    model: FakeModel,
    http: Http,
}

impl Bench {
    async fn new(resume: &str) -> Result<Self> {
        let (folder, model) = (tempfile::tempdir()?, FakeModel::start(obey).await?);
        let manifest = format!(
            "apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata: {{ name: laptop }}
spec:
  model: {{ provider: OpenAI, name: fake, baseUrl: {} }}
  stateStore: {{ type: JsonFile, jsonFile: {{ path: {} }} }}
  session: {{ resume: {resume} }}
  shutdown: {{ preStopDelay: 0s, drainTimeout: 0s }}
",
            model.url(),
            folder.path().join("state").display()
        );
        std::fs::write(folder.path().join("agent.yaml"), manifest)?;
        Ok(Self { folder, model, http: Http::default() })
    }

    async fn process(&self, name: &str) -> Result<Replica> {
        Replica::start(self.folder.path(), name, &self.folder.path().join("agent.yaml"), &[]).await
    }

    /// A call that the model is asked about and does not answer in time.
    async fn unfinished(&self, process: &Replica) -> Result<()> {
        let call = json!({"input": "one #{\"delayMs\":2000}", "callId": "c-1", "background": true});
        self.http.post(&format!("{}/v1/calls", process.url), &call).await?;
        self.asked(1).await
    }

    async fn asked(&self, times: usize) -> Result<()> {
        for _ in 0..2000 {
            if self.model.seen().len() >= times {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("the model was asked {} times, not {times}", self.model.seen().len())
    }

    async fn call(&self, process: &Replica, call: &str) -> Result<Value> {
        Ok(self.http.get(&format!("{}/v1/calls/{call}", process.url)).await?.body)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_at_the_start_of_the_next_process() -> Result<()> {
    for signal in ["TERM", "INT", "KILL"] {
        let bench = Bench::new("Immediate").await?;
        let mut first = bench.process("first").await?;
        bench.unfinished(&first).await?;
        first.signal(signal)?;
        let status = first.ended(GRACE).await?;
        ensure!(status.success() == (signal != "KILL"), "{signal}: {status}");
        let second = bench.process("second").await?;
        bench.asked(2).await?;
        ensure!(
            bench.call(&second, "c-1").await?["status"] == "running",
            "nobody called, and yet it goes on"
        );
        let found = json!({"input": "one #{\"delayMs\":2000}", "callId": "c-1"});
        let answer = bench.http.post(&format!("{}/v1/calls", second.url), &found).await?.body;
        ensure!(answer["status"] == "completed" && answer["resumes"] == 1, "{signal}: {answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_the_next_call_where_the_manifest_says_so() -> Result<()> {
    let bench = Bench::new("OnNextCall").await?;
    let mut first = bench.process("first").await?;
    bench.unfinished(&first).await?;
    first.signal("TERM")?;
    ensure!(first.ended(GRACE).await?.success());
    let second = bench.process("second").await?;
    tokio::time::sleep(LOOKED).await;
    ensure!(bench.model.seen().len() == 1, "it went on although nobody called");
    ensure!(bench.call(&second, "c-1").await?["status"] == "suspended");
    let next = json!({"input": "two", "callId": "c-2"});
    let answer = bench.http.post(&format!("{}/v1/calls", second.url), &next).await?.body;
    ensure!(answer["text"] == "You said: two (turn 2)", "the first is finished first: {answer}");
    ensure!(bench.call(&second, "c-1").await?["status"] == "completed");
    Ok(())
}
