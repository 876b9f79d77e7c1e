//! The fifth step: what the Agent's status says. Written on failure too, and only when something changed.

use holdfast_crds::{Agent, AgentStatus};
use http::{HeaderValue, header::ACCEPT};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Resource,
    api::{Patch, PatchParams, Request},
};
use serde::{Deserialize, Serialize};

use crate::{
    agents::Kept,
    conditions::{self, Finding, Truth, reason},
    context::Context,
    error::Error,
    live::Place,
    names,
    rollout::Rollout,
    validate::{Hold, Verdict},
};

/// Of the answer nobody needs more.
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// What was found and what came of it. Whether more has happened to the Agent since.
pub async fn update<A: Resource<DynamicType = ()>>(
    context: &Context,
    place: &Place,
    agent: &A,
    kept: &Kept,
    verdict: &Verdict,
    rollout: Option<&Rollout>,
    failure: Option<&Error>,
) -> Result<(), Error> {
    let old = kept.status(place);
    let new = status(place, agent, &old, verdict, rollout, failure, Timestamp::now());
    write(context, place, agent, &old, &new).await
}

/// It could not even be found out what is to be done: what was said stays, and why it is not being worked on is added.
pub async fn failed(
    context: &Context,
    place: &Place,
    agent: &Agent,
    kept: &Kept,
    accepted: &Finding,
    failure: &Error,
) -> Result<(), Error> {
    let old = kept.status(place);
    let unknown = |reason, what: &str| Finding::unknown(reason, format!("{what} could not be looked up yet"));
    let verdict = Verdict {
        accepted: accepted.clone(),
        resolved: unknown(reason::NOT_CHECKED, "what the manifest points at"),
        store_ready: unknown(reason::NOT_CHECKED, "the store"),
        store_durable: unknown(reason::UNKNOWN, "the store"),
        hold: None,
    };
    let rollout = context.rollout(place, agent);
    let mut new = status(place, agent, &old, &verdict, rollout.as_ref(), Some(failure), Timestamp::now());
    for condition in &mut new.conditions {
        let known = old.conditions.iter().find(|known| known.type_ == condition.type_);
        let stays = condition.status == Truth::Unknown.word() || condition.type_ == conditions::READY;
        if let Some(known) = known.filter(|_| stays) {
            condition.clone_from(known);
        }
    }
    write(context, place, agent, &old, &new).await
}

/// An Agent of another version's making, which this one cannot read: what runs is left, and the status says why.
pub async fn unreadable(
    context: &Context,
    place: &Place,
    kept: &Kept,
    why: &serde_json::Error,
) -> Result<(), Error> {
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
    let identity = kept.identity(place);
    let rollout = context.rollout(place, &identity);
    update(context, place, &identity, kept, &verdict, rollout.as_ref(), None).await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Identity<'a>,
    status: &'a AgentStatus,
}

#[derive(Serialize)]
struct Identity<'a> {
    name: &'a str,
    /// An Agent that was deleted and made again in between is not this one.
    uid: &'a Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

/// Nothing, where nothing has changed.
async fn write<A: Resource<DynamicType = ()>>(
    context: &Context,
    place: &Place,
    agent: &A,
    old: &AgentStatus,
    new: &AgentStatus,
) -> Result<(), Error> {
    if new == old {
        return Ok(());
    }
    let applied = Applied {
        api_version: &Agent::api_version(&()),
        kind: &Agent::kind(&()),
        metadata: Identity { name: place.name(), uid: &agent.meta().uid },
        status: new,
    };
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let agents = Request::new(Agent::url_path(&(), Some(place.namespace())));
    let request = agents.patch_subresource("status", place.name(), &params, &Patch::Apply(&applied));
    let mut request = request.map_err(|error| Error::Status(Box::new(kube::Error::BuildRequest(error))))?;
    request.headers_mut().insert(ACCEPT, METADATA);
    let writing = context.agents.writes(place);
    match context.client.request::<Answer>(request).await {
        Ok(Answer { metadata }) => {
            context.agents.wrote(place, metadata.resource_version.as_ref().into(), new);
        }
        // Deleted, or made again, while we looked: there is nobody to tell.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
        Err(source) => return Err(Error::Status(Box::new(source))),
    }
    drop(writing);
    context.metrics.writes.inc();
    tell(context, place, agent, old, new).await;
    Ok(())
}

/// Pure: the status as it should be now.
fn status(
    place: &Place,
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
    AgentStatus {
        observed_generation: generation,
        replicas: rollout.map_or(0, |rollout| rollout.replicas),
        ready_replicas: rollout.map_or(0, |rollout| rollout.ready),
        selector: Some(names::selector_text(place)),
        endpoint: Some(names::endpoint(place)),
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
        return Finding::no(failure.reason(), failure.to_string());
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

/// Pure: every condition that has changed its mind, and whether that is a warning; a first word only where there is
/// something to warn of. That a rollout is complete needs no word beside that the agent is ready.
fn news<'a>(old: &AgentStatus, new: &'a AgentStatus) -> Vec<(&'a Condition, bool)> {
    let is_good = |condition: &Condition| condition.status == "True" || condition.reason == reason::COMPLETE;
    let changed = |condition: &&Condition| {
        let before = old.conditions.iter().find(|before| before.type_ == condition.type_);
        before.map_or(!is_good(condition) && condition.type_ != conditions::READY, |before| {
            (&before.status, &before.reason) != (&condition.status, &condition.reason)
        })
    };
    let mut news: Vec<&Condition> = new.conditions.iter().filter(changed).collect();
    if news.iter().any(|condition| condition.reason == reason::READY) {
        news.retain(|condition| condition.reason != reason::COMPLETE);
    }
    let is_warning = |condition: &Condition| !is_good(condition) && condition.status != Truth::Unknown.word();
    news.into_iter().map(|condition| (condition, is_warning(condition))).collect()
}

/// An Event for every piece of news.
async fn tell<A: Resource<DynamicType = ()>>(
    context: &Context,
    place: &Place,
    agent: &A,
    old: &AgentStatus,
    new: &AgentStatus,
) {
    for (condition, warning) in news(old, new) {
        // An Event that cannot be written is not worth failing for: the status says the same.
        if let Err(error) = context.events.tell(agent, condition, warning).await {
            tracing::warn!(agent = %place, %error, "an Event could not be written");
        }
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
