//! A desk: one agent with files, as real processes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use holdfast_tests::fake_model::FakeModel;
use holdfast_tests::http::Http;
use holdfast_tests::ledger::Ledger;
use holdfast_tests::redis::{Options, RedisServer};
use holdfast_tests::replica::Replica;
use hyper::Method;
use serde_json::{Value, json};

/// What every edited file begins as.
pub const OLD: &str = "top\nEND\n";
const USER: &str = "/v1/users/u/sessions";

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Files and sessions in a folder.
    Local,
    /// Both in Redis.
    Remote,
}

pub struct Desk {
    folder: tempfile::TempDir,
    _redis: Option<RedisServer>,
    _model: FakeModel,
    http: Http,
    started: AtomicUsize,
}

/// Orders for the fake model: put `mark` before the end of a file.
pub fn edit(path: &str, mark: &str) -> String {
    let input = json!({"path": path, "old_string": "END", "new_string": format!("{mark}\nEND")});
    json!({"tools": [{"name": "edit_file", "input": input}]}).to_string()
}

/// What was put before the end, in order.
pub fn marks(text: &str) -> Vec<String> {
    text.lines().filter(|line| !matches!(*line, "top" | "END")).map(str::to_owned).collect()
}

impl Desk {
    pub async fn set(kind: Kind) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("holdfast-desk-").tempdir()?;
        let model = FakeModel::witness(([127, 0, 0, 1], 0).into(), Ledger::in_memory()).await?;
        let redis = (kind == Kind::Remote).then(|| RedisServer::start(Options::default())).transpose()?;
        let store = match &redis {
            None => json!({"type": "JsonFile", "jsonFile": {"path": folder.path().join("state")}}),
            Some(redis) => json!({"type": "Redis", "redis": {"url": redis.url()}}),
        };
        let manifest = json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "desk"},
            "spec": {
                "model": {"provider": "OpenAI", "name": "fake", "baseUrl": model.url()},
                "loop": {"callTimeout": "60s", "toolTimeout": "10s"},
                "stateStore": store,
                "filesystem": {"type": format!("{kind:?}")},
                "session": {"leaseDuration": "2s"},
                "shutdown": {"preStopDelay": "0s", "drainTimeout": "300ms", "relayTimeout": "30s"},
            },
        });
        // JSON is YAML.
        std::fs::write(folder.path().join("agent.yaml"), manifest.to_string())?;
        let started = AtomicUsize::new(0);
        Ok(Self { folder, _redis: redis, _model: model, http: Http::default(), started })
    }

    pub async fn replica(&self, env: &[(&str, &str)]) -> Result<Replica> {
        let name = format!("desk-{}", self.started.fetch_add(1, Ordering::Relaxed));
        Replica::start(self.folder.path(), &name, &self.folder.path().join("agent.yaml"), env).await
    }

    pub async fn hand_in(&self, replica: &Replica, path: &str, content: &str) -> Result<()> {
        let url = format!("{}{USER}/client/files/{path}", replica.url);
        let answer = self.http.put_text(&url, content, &[]).await?;
        ensure!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.body);
        Ok(())
    }

    pub async fn file(&self, replica: &Replica, path: &str) -> Result<String> {
        let answer = self.http.get(&format!("{}{USER}/client/files/{path}", replica.url)).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        answer.body.as_str().map(str::to_owned).context("not a text")
    }

    /// What the folder itself holds, with nobody there to mend it. `None` where there is no folder.
    pub fn on_disk(&self, path: &str) -> Result<Option<String>> {
        let users = self.folder.path().join("state/_workspaces/agents/desk/users");
        if !users.exists() {
            return Ok(None);
        }
        let tree = std::fs::read_dir(users)?.next().context("no tree")??.path();
        Ok(Some(std::fs::read_to_string(tree.join("files").join(path))?))
    }

    /// One call to its end, as long as the replica does not die over it.
    pub async fn call(&self, replica: &Replica, session: &str, call: &str, orders: &str) -> Result<Value> {
        let url = format!("{}{USER}/{session}/calls", replica.url);
        let body = json!({"input": format!("{call} #{orders}"), "callId": call});
        let answer = self.http.send(Method::POST, &url, Some(&body), &[]).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// Until a tool of this call has been started, by the call's own events.
    pub async fn until_tool_runs(&self, replica: &Replica, session: &str, call: &str) -> Result<()> {
        let url = format!("{}{USER}/{session}/calls/{call}/events", replica.url);
        for _ in 0..500 {
            if let Ok(mut events) = self.http.events(Method::GET, &url, None, None).await? {
                while let Some(event) = events.next().await? {
                    match event.name.as_str() {
                        "tool.started" => return Ok(()),
                        "call.completed" | "call.failed" => bail!("it ended before: {}", event.data),
                        _ => {}
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("no tool was started within 10 s")
    }
}
