//! Another password for Redis: the server takes the new one beside the old, the Secret is changed, the pods are rolled, the old
//! one is taken away. Nobody sees it.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use holdfast_tests::cluster::stage::{AGENT, REDIS, Stage, name};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets};
use serde_json::{Value, json};

const OLD: &str = "first-password";
const NEW: &str = "second-password";

pub fn run(namespace: &Namespace) -> Result<String> {
    namespace.apply(&secret(OLD).to_string())?;
    let by_secret =
        json!({"stateStore": {"redis": {"url": null, "urlSecretRef": {"name": "redis", "key": "url"}}}});
    namespace.apply(&REDIS.replace("\"--dir\"", &format!("\"--requirepass\", \"{OLD}\", \"--dir\"")))?;
    namespace.wait("pod/redis", "condition=Ready", budgets::POD_READY)?;
    let stage = Stage::set_without_store(namespace, &by_secret)?;
    let first = names(&stage)?;
    let ran = stage.under_load(Talk { sessions: 20, long: true, leave: true, files: false }, || {
        stage.note("both passwords");
        acl(namespace, OLD, &format!(">{NEW}"))?;
        stage.note("the Secret");
        namespace.apply(&secret(NEW).to_string())?;
        stage.replaced(&first)?;
        stage.note("only the new password");
        acl(namespace, NEW, &format!("<{OLD}"))?;
        // Whoever connects from here on has the new one.
        namespace.kubectl(&[
            "exec",
            "redis",
            "--",
            "redis-cli",
            "-a",
            NEW,
            "client",
            "kill",
            "type",
            "pubsub",
        ])?;
        namespace.kubectl(&["scale", &format!("agent/{AGENT}"), "--replicas=4"])?;
        stage.settled(4)
    })?;
    stage.report("redis_secret_rotated", &ran, |ran| ran.unseen(&stage))
}

fn names(stage: &Stage<'_>) -> Result<BTreeSet<String>> {
    Ok(stage.pod_list()?.iter().map(|pod| name(pod).to_owned()).collect())
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "redis"},
        "stringData": {"url": format!("redis://:{password}@redis:6379/0")},
    })
}

fn acl(namespace: &Namespace, password: &str, change: &str) -> Result<()> {
    let said = namespace.kubectl(&[
        "exec",
        "redis",
        "--",
        "redis-cli",
        "-a",
        password,
        "acl",
        "setuser",
        "default",
        change,
    ])?;
    ensure!(said.trim() == "OK", "Redis said {said}");
    Ok(())
}
