//! Tools that write down each time they run, in a ledger no replica can reach.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_sidecar::tools::{Safety, ToolCall, ToolOutput, ToolSpec, Tools};
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::pod::Gate;
use super::world::{ToolRun, World};

pub struct FakeTools {
    world: Arc<World>,
    gate: Arc<Gate>,
    specs: Arc<Vec<ToolSpec>>,
}

impl FakeTools {
    pub fn new(world: &Arc<World>, gate: &Arc<Gate>) -> Self {
        let schema: Arc<RawValue> = Arc::from(RawValue::from_string("{}".into()).expect("JSON"));
        let spec = |name: &str, safety| ToolSpec {
            name: name.into(),
            description: String::new(),
            schema: Arc::clone(&schema),
            safety,
        };
        let specs = vec![
            spec("look", Safety::ReadOnly),
            spec("set", Safety::Idempotent),
            spec("pay", Safety::Unsafe),
        ];
        Self { world: Arc::clone(world), gate: Arc::clone(gate), specs: Arc::new(specs) }
    }
}

#[async_trait]
impl Tools for FakeTools {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        Arc::clone(&self.specs)
    }

    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        self.gate.pass().await;
        let text = |field: &str| call.input[field].as_str().unwrap_or_default().to_owned();
        let (wanted, of) = (text("wanted"), text("call"));
        let safety = self.specs.iter().find(|spec| spec.name == call.name).map(|spec| spec.safety);
        let safety = safety.unwrap_or(Safety::ReadOnly);
        self.world.trace(|| format!("{} runs {} {wanted} of {of}", self.gate.name, call.name));
        self.world.count(match safety {
            Safety::ReadOnly => "read-only tool runs",
            Safety::Idempotent => "idempotent tool runs",
            Safety::Unsafe => "unsafe tool runs",
        });
        let key = call.idempotency_key.to_owned();
        self.world.ledger().tool_runs.push(ToolRun { call: of, safety, key, wanted: wanted.clone() });
        sleep(Duration::from_millis(call.input["ms"].as_u64().unwrap_or(0))).await;
        self.gate.pass().await;
        if call.input["fails"] == true {
            ToolOutput::error(format!("{wanted} failed"))
        } else {
            ToolOutput::text(format!("{wanted} done"))
        }
    }
}
