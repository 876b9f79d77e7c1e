//! The fifth step: what the Agent's status says. Written on failure too, and only when something changed.

use holdfast_crds::{Agent, AgentStatus};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::json;

use crate::{
    conditions::{self, Finding, Truth, reason},
    context::Context,
    error::Error,
    live::Place,
    names,
    rollout::Rollout,
    seen::Kept,
    validate::{Hold, Verdict},
};

pub async fn update<A: Resource<DynamicType = ()>>(
    context: &Context,
    agent: &A,
    old: AgentStatus,
    verdict: &Verdict,
    rollout: Option<&Rollout>,
    failure: Option<&Error>,
) -> Result<(), Error> {
    let place = Place::of(agent);
    let old = context.memory.written(&place).unwrap_or(old);
    let new = status(agent, &old, verdict, rollout, failure, Timestamp::now());
    if new == old {
        return Ok(());
    }
    let namespace = agent.namespace().unwrap_or_default();
    let api: Api<Kept> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "apiVersion": Agent::api_version(&()),
        "kind": Agent::kind(&()),
        // An Agent that was deleted and made again in between is not this one.
        "metadata": {"name": agent.name_any(), "uid": agent.uid()},
        "status": new,
    });
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    match api.patch_status(&agent.name_any(), &params, &Patch::Apply(&patch)).await {
        Ok(written) => {
            context.memory.wrote(place, written.meta().resource_version.as_ref().into(), new.clone());
        }
        // Deleted, or made again, while we looked: there is nobody to tell.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
        Err(source) => return Err(Error::Status(Box::new(source))),
    }
    context.metrics.writes.inc();
    tell(context, agent, &old, &new).await;
    Ok(())
}

/// An Agent of another version's making, which this one cannot read: what runs is left, and the status says why.
pub async fn unreadable(context: &Context, kept: &Kept, why: &serde_json::Error) -> Result<Action, Error> {
    let unknown = || Finding::unknown(reason::UNKNOWN, "the manifest cannot be read");
    let verdict = Verdict {
        accepted: Finding::no(
            reason::UNREADABLE,
            format!("the manifest cannot be read: {why}; correct it, or install the operator that knows it"),
        ),
        resolved: unknown(),
        store_ready: unknown(),
        store_durable: unknown(),
        hold: Some(Hold::NotAccepted),
    };
    let rollout = context.rollout(kept);
    update(context, kept, kept.status(), &verdict, rollout.as_ref(), None).await?;
    Ok(Action::await_change())
}

/// Pure: the status as it should be now.
fn status(
    agent: &impl Resource,
    old: &AgentStatus,
    verdict: &Verdict,
    rollout: Option<&Rollout>,
    failure: Option<&Error>,
    now: Timestamp,
) -> AgentStatus {
    let generation = agent.meta().generation;
    let progressing = progressing(verdict, rollout, failure);
    let ready = ready(verdict, rollout);
    let rolled_out = verdict.hold.is_none() && failure.is_none() && rollout.is_some_and(Rollout::is_complete);
    let old_ready = old.conditions.iter().find(|condition| condition.type_ == conditions::READY);
    // Ready speaks of the newest manifest only once that is what runs; until then `kubectl wait` goes on waiting.
    let ready_generation = match old_ready {
        Some(old_ready) if ready.truth == Truth::True && !rolled_out => old_ready.observed_generation,
        _ => generation,
    };
    let condition = |type_: &str, finding: &Finding, generation: Option<i64>| {
        let old = old.conditions.iter().find(|condition| condition.type_ == type_);
        let since =
            old.filter(|old| old.status == finding.truth.word()).map(|old| old.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: finding.truth.word().to_owned(),
            reason: finding.reason.to_owned(),
            message: finding.message.clone(),
            observed_generation: generation,
            last_transition_time: since.unwrap_or(Time(now)),
        }
    };
    let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
    AgentStatus {
        observed_generation: generation,
        replicas: rollout.map_or(0, |rollout| rollout.replicas),
        ready_replicas: rollout.map_or(0, |rollout| rollout.ready),
        selector: Some(format!("{}={name}", names::AGENT_LABEL)),
        endpoint: Some(format!("http://{name}.{namespace}.svc:{}", names::CLIENT_PORT)),
        conditions: vec![
            condition(conditions::ACCEPTED, &verdict.accepted, generation),
            condition(conditions::RESOLVED_REFS, &verdict.resolved, generation),
            condition(conditions::STATE_STORE_READY, &verdict.store_ready, generation),
            condition(conditions::STATE_STORE_DURABLE, &verdict.store_durable, generation),
            condition(conditions::PROGRESSING, &progressing, generation),
            condition(conditions::READY, &ready, ready_generation),
        ],
    }
}

fn progressing(verdict: &Verdict, rollout: Option<&Rollout>, failure: Option<&Error>) -> Finding {
    let left = if rollout.is_some() { "what runs is left as it is" } else { "nothing is started" };
    if let Some(hold) = verdict.hold {
        let why = match hold {
            Hold::NotAccepted => "the manifest is not accepted",
            Hold::Unresolved => "something the manifest points at is missing",
            Hold::StoreRefuses => "the store cannot be used",
            Hold::Paused => "the annotation holdfast.dev/paused is set",
        };
        let reason = if hold == Hold::Paused { reason::PAUSED } else { reason::HELD };
        return Finding::no(reason, format!("{why}: {left}"));
    }
    if let Some(failure) = failure {
        return Finding::no(reason::APPLY_FAILED, failure.to_string());
    }
    match rollout {
        None => Finding::yes(reason::ROLLING_OUT, "the replicas are being made"),
        Some(rollout) if rollout.is_complete() => {
            Finding::no(reason::COMPLETE, "every replica is as the manifest says")
        }
        Some(Rollout { stuck: Some(why), .. }) => Finding::no(reason::DEADLINE_EXCEEDED, why.clone()),
        Some(rollout) => Finding::yes(
            reason::ROLLING_OUT,
            format!(
                "{} of {} replicas are as the manifest says",
                rollout.updated.min(rollout.desired),
                rollout.desired
            ),
        ),
    }
}

fn ready(verdict: &Verdict, rollout: Option<&Rollout>) -> Finding {
    match verdict.hold {
        Some(Hold::NotAccepted) => {
            return Finding::no(reason::NOT_ACCEPTED, verdict.accepted.message.clone());
        }
        Some(Hold::Unresolved) => {
            return Finding::no(reason::UNRESOLVED_REFS, verdict.resolved.message.clone());
        }
        Some(Hold::StoreRefuses) => {
            return Finding::no(reason::STATE_STORE_NOT_READY, verdict.store_ready.message.clone());
        }
        Some(Hold::Paused) | None => {}
    }
    match rollout {
        None => Finding::no(reason::REPLICAS_UNAVAILABLE, "no replica answers yet"),
        Some(rollout) if rollout.desired == 0 => {
            Finding::no(reason::SCALED_TO_ZERO, "no replicas are asked for")
        }
        Some(rollout) if rollout.is_available() && rollout.observed_generation > 0 => Finding::yes(
            reason::READY,
            format!("{} of {} replicas answer", rollout.available, rollout.desired),
        ),
        Some(rollout) => Finding::no(
            reason::REPLICAS_UNAVAILABLE,
            format!("{} of {} replicas answer", rollout.available, rollout.desired),
        ),
    }
}

/// An Event for every change of mind; a first word only where there is something to warn of.
async fn tell<A: Resource<DynamicType = ()>>(
    context: &Context,
    agent: &A,
    old: &AgentStatus,
    new: &AgentStatus,
) {
    for condition in &new.conditions {
        let before = old.conditions.iter().find(|before| before.type_ == condition.type_);
        let good = condition.status == "True" || condition.reason == reason::COMPLETE;
        let news = match before {
            Some(before) => (&before.status, &before.reason) != (&condition.status, &condition.reason),
            None => !good && condition.type_ != conditions::READY,
        };
        if !news {
            continue;
        }
        let warning = !good && condition.status != "Unknown";
        // An Event that cannot be written is not worth failing for: the status says the same.
        if let Err(error) = context.events.tell(agent, condition, warning).await {
            tracing::warn!(agent = %Place::of(agent), %error, "an Event could not be written");
        }
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
