//! dereference → validate → build → apply → status. Reads as it runs; `validate` and `build` are pure.

use std::time::{Duration, Instant};

use holdfast_crds::Agent;
use kube::Resource;
use tokio::time::timeout;

use crate::{
    agents::Kept,
    apply::{Applied, apply},
    build::build,
    context::Context,
    dereference::dereference,
    error::Error,
    live::Place,
    status,
    traces::{Labelled as _, Span},
    validate::{accepted, validate},
};

/// What has just been applied is told this much later, or as soon as something comes of it, whichever is first.
const MORE_FOLLOWS: Duration = Duration::from_millis(200);

/// One look at one Agent, which may not take for ever. Says when to look again, where nothing happens before.
pub async fn reconcile(place: &Place, context: &Context) -> Option<Duration> {
    // It may be gone between the event and the look.
    let (place, kept) = context.agents.get(place)?;
    let span = context.traces.reconcile(&place);
    let limit = context.settings.reconcile_timeout;
    let agent = kept.read(&place);
    let look = async {
        match &agent {
            Ok(agent) => Box::pin(steps(&place, agent, &kept, context, &span)).await,
            Err(why) => status::unreadable(context, &place, &kept, why).await.map(|()| None),
        }
    };
    let error = match timeout(limit, look).await.unwrap_or(Err(Error::TimedOut)) {
        Ok(again) => {
            context.memory.succeeded(&place);
            return again;
        }
        Err(error) => error,
    };
    span.failed(&error);
    // What failed later was told with all that was found.
    let untold = matches!(error, Error::Dereference { .. } | Error::TimedOut);
    if let Ok(agent) = &agent
        && untold
        && context.must_be_told(&place, &error)
    {
        // Where this fails too there is nobody to tell.
        let _ = timeout(limit, status::failed(context, &place, agent, &kept, &accepted(agent), &error)).await;
    }
    Some(on_error(&place, &error, context))
}

async fn steps(
    place: &Place,
    agent: &Agent,
    kept: &Kept,
    context: &Context,
    span: &Span,
) -> Result<Option<Duration>, Error> {
    if agent.meta().deletion_timestamp.is_some() {
        // Everything is owned: the garbage collector follows.
        return Ok(None);
    }
    let started = Instant::now();
    let found = span.step("dereference", dereference(context, place, agent)).await?;
    let verdict = validate(agent, &found);
    let made_of = context.made_of(agent, &found.inputs);
    let applied = match verdict.hold {
        None => {
            let applied = Box::pin(async {
                if context.live.is_settled(place, made_of) {
                    return Ok(Applied::Done);
                }
                Box::pin(apply(context, place, agent, build(agent, &found.inputs)?, made_of)).await
            });
            span.step("apply", applied).await
        }
        Some(_) => Ok(Applied::Done),
    };
    match &applied {
        Err(error) if !context.must_be_told(place, error) => {}
        Ok(Applied::MoreFollows | Applied::Overtaken) if context.memory.hold_back(place) => {}
        _ => {
            let rollout = context.rollout(place, agent).or(found.rollout);
            let failure = applied.as_ref().err();
            let update = status::update(context, place, agent, kept, &verdict, rollout.as_ref(), failure);
            span.step("status", update).await?;
            context.memory.caught_up(place);
        }
    }
    let again = match applied? {
        Applied::Done => None,
        Applied::MoreFollows => Some(MORE_FOLLOWS),
        Applied::Overtaken => Some(Duration::ZERO),
    };
    context.metrics.reconciled(started.elapsed());
    Ok(again)
}

/// Each Agent has its own patience.
fn on_error(place: &Place, error: &Error, context: &Context) -> Duration {
    let wait = context.memory.failed(place, error.is_permanent());
    context.metrics.failed(error.label());
    tracing::warn!(agent = %place, %error, label = error.label(), retry_in = ?wait, "reconcile failed");
    wait
}
