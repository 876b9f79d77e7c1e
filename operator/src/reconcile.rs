//! dereference → validate → build → apply → status. Reads as it runs; `validate` and `build` are pure.

use std::{sync::Arc, time::Instant};

use holdfast_crds::Agent;
use kube::runtime::controller::Action;
use tokio::time::timeout;

use crate::{
    apply::apply, build::build, context::Context, dereference::dereference, error::Error, status,
    validate::validate,
};

/// One look at one Agent, which may not take for ever.
pub async fn reconcile(agent: Arc<Agent>, context: Arc<Context>) -> Result<Action, Error> {
    context.live.completed().await;
    let steps = Box::pin(steps(&agent, &context));
    timeout(context.settings.reconcile_timeout, steps).await.unwrap_or(Err(Error::TimedOut))
}

async fn steps(agent: &Agent, context: &Context) -> Result<Action, Error> {
    if agent.metadata.deletion_timestamp.is_some() {
        // Everything is owned: the garbage collector follows.
        context.memory.forget(agent);
        return Ok(Action::await_change());
    }
    let started = Instant::now();
    let found = dereference(context, agent).await?;
    let verdict = validate(agent, &found);
    let applied = match verdict.hold {
        None => {
            let resources = build(agent, &found.inputs)?;
            Box::pin(apply(context, agent, resources)).await
        }
        Some(_) => Ok(()),
    };
    let rollout = context.rollout(agent).or(found.rollout);
    status::update(context, agent, &verdict, rollout.as_ref(), applied.as_ref().err()).await?;
    applied?;

    context.memory.succeeded(agent);
    context.metrics.reconciled(started.elapsed());
    // Only a store has to be asked again; everything else is watched.
    let next_check =
        context.memory.checked(agent).filter(|_| found.store.is_some()).map(|checked| checked.due());
    Ok(next_check.map_or_else(Action::await_change, Action::requeue))
}

/// Each Agent has its own patience.
pub fn on_error(agent: &Agent, error: &Error, context: &Context) -> Action {
    let wait = context.memory.failed(agent, error.is_permanent());
    context.metrics.failed(error.label());
    tracing::warn!(%error, label = error.label(), retry_in = ?wait, "reconcile failed");
    Action::requeue(wait)
}
