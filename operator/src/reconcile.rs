//! dereference → validate → build → apply → status. Reads as it runs; `validate` and `build` are pure.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_crds::Agent;
use kube::runtime::controller::Action;
use tokio::time::timeout;

use crate::{
    apply::apply,
    build::build,
    context::Context,
    dereference::dereference,
    error::Error,
    live::Place,
    seen::Kept,
    status,
    traces::{Labelled as _, Span},
    validate::validate,
};

/// One look at one Agent, which may not take for ever.
pub async fn reconcile(kept: Arc<Kept>, context: Arc<Context>) -> Result<Action, Error> {
    context.live.completed().await;
    let span = context.traces.reconcile(&Place::of(&*kept));
    let look = Box::pin(async {
        match kept.read() {
            Ok(agent) => steps(&agent, &context, &span).await,
            Err(why) => status::unreadable(&context, &kept, &why).await,
        }
    });
    let looked = timeout(context.settings.reconcile_timeout, look).await.unwrap_or(Err(Error::TimedOut));
    looked.inspect_err(|error| span.failed(error))
}

async fn steps(agent: &Agent, context: &Context, span: &Span) -> Result<Action, Error> {
    if agent.metadata.deletion_timestamp.is_some() {
        // Everything is owned: the garbage collector follows.
        return Ok(Action::await_change());
    }
    let started = Instant::now();
    let found = span.step("dereference", dereference(context, agent)).await?;
    let verdict = validate(agent, &found);
    let applied = match verdict.hold {
        None => {
            let resources = build(agent, &found.inputs)?;
            span.step("apply", Box::pin(apply(context, agent, resources))).await
        }
        Some(_) => Ok(false),
    };
    let rollout = context.rollout(agent).or(found.rollout);
    let said = agent.status.clone().unwrap_or_default();
    let update = status::update(context, agent, said, &verdict, rollout.as_ref(), applied.as_ref().err());
    span.step("status", update).await?;
    let again = applied?;

    context.memory.succeeded(&Place::of(agent));
    context.metrics.reconciled(started.elapsed());
    Ok(if again { Action::requeue(Duration::ZERO) } else { Action::await_change() })
}

/// Each Agent has its own patience.
pub fn on_error(agent: &Kept, error: &Error, context: &Context) -> Action {
    let place = Place::of(agent);
    let wait = context.memory.failed(&place, error.is_permanent());
    context.metrics.failed(error.label());
    tracing::warn!(agent = %place, %error, label = error.label(), retry_in = ?wait, "reconcile failed");
    Action::requeue(wait)
}
