//! The pod of a managed Redis is deleted: it comes back on its volume, with everything it had acknowledged. An absence of a few
//! seconds no call notices; a longer one cuts clients off, who ask again and get the rest.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::stage::{AGENT, Stage};
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::cluster::{Namespace, budgets, redis};

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set_without_store(namespace, &redis::managed())?;
    let pod = redis::managed_pod(AGENT);
    let ran = stage.under_load(Talk { sessions: 20, long: false, leave: true, files: false }, || {
        let before = redis::uid(namespace, &pod)?;
        stage.note("delete the Redis pod");
        namespace.kubectl(&["delete", "pod", &pod, "--wait=false"])?;
        redis::back(namespace, &pod, &before, budgets::REDIS_BACK)?;
        stage.flows()?;
        // The operator would bring it back at once.
        let agent = format!("agent/{AGENT}");
        namespace.kubectl(&["annotate", &agent, "holdfast.dev/paused=true"])?;
        stage.note("delete it for a while");
        redis::stays_away(&stage, &redis::managed_name(AGENT), budgets::REDIS_BACK)?;
        namespace.kubectl(&["annotate", &agent, "holdfast.dev/paused-"])?;
        stage.flows()
    })?;
    stage.report("managed_redis_deleted", &ran, |ran| {
        ran.recovered()?;
        ensure!(
            stage.pods.lives().values().all(|life| life.ends.is_empty()),
            "an agent ended for want of its store"
        );
        Ok(())
    })
}
