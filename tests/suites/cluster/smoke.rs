//! The shortest way through the whole product: the CRD installs, an Agent becomes pods, a call through the Service's
//! name gets an answer, and the conversation is in the store.

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::stage::REDIS;
use holdfast_tests::cluster::{Namespace, budgets, eventually, operator};

const AGENT: &str = include_str!("smoke/agent.yaml");
const CLIENT: &str = include_str!("smoke/client.yaml");

pub fn run(namespace: &Namespace) -> Result<String> {
    namespace.apply(REDIS)?;
    namespace.apply(CLIENT)?;
    namespace.wait("pod/redis", "condition=Ready", budgets::POD_READY)?;
    namespace.wait("pod/client", "condition=Ready", budgets::POD_READY)?;
    namespace.apply(AGENT)?;
    namespace.wait("agent/smoke", "condition=Ready", budgets::AGENT_READY)?;

    let first = call(namespace, "hello")?;
    ensure!(first["status"] == "completed" && first["version"] == 1, "not a first answer: {first}");
    let second = call(namespace, "and again")?;
    ensure!(second["version"] == 2, "the conversation did not go on: {second}");
    let checked = eventually("`helm test`", budgets::OPERATOR_READY, operator::test)?;
    ensure!(checked.contains("Succeeded"), "`helm test` says:\n{checked}");
    Ok("  an Agent became pods, and answered by the name of its Service; `helm test` succeeded".into())
}

/// A call by the Service's name, from a pod that is nobody special.
fn call(namespace: &Namespace, text: &str) -> Result<serde_json::Value> {
    let url = format!("http://smoke.{}.svc:8080/v1/users/alice/sessions/s1/calls", namespace.name());
    let body = serde_json::json!({ "input": text, "callId": text }).to_string();
    let answer = eventually("an answer through the Service", budgets::FIRST_ANSWER, || {
        namespace.kubectl(&[
            "exec",
            "client",
            "--",
            "curl",
            "-sS",
            "--fail-with-body",
            "-m",
            "10",
            "-H",
            "content-type: application/json",
            "-d",
            &body,
            &url,
        ])
    })?;
    serde_json::from_str(&answer).with_context(|| format!("not JSON: {answer}"))
}
