//! The first step: everything the manifest points at, looked up. Finds out; decides nothing.

use std::collections::BTreeSet;

use holdfast_crds::{AccessMode, Agent, Filesystem, Redis, SecretKeyRef, StoreType};
use kube::{Api, ResourceExt as _};
use rand::distr::{Alphanumeric, SampleString as _};

use crate::{
    build::{self, Inputs, Password, Replicas},
    context::{Contents, Context},
    error::Error,
    live::{Key, Kind, Place},
    lookup::{self, failed},
    names,
    references::{self, Access, Reference},
    rollout::Rollout,
    seen::{SeenDeployment, Sight as _},
    store_check::{Outcome, is_local_name},
    stores::Question,
};

/// 190 bits.
const PASSWORD_LENGTH: usize = 32;

/// What was looked up.
pub struct Found {
    /// What is not there.
    pub missing: Vec<Missing>,
    /// What the manifest asks for and this cluster has no such kind of.
    pub unknown: Vec<&'static str>,
    /// What the store said of itself; nothing where the store is local, or its address is missing.
    pub store: Option<Outcome>,
    /// The claim of the workspace, where it says that all replicas can mount it and they cannot.
    pub narrow_claim: Option<String>,
    pub inputs: Inputs,
    pub rollout: Option<Rollout>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Object(Reference),
    Key(Reference),
    /// There, but not to be used like this.
    Access(Reference, Access),
}

pub async fn dereference(context: &Context, place: &Place, agent: &Agent) -> Result<Found, Error> {
    let namespace = place.namespace();
    let needed = references::needed(agent);
    let optional = [
        (Kind::HttpRoute, "HTTPRoute", agent.spec.http_route.is_some()),
        (Kind::ServiceMonitor, "ServiceMonitor", agent.spec.service_monitor.is_some()),
    ];
    let optional = optional.iter().filter(|(.., wanted)| *wanted);
    let keys = needed.iter().map(|reference| key_of(namespace, reference));
    let made = optional.clone().map(|(kind, ..)| Key::of(*kind, place));
    context.live.mention(place, &keys.chain(made).collect::<Vec<_>>());

    let mut missing = Vec::new();
    let mut versions = BTreeSet::new();
    for reference in &needed {
        match version_of(context, namespace, reference).await? {
            Ok(version) => versions.extend(version),
            Err(what) => missing.push(what),
        }
    }
    let redis = managed_password(context, agent).await?;
    if let Some(version) = redis.as_ref().and_then(|password| password.version.as_ref()) {
        versions.insert(format!("Secret/{}={version}", names::redis_name(agent)));
    }
    let deployment = Key::of(Kind::Deployment, place);
    let rollout = context.live.get(&deployment).and_then(|entry| entry.rollout).map(|rollout| *rollout);
    let inputs = Inputs {
        prompt: if missing.is_empty() { prompt(context, agent).await? } else { None },
        references: versions.into_iter().collect(),
        replicas: replicas(context, agent, rollout.as_ref()).await?,
        sidecar_image: context.settings.sidecar_image.clone(),
        redis_image: context.settings.redis_image.clone(),
        redis,
    };
    let store = if missing.is_empty() { store(context, place, agent, &inputs).await? } else { None };
    let narrow_claim = if missing.is_empty() { narrow_claim(context, agent).await? } else { None };
    let unknown =
        optional.filter(|(kind, ..)| !context.live.knows(*kind)).map(|(_, word, _)| *word).collect();
    Ok(Found { missing, unknown, store, narrow_claim, inputs, rollout })
}

fn key_of(namespace: &str, reference: &Reference) -> Key {
    let kind = match reference.kind {
        references::Kind::Secret => Kind::Secret,
        references::Kind::ConfigMap => Kind::ConfigMap,
        references::Kind::Claim => Kind::Claim,
    };
    Key::new(kind, namespace, &reference.name)
}

/// Which version of it the pods would read; nothing for a claim, whose changes are no reason to roll them.
async fn version_of(
    context: &Context,
    namespace: &str,
    reference: &Reference,
) -> Result<Result<Option<String>, Missing>, Error> {
    let key = key_of(namespace, reference);
    let Some(entry) = context.live.get(&key) else {
        context.memory.forget_contents(&key);
        return Ok(Err(Missing::Object(reference.clone())));
    };
    if reference.key.is_some() || reference.access.is_some() {
        let contents = contents(context, namespace, reference).await?.unwrap_or_default();
        if reference.key.as_ref().is_some_and(|wanted| !contents.contains(wanted)) {
            return Ok(Err(Missing::Key(reference.clone())));
        }
        if let Some(access) = reference.access
            && !access.modes().iter().any(|mode| contents.contains(*mode))
        {
            return Ok(Err(Missing::Access(reference.clone(), access)));
        }
    }
    if reference.kind == references::Kind::Claim {
        return Ok(Ok(None));
    }
    let (word, name) = (reference.kind.word(), &reference.name);
    Ok(Ok(Some(format!("{word}/{name}={}/{}", entry.uid, entry.version))))
}

/// Asked for once a version.
async fn contents(
    context: &Context,
    namespace: &str,
    reference: &Reference,
) -> Result<Option<Contents>, Error> {
    let key = key_of(namespace, reference);
    let Some(entry) = context.live.get(&key) else { return Ok(None) };
    if let Some(known) = context.memory.contents_at(&key, &entry.version) {
        return Ok(Some(known));
    }
    let found = lookup::contents(&context.client, namespace, reference).await?;
    Ok(Some(context.memory.contents_are(key, entry.version, found)))
}

async fn prompt(context: &Context, agent: &Agent) -> Result<Option<String>, Error> {
    let Some(from) = &agent.spec.system_prompt_from else { return Ok(None) };
    let namespace = agent.namespace().unwrap_or_default();
    lookup::config_map_value(&context.client, &namespace, &from.config_map_key_ref).await
}

/// The password a managed Redis has, or a new one.
async fn managed_password(context: &Context, agent: &Agent) -> Result<Option<Password>, Error> {
    if agent.spec.state_store.as_ref().and_then(|store| store.managed()).is_none() {
        return Ok(None);
    }
    let name = names::redis_name(agent);
    let namespace = agent.namespace().unwrap_or_default();
    let found = lookup::secrets(&context.client, &namespace).get_opt(&name).await;
    let found = found.map_err(failed("Secret", &name))?;
    let version = found.as_ref().and_then(|secret| {
        Some(format!("{}/{}", secret.metadata.uid.as_ref()?, secret.metadata.resource_version.as_ref()?))
    });
    let data = found.and_then(|secret| secret.data).unwrap_or_default();
    let kept = data.get(build::REDIS_PASSWORD_KEY).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
    let text = kept.filter(|text| !text.is_empty());
    let text = text.unwrap_or_else(|| Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_LENGTH));
    let intact = data == build::redis_secret_data(agent, &text);
    Ok(Some(Password { text, version, intact }))
}

/// Under autoscaling the live number is kept until someone else is seen to own it, then left alone: dropping it
/// from what we apply any sooner would reset it to 1.
async fn replicas(context: &Context, agent: &Agent, rollout: Option<&Rollout>) -> Result<Replicas, Error> {
    let Some(scaling) = &agent.spec.autoscaling else {
        return Ok(Replicas::Apply(agent.spec.replicas.unwrap_or(1)));
    };
    match rollout {
        None => Ok(Replicas::Apply(scaling.min_replicas)),
        Some(rollout) if rollout.replicas_owned_by_other => Ok(Replicas::Leave),
        Some(_) => {
            // The watch may lag behind an autoscaler that has just acted.
            let name = agent.name_any();
            let api: Api<SeenDeployment> =
                Api::namespaced(context.client.clone(), &agent.namespace().unwrap_or_default());
            let found = api.get_opt(&name).await.map_err(failed("Deployment", &name))?;
            let Some((found, fresh)) = found.and_then(|found| found.rollout().map(|fresh| (found, fresh)))
            else {
                return Ok(Replicas::Apply(scaling.min_replicas));
            };
            Ok(match found.resource_version() {
                _ if fresh.replicas_owned_by_other => Replicas::Leave,
                Some(version) => Replicas::Keep { replicas: fresh.desired, version },
                None => Replicas::Apply(fresh.desired),
            })
        }
    }
}

/// The manifest's word on how its volume can be mounted is not enough: the claim itself has the last.
async fn narrow_claim(context: &Context, agent: &Agent) -> Result<Option<String>, Error> {
    let claim = agent.spec.filesystem.as_ref().and_then(Filesystem::claim);
    let Some(volume) = claim.filter(|volume| volume.access_mode == AccessMode::ReadWriteMany) else {
        return Ok(None);
    };
    let (name, namespace) = (&volume.claim_name, agent.namespace().unwrap_or_default());
    let claim = Reference { kind: references::Kind::Claim, name: name.clone(), key: None, access: None };
    let modes = contents(context, &namespace, &claim).await?;
    let wide = modes.is_some_and(|modes| modes.contains(volume.access_mode.word()));
    Ok((!wide).then(|| name.clone()))
}

/// What the store says of itself, asked now or not long ago.
async fn store(
    context: &Context,
    place: &Place,
    agent: &Agent,
    inputs: &Inputs,
) -> Result<Option<Outcome>, Error> {
    let Some(store) = agent.spec.state_store.as_ref().filter(|store| store.kind == StoreType::Redis) else {
        context.stores.forget(place);
        return Ok(None);
    };
    let Some(redis) = &store.redis else { return Ok(None) };
    if inputs.redis.as_ref().is_some_and(|password| password.version.is_none()) {
        return Ok(Some(Outcome::not_checked("the store is being made")));
    }
    let question = question(agent, redis, inputs);
    Ok(Some(context.stores.ask(&context.client, place, question).await?))
}

fn question(agent: &Agent, redis: &Redis, inputs: &Inputs) -> Question {
    let of_managed = redis
        .managed
        .as_ref()
        .map(|_| SecretKeyRef { name: names::redis_name(agent), key: build::REDIS_URL_KEY.to_owned() });
    let url_from = redis.url_secret_ref.clone().or(of_managed);
    let authorities = redis.tls.as_ref().map(|tls| tls.ca_from.clone()).unwrap_or_default();
    let (in_secret, in_config_map) = (authorities.secret_key_ref, authorities.config_map_key_ref);
    let read = [
        url_from.as_ref().map(|from| format!("Secret/{}=", from.name)),
        in_secret.as_ref().map(|from| format!("Secret/{}=", from.name)),
        in_config_map.as_ref().map(|from| format!("ConfigMap/{}=", from.name)),
    ];
    let reads = |version: &&String| read.iter().flatten().any(|read| version.starts_with(read));
    let versions: Vec<String> = inputs.references.iter().filter(reads).cloned().collect();
    let everywhere = versions.is_empty() && !redis.url.as_deref().is_some_and(is_local_name);
    let namespace = if everywhere { String::new() } else { agent.namespace().unwrap_or_default() };
    Question {
        namespace,
        url: redis.url.clone(),
        url_from,
        authorities_in_secret: in_secret,
        authorities_in_config_map: in_config_map,
        versions,
    }
}
