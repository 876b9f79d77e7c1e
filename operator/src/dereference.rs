//! The first step: everything the manifest points at, looked up. Finds out; decides nothing.

use std::collections::BTreeSet;

use holdfast_crds::{Agent, StoreType};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{Api, ResourceExt as _};
use rand::distr::{Alphanumeric, SampleString as _};

use crate::{
    build::{self, Inputs, Password, Replicas},
    context::{Checked, Context},
    error::Error,
    live::{Key, Kind},
    names,
    references::{self, Reference},
    rollout::Rollout,
    store_check::{self, Address, Outcome},
};

/// 190 bits.
const PASSWORD_LENGTH: usize = 32;

/// What was looked up.
pub struct Found {
    /// What is not there.
    pub missing: Vec<Missing>,
    /// What the store said of itself; nothing where the store is local, or its address is missing.
    pub store: Option<Outcome>,
    pub inputs: Inputs,
    pub rollout: Option<Rollout>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Object(Reference),
    Key(Reference),
}

pub async fn dereference(context: &Context, agent: &Agent) -> Result<Found, Error> {
    let namespace = agent.namespace().unwrap_or_default();
    let needed = references::needed(agent);
    let keys = needed.iter().map(|reference| key_of(&namespace, reference)).collect();
    context.live.mention(&namespace, &agent.name_any(), keys);

    let mut missing = Vec::new();
    let mut versions = BTreeSet::new();
    for reference in &needed {
        match version_of(context, &namespace, reference).await? {
            Ok(version) => versions.extend(version),
            Err(what) => missing.push(what),
        }
    }
    let redis = managed_password(context, agent).await?;
    if let Some(version) = redis.as_ref().and_then(|password| password.version.as_ref()) {
        versions.insert(format!("Secret/{}={version}", names::redis_name(agent)));
    }
    let deployment = Key::new(Kind::Deployment, &namespace, &agent.name_any());
    let rollout = context.live.get(&deployment).and_then(|entry| entry.rollout).map(|rollout| *rollout);
    let inputs = Inputs {
        prompt: if missing.is_empty() { prompt(context, agent).await? } else { None },
        references: versions.into_iter().collect(),
        replicas: replicas(context, agent, rollout.as_ref()).await?,
        sidecar_image: context.settings.sidecar_image.clone(),
        redis_image: context.settings.redis_image.clone(),
        redis,
    };
    let store = if missing.is_empty() { store(context, agent, &inputs).await? } else { None };
    Ok(Found { missing, store, inputs, rollout })
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
    let Some(entry) = context.live.get(&key) else { return Ok(Err(Missing::Object(reference.clone()))) };
    if reference.kind == references::Kind::Claim {
        return Ok(Ok(None));
    }
    if let Some(wanted) = &reference.key {
        let known = match context.memory.keys_at(&key, &entry.version) {
            Some(keys) => keys,
            None => {
                let keys = keys_in(context, namespace, reference).await?;
                context.memory.keys_are(key, &entry.version, keys.clone());
                keys
            }
        };
        if !known.contains(wanted) {
            return Ok(Err(Missing::Key(reference.clone())));
        }
    }
    let (word, name) = (reference.kind.word(), &reference.name);
    Ok(Ok(Some(format!("{word}/{name}={}/{}", entry.uid, entry.version))))
}

/// The names of the keys. The values are let go at once.
async fn keys_in(
    context: &Context,
    namespace: &str,
    reference: &Reference,
) -> Result<BTreeSet<String>, Error> {
    let what = || format!("{} {}", reference.kind.word(), reference.name);
    let failed = |source| Error::Dereference { what: what(), source: Box::new(source) };
    Ok(match reference.kind {
        references::Kind::Secret => {
            let found = secrets(context, namespace).get_opt(&reference.name).await.map_err(failed)?;
            found.and_then(|secret| secret.data).unwrap_or_default().into_keys().collect()
        }
        _ => {
            let found = config_maps(context, namespace).get_opt(&reference.name).await.map_err(failed)?;
            let found = found.unwrap_or_default();
            let texts = found.data.unwrap_or_default().into_keys();
            texts.chain(found.binary_data.unwrap_or_default().into_keys()).collect()
        }
    })
}

async fn prompt(context: &Context, agent: &Agent) -> Result<Option<String>, Error> {
    let Some(from) = &agent.spec.system_prompt_from else { return Ok(None) };
    let (name, key) = (&from.config_map_key_ref.name, &from.config_map_key_ref.key);
    text_in_config_map(context, agent, name, key).await
}

async fn text_in_config_map(
    context: &Context,
    agent: &Agent,
    name: &str,
    key: &str,
) -> Result<Option<String>, Error> {
    let api = config_maps(context, &agent.namespace().unwrap_or_default());
    let failed = |source| Error::Dereference { what: format!("ConfigMap {name}"), source: Box::new(source) };
    let found = api.get_opt(name).await.map_err(failed)?;
    Ok(found.and_then(|config_map| config_map.data?.remove(key)))
}

async fn bytes_in_secret(
    context: &Context,
    agent: &Agent,
    name: &str,
    key: &str,
) -> Result<Option<Vec<u8>>, Error> {
    let api = secrets(context, &agent.namespace().unwrap_or_default());
    let failed = |source| Error::Dereference { what: format!("Secret {name}"), source: Box::new(source) };
    let found = api.get_opt(name).await.map_err(failed)?;
    Ok(found.and_then(|secret| secret.data?.remove(key)).map(|bytes| bytes.0))
}

/// The password a managed Redis has, or a new one.
async fn managed_password(context: &Context, agent: &Agent) -> Result<Option<Password>, Error> {
    if agent.spec.state_store.as_ref().and_then(|store| store.managed()).is_none() {
        return Ok(None);
    }
    let name = names::redis_name(agent);
    let namespace = agent.namespace().unwrap_or_default();
    let failed = |source| Error::Dereference { what: format!("Secret {name}"), source: Box::new(source) };
    let found = secrets(context, &namespace).get_opt(&name).await.map_err(failed)?;
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
            let api: Api<Deployment> =
                Api::namespaced(context.client.clone(), &agent.namespace().unwrap_or_default());
            let failed =
                |source| Error::Dereference { what: format!("Deployment {name}"), source: Box::new(source) };
            let Some(found) = api.get_opt(&name).await.map_err(failed)? else {
                return Ok(Replicas::Apply(scaling.min_replicas));
            };
            let fresh = Rollout::of(&found);
            Ok(match found.metadata.resource_version {
                _ if fresh.replicas_owned_by_other => Replicas::Leave,
                Some(version) => Replicas::Keep { replicas: fresh.desired, version },
                None => Replicas::Apply(fresh.desired),
            })
        }
    }
}

/// What the store says of itself, asked now or not long ago.
async fn store(context: &Context, agent: &Agent, inputs: &Inputs) -> Result<Option<Outcome>, Error> {
    let Some(store) = agent.spec.state_store.as_ref().filter(|store| store.kind == StoreType::Redis) else {
        return Ok(None);
    };
    // Whatever the address was made of, a new version of it is asked anew.
    let asked = format!("{:?} {:?}", store.redis, inputs.references);
    if let Some(checked) = context.memory.checked(agent)
        && checked.asked == asked
        && !checked.due().is_zero()
    {
        return Ok(Some(checked.outcome));
    }
    let outcome = match address(context, agent, inputs).await? {
        Some(address) => store_check::check(address).await,
        None => Outcome::not_checked("the store is being made"),
    };
    let at = std::time::Instant::now();
    context.memory.check_was(agent, Checked { asked, at, outcome: outcome.clone() });
    Ok(Some(outcome))
}

async fn address(context: &Context, agent: &Agent, inputs: &Inputs) -> Result<Option<Address>, Error> {
    let Some(redis) = agent.spec.state_store.as_ref().and_then(|store| store.redis.as_ref()) else {
        return Ok(None);
    };
    let url = if let Some(password) = &inputs.redis {
        password.version.as_ref().map(|_| build::redis_url(agent, &password.text))
    } else if let Some(from) = &redis.url_secret_ref {
        let bytes = bytes_in_secret(context, agent, &from.name, &from.key).await?;
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    } else {
        redis.url.clone()
    };
    let authorities = redis.tls.as_ref().map(|tls| &tls.ca_from);
    let certificate_authorities =
        match authorities.map(|from| (&from.config_map_key_ref, &from.secret_key_ref)) {
            Some((Some(from), _)) => {
                text_in_config_map(context, agent, &from.name, &from.key).await?.map(String::into_bytes)
            }
            Some((None, Some(from))) => bytes_in_secret(context, agent, &from.name, &from.key).await?,
            _ => None,
        };
    Ok(url.map(|url| Address { url, certificate_authorities }))
}

fn secrets(context: &Context, namespace: &str) -> Api<Secret> {
    Api::namespaced(context.client.clone(), namespace)
}

fn config_maps(context: &Context, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(context.client.clone(), namespace)
}
