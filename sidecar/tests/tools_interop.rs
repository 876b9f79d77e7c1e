//! Our client against servers on the protocol's own Python SDK, of both eras, as they are published.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use holdfast_crds::Agent;
use holdfast_sidecar::secrets::Secrets;
use holdfast_sidecar::state::{Block, Id, Slot};
use holdfast_sidecar::tools::{Caller, Safety, ToolCall, ToolOutput, Tools, from_manifest};
use holdfast_tests::unmodified::{Server, or_skip, python};
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools_interop_server.py");

async fn connected(server: &Server) -> Arc<dyn Tools> {
    let url = format!("http://{}/mcp", server.address);
    let agent: Agent = serde_json::from_value(json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "test"},
        "spec": {
            "model": {"provider": "OpenAI", "name": "x"},
            "tools": [{"name": "sdk", "mcp": {"url": url, "trustAnnotations": true}}],
        },
    }))
    .expect("a manifest");
    let tools = from_manifest(&agent, &Secrets::new(None, None, |_| None), None).expect("tools");
    for _ in 0..10 {
        tools.settle().await;
        if tools.specs().len() > 1 {
            break;
        }
    }
    tools
}

async fn run(tools: &Arc<dyn Tools>, name: &str, input: &Value) -> ToolOutput {
    let (slot, call) = (Slot::new(None, "s").expect("a slot"), Id::new("call", "c").expect("an id"));
    let caller = Caller { slot: &slot, call: &call, fence: 1 };
    tools
        .run(ToolCall { id: "t1", name, input, idempotency_key: "key-1", caller, context: &Arc::default() })
        .await
}

fn said(output: &ToolOutput) -> String {
    output.content.iter().filter_map(Block::as_text).collect()
}

async fn speaks(requirement: &str) {
    let Some(python) = or_skip(python(requirement)) else { return };
    let server = Server::start(|port| {
        let mut command = Command::new(python);
        command.arg(SERVER).arg(port.to_string());
        command
    })
    .await
    .expect("a server");
    let tools = connected(&server).await;
    let specs = tools.specs();
    let add = specs.iter().find(|spec| spec.name == "add").expect("the tool is offered");
    assert_eq!((add.safety, add.description.as_str()), (Safety::ReadOnly, "Add two numbers."));
    assert_eq!(said(&run(&tools, "add", &json!({"a": 2, "b": 3})).await), "5");
    assert!(said(&run(&tools, "add", &json!({"a": 2})).await).contains("missing: b"));
    let wrong = run(&tools, "add", &json!({"a": "two", "b": 3})).await;
    assert!(wrong.is_error, "{wrong:?}");
    let boom = run(&tools, "boom", &json!({})).await;
    assert!(boom.is_error && said(&boom).contains("boom"), "{boom:?}");
    let picture = run(&tools, "picture", &json!({})).await;
    assert!(
        matches!(&picture.content[0], Block::Image { source, .. } if source["mediaType"] == "image/png"),
        "{picture:?}"
    );
    assert_eq!(said(&run(&tools, "key", &json!({})).await), "key-1");
    assert_eq!(said(&run(&tools, "grow", &json!({})).await), "grown");
    for _ in 0..100 {
        if tools.specs().iter().any(|spec| spec.name == "grown") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the new tool was never offered");
}

#[tokio::test]
async fn a_server_of_the_era_with_sessions() {
    speaks("mcp==1.30.0").await;
}

#[tokio::test]
async fn a_server_of_the_era_without_sessions() {
    speaks("mcp==2.3.0").await;
}
