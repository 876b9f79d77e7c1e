//! Somebody's own cluster in place of ours: what the tests make there they mark, and what they marked they take away.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::run;
use crate::programs::program;

/// On every namespace of the tests.
pub const MARK: &str = "holdfast.dev/test";

pub(super) struct Given {
    kubeconfig: PathBuf,
    kubectl: String,
}

impl Given {
    /// Refuses a cluster that has Holdfast already: its definition is not ours to replace.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        let Some(kubeconfig) = std::env::var_os("HOLDFAST_TEST_KUBECONFIG") else { return Ok(None) };
        let kubectl = program("kubectl")?.display().to_string();
        let given = Self { kubeconfig: kubeconfig.into(), kubectl };
        let definition =
            given.ask(&["get", "crd", "agents.holdfast.dev", "--ignore-not-found", "-o", "name"])?;
        ensure!(
            definition.trim().is_empty(),
            "the cluster of HOLDFAST_TEST_KUBECONFIG has Agents already; name one without Holdfast, or unset it"
        );
        Ok(Some(given))
    }

    pub(super) fn admin(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// The same cluster, as the account that the operator's chart gives its rights to.
    pub(super) fn operator(&self) -> Result<String> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "holdfast", "namespace": "holdfast-system"}});
        self.tell(&["apply", "-f", "-"], &account.to_string())?;
        let token = self.ask(&["-n", "holdfast-system", "create", "token", "holdfast", "--duration=1h"])?;
        let view = self.ask(&["config", "view", "--minify", "--flatten", "-o", "json"])?;
        let mut config: Value = serde_json::from_str(&view).context("kubectl config view")?;
        config["users"] = json!([{"name": "operator", "user": {"token": token.trim()}}]);
        config["contexts"][0]["context"]["user"] = json!("operator");
        Ok(config.to_string())
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        self.kubectl(args, None)
    }

    fn tell(&self, args: &[&str], stdin: &str) -> Result<String> {
        self.kubectl(args, Some(stdin))
    }

    fn kubectl(&self, args: &[&str], stdin: Option<&str>) -> Result<String> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        run(&self.kubectl, &[&[kubeconfig.as_str()], args].concat(), stdin)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // The definition first: Agents go with it, and nobody is left to make their objects again.
        let made: [&[&str]; 3] = [
            &["delete", "crd", "agents.holdfast.dev", "--ignore-not-found"],
            &["delete", "namespace", "-l", MARK, "--wait=false"],
            &["delete", "clusterrole/holdfast", "clusterrolebinding/holdfast", "--ignore-not-found"],
        ];
        for args in made {
            if let Err(error) = self.ask(args) {
                eprintln!("left behind in the cluster: {error:#}");
            }
        }
    }
}
