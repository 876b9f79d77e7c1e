//! The operator, where a suite takes it away or brings another.

use anyhow::Result;

use super::{OPERATOR_NAMESPACE, budgets, helm, kubectl};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/holdfast");
const DEPLOYMENT: &str = "deployment/holdfast";

/// `helm upgrade` that replaces the operators, and tells them of another sidecar.
pub fn upgrade(sidecar: &str) -> Result<()> {
    let timeout = format!("{}s", budgets::OPERATOR_READY.as_secs());
    let image = format!("sidecar.image={sidecar}");
    helm(&[
        "upgrade",
        "holdfast",
        CHART,
        "-n",
        OPERATOR_NAMESPACE,
        "--reuse-values",
        "--set",
        &image,
        "--wait",
        "--timeout",
        &timeout,
    ])
    .map(drop)
}

/// `helm test`: what it prints.
pub fn test() -> Result<String> {
    let timeout = format!("{}s", budgets::POD_READY.as_secs());
    helm(&["test", "holdfast", "-n", OPERATOR_NAMESPACE, "--timeout", &timeout])
}

/// No operator at all. Back again when this is dropped.
pub struct Away(());

impl Away {
    pub fn send() -> Result<Self> {
        let away = Self(());
        scale(0)?;
        let wait = format!("--timeout={}s", budgets::OPERATOR_READY.as_secs());
        let pods = ["wait", "pod", "-l", "app.kubernetes.io/name=holdfast", "--for=delete", &wait];
        kubectl(&[&["-n", OPERATOR_NAMESPACE], pods.as_slice()].concat())?;
        Ok(away)
    }

    pub fn call_back(self) -> Result<()> {
        scale(2)?;
        let wait = format!("--timeout={}s", budgets::OPERATOR_READY.as_secs());
        kubectl(&["-n", OPERATOR_NAMESPACE, "rollout", "status", DEPLOYMENT, &wait]).map(drop)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let _ = scale(2);
    }
}

fn scale(replicas: u32) -> Result<()> {
    kubectl(&["-n", OPERATOR_NAMESPACE, "scale", DEPLOYMENT, &format!("--replicas={replicas}")]).map(drop)
}
