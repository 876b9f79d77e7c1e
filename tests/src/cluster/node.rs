//! What is done to a node, or from it: behind the kubelet's back with the container engine that runs the nodes, or as an
//! administrator would with kubectl.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{budgets, kubectl, run};

/// `kill -9` for a pod's container, from its node: the kubelet learns of it afterwards.
pub fn kill(pod: &Value, container: &str) -> Result<()> {
    let node = super::stage::node(pod);
    let statuses = pod["status"]["containerStatuses"].as_array();
    let status = statuses.into_iter().flatten().find(|status| status["name"] == container);
    let id = status.and_then(|status| status["containerID"].as_str()).context("the container has no id")?;
    let id = id.strip_prefix("containerd://").unwrap_or(id);
    let inspect = ["exec", node, "crictl", "inspect", "-o", "go-template", "--template", "{{.info.pid}}", id];
    let pid = run("docker", &inspect, None)?;
    let pid = pid.trim();
    ensure!(pid.parse::<u32>().is_ok(), "no process id: {pid}");
    run("docker", &["exec", node, "kill", "-9", pid], None).map(drop)
}

/// A node that takes no pods. Open again when this is dropped.
pub struct Closed(String);

/// `kubectl drain`.
pub fn drain(node: &str) -> Result<Closed> {
    let closed = Closed(node.to_owned());
    evict(node, budgets::DRAINED)?;
    Ok(closed)
}

/// `kubectl drain` by somebody who loses patience. Where a replica that was moved cannot become ready, no other may go.
pub fn drain_in_part(node: &str) -> Result<Closed> {
    let closed = Closed(node.to_owned());
    match evict(node, budgets::PATIENCE) {
        Err(error) if !error.to_string().contains("timeout reached") => Err(error),
        _ => Ok(closed),
    }
}

fn evict(node: &str, within: Duration) -> Result<()> {
    let timeout = format!("--timeout={}s", within.as_secs());
    // Bare pods of suites that have just ended may still be on it.
    let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", &timeout];
    kubectl(&args).map(drop)
}

impl Closed {
    pub fn uncordon(self) -> Result<()> {
        kubectl(&["uncordon", &self.0]).map(drop)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _ = kubectl(&["uncordon", &self.0]);
    }
}

/// The nodes that carry pods.
pub fn workers() -> Result<Vec<String>> {
    let names = kubectl(&[
        "get",
        "nodes",
        "-l",
        "!node-role.kubernetes.io/control-plane",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ])?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}
