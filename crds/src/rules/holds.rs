//! The rules in Rust: each function gives the paths of the fields that break its rule.

use kube::ResourceExt as _;

use super::MAX_GRACE_PERIOD;
use crate::{
    agent::{Agent, AgentSpec},
    behaviour::AuthType,
    filesystem::{AccessMode, Filesystem, FilesystemType},
    model::Provider,
    pod::EnvVar,
    refs::CertificatesFrom,
    store::{StateStore, StoreType},
    units::{Duration, Size},
};

const SHORTEST: Duration = Duration::from_millis(100);
const LARGEST_FILE: Size = Size::from_mebibytes(64);
const MAX_NAME: usize = 45;
const SECRET_HEADERS: &[&str] = &["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];
const RESERVED_ANNOTATIONS: &[&str] = &["holdfast.dev/", "container.apparmor.security.beta.kubernetes.io/"];
const RESERVED_MOUNTS: &[&str] = &["/etc/holdfast", "/var/run/holdfast", "/var/lib/holdfast"];

fn broken_if(broken: bool, path: &str) -> Vec<String> {
    if broken { vec![path.to_owned()] } else { Vec::new() }
}

fn one_given(given: &[bool]) -> bool {
    given.iter().filter(|given| **given).count() == 1
}

pub(super) fn agent_name(agent: &Agent) -> Vec<String> {
    let name = agent.name_any();
    let fits = name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    broken_if(!fits, "metadata.name")
}

pub(super) fn state_store_missing(agent: &Agent) -> Vec<String> {
    broken_if(agent.spec.state_store.is_none(), "spec.stateStore")
}

pub(super) fn local_store_with_replicas(agent: &Agent) -> Vec<String> {
    let local = agent.spec.state_store.as_ref().is_some_and(|store| store.kind.is_local());
    broken_if(local && agent.spec.may_have_many_replicas(), "spec.stateStore")
}

fn filesystem_if(agent: &Agent, broken: impl Fn(&Filesystem) -> bool, path: &str) -> Vec<String> {
    broken_if(agent.spec.filesystem.as_ref().is_some_and(broken), path)
}

pub(super) fn local_store_with_distributed_filesystem(agent: &Agent) -> Vec<String> {
    let shared = agent.spec.state_store.as_ref().is_some_and(|store| !store.kind.is_local());
    filesystem_if(agent, |files| files.kind == FilesystemType::Remote && !shared, "spec.filesystem")
}

pub(super) fn local_filesystem_with_replicas(agent: &Agent) -> Vec<String> {
    let many = agent.spec.may_have_many_replicas();
    let for_one = |files: &Filesystem| {
        let shared = files.volume.as_ref().is_some_and(|v| v.access_mode == AccessMode::ReadWriteMany);
        files.kind == FilesystemType::Local && !shared
    };
    filesystem_if(agent, |files| many && for_one(files), "spec.filesystem")
}

pub(super) fn filesystem_volume_mismatch(agent: &Agent) -> Vec<String> {
    let misplaced = |files: &Filesystem| files.kind != FilesystemType::Local && files.volume.is_some();
    filesystem_if(agent, misplaced, "spec.filesystem.volume")
}

pub(super) fn filesystem_limits(agent: &Agent) -> Vec<String> {
    let wrong = |files: &Filesystem| {
        files.max_file_size.bytes() == 0
            || files.max_file_size > LARGEST_FILE
            || files.max_file_size > files.max_tree_size
    };
    filesystem_if(agent, wrong, "spec.filesystem.maxFileSize")
}

pub(super) fn replicas_and_autoscaling(agent: &Agent) -> Vec<String> {
    broken_if(agent.spec.replicas.is_some() && agent.spec.autoscaling.is_some(), "spec.replicas")
}

pub(super) fn autoscaling_bounds(agent: &Agent) -> Vec<String> {
    let crossed =
        agent.spec.autoscaling.as_ref().is_some_and(|scaling| scaling.min_replicas > scaling.max_replicas);
    broken_if(crossed, "spec.autoscaling.minReplicas")
}

pub(super) fn system_prompt_twice(agent: &Agent) -> Vec<String> {
    let twice = agent.spec.system_prompt.is_some() && agent.spec.system_prompt_from.is_some();
    broken_if(twice, "spec.systemPromptFrom")
}

pub(super) fn grace_period_too_long(agent: &Agent) -> Vec<String> {
    broken_if(agent.spec.grace_period() > MAX_GRACE_PERIOD, "spec.shutdown")
}

pub(super) fn duration_too_short(agent: &Agent) -> Vec<String> {
    let AgentSpec { model, loop_, state_store, session, service_monitor, .. } = &agent.spec;
    let mut durations = vec![
        ("spec.model.requestTimeout", model.request_timeout),
        ("spec.loop.callTimeout", loop_.call_timeout),
        ("spec.loop.toolTimeout", loop_.tool_timeout),
        ("spec.session.leaseDuration", session.lease_duration),
    ];
    if let Some(store) = state_store {
        durations.push(("spec.stateStore.sessionTtl", store.session_ttl));
        durations.push(("spec.stateStore.replyTtl", store.reply_ttl));
    }
    durations
        .extend(service_monitor.as_ref().map(|monitor| ("spec.serviceMonitor.interval", monitor.interval)));
    durations
        .into_iter()
        .filter(|(_, duration)| *duration < SHORTEST)
        .map(|(path, _)| path.to_owned())
        .collect()
}

pub(super) fn model_name_missing(agent: &Agent) -> Vec<String> {
    let model = &agent.spec.model;
    broken_if(model.provider != Provider::Scripted && model.name.is_none(), "spec.model.name")
}

pub(super) fn model_key_missing(agent: &Agent) -> Vec<String> {
    let model = &agent.spec.model;
    let keyless =
        model.base_url.is_none() && model.api_key_secret_ref.is_none() && model.headers_from.is_empty();
    broken_if(model.provider != Provider::Scripted && keyless, "spec.model.apiKeySecretRef")
}

pub(super) fn script_without_scripted_model(agent: &Agent) -> Vec<String> {
    let model = &agent.spec.model;
    broken_if(model.provider != Provider::Scripted && model.scripted.is_some(), "spec.model.scripted")
}

pub(super) fn scripted_reply_empty(agent: &Agent) -> Vec<String> {
    let replies = agent.spec.model.scripted.iter().flat_map(|script| &script.replies).enumerate();
    replies
        .filter(|(_, reply)| reply.text.is_none() && reply.tool_calls.is_empty() && reply.failure.is_none())
        .map(|(index, _)| format!("spec.model.scripted.replies[{index}]"))
        .collect()
}

pub(super) fn secret_in_header(agent: &Agent) -> Vec<String> {
    let names = agent.spec.model.extra_headers.keys();
    names
        .filter(|name| SECRET_HEADERS.contains(&name.to_ascii_lowercase().as_str()))
        .map(|name| format!("spec.model.extraHeaders.{name}"))
        .collect()
}

pub(super) fn header_malformed(agent: &Agent) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let headers = agent.spec.model.extra_headers.iter();
    headers
        .filter(|(name, value)| name.is_empty() || !name.chars().all(is_name) || value.contains(['\n', '\r']))
        .map(|(name, _)| format!("spec.model.extraHeaders.{name}"))
        .collect()
}

/// What stands before the host: between `//` and an `@` that comes before the path.
fn has_user_info(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("//") else { return false };
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

pub(super) fn user_info_in_base_url(agent: &Agent) -> Vec<String> {
    let broken = agent.spec.model.base_url.as_deref().is_some_and(has_user_info);
    broken.then(|| "spec.model.baseUrl".to_owned()).into_iter().collect()
}

pub(super) fn user_info_in_url(agent: &Agent) -> Vec<String> {
    let AgentSpec { tools, state_store, .. } = &agent.spec;
    let redis = state_store.as_ref().and_then(|store| store.redis.as_ref()?.url.as_deref());
    let mut urls: Vec<(String, &str)> = Vec::new();
    urls.extend(redis.map(|url| ("spec.stateStore.redis.url".to_owned(), url)));
    for (index, tool) in tools.iter().enumerate() {
        urls.push((format!("spec.tools[{index}].mcp.url"), &tool.mcp.url));
    }
    urls.into_iter().filter(|(_, url)| has_user_info(url)).map(|(path, _)| path).collect()
}

pub(super) fn certificates_source(agent: &Agent) -> Vec<String> {
    let redis = agent.spec.state_store.as_ref().and_then(|store| store.redis.as_ref());
    let places = [
        ("spec.model.caBundleFrom", agent.spec.model.ca_bundle_from.as_ref()),
        (
            "spec.stateStore.redis.tls.caFrom",
            redis.and_then(|redis| redis.tls.as_ref()).map(|tls| &tls.ca_from),
        ),
    ];
    let ambiguous =
        |from: &CertificatesFrom| from.config_map_key_ref.is_some() == from.secret_key_ref.is_some();
    places
        .into_iter()
        .filter(|(_, from)| from.is_some_and(ambiguous))
        .map(|(path, _)| path.to_owned())
        .collect()
}

pub(super) fn store_block_mismatch(agent: &Agent) -> Vec<String> {
    let mismatch = |store: &StateStore| {
        let right_redis = store.redis.is_some() == (store.kind == StoreType::Redis);
        let right_file = store.kind == StoreType::JsonFile || store.json_file.is_none();
        !right_redis || !right_file
    };
    broken_if(agent.spec.state_store.as_ref().is_some_and(mismatch), "spec.stateStore.type")
}

pub(super) fn redis_address(agent: &Agent) -> Vec<String> {
    let redis = agent.spec.state_store.as_ref().and_then(|store| store.redis.as_ref());
    let ambiguous = redis.is_some_and(|redis| {
        !one_given(&[redis.url.is_some(), redis.url_secret_ref.is_some(), redis.managed.is_some()])
    });
    broken_if(ambiguous, "spec.stateStore.redis")
}

pub(super) fn managed_redis_with_tls(agent: &Agent) -> Vec<String> {
    let redis = agent.spec.state_store.as_ref().and_then(|store| store.redis.as_ref());
    let both = redis.is_some_and(|redis| redis.managed.is_some() && redis.tls.is_some());
    broken_if(both, "spec.stateStore.redis.tls")
}

pub(super) fn auth_mismatch(agent: &Agent) -> Vec<String> {
    let auth = &agent.spec.auth;
    let mismatch = match auth.kind {
        AuthType::Token => auth.token_secret_ref.is_none(),
        AuthType::None => auth.token_secret_ref.is_some() || auth.user_header.is_some(),
    };
    broken_if(mismatch, "spec.auth.type")
}

pub(super) fn companion_name(agent: &Agent) -> Vec<String> {
    let companions = agent.spec.companions.iter().enumerate();
    let taken = companions.filter(|(_, companion)| companion.name == "agent");
    taken.map(|(index, _)| format!("spec.companions[{index}].name")).collect()
}

pub(super) fn companion_volume(agent: &Agent) -> Vec<String> {
    let known = |name: &String| agent.spec.pod_template.volumes.iter().any(|volume| volume.name == *name);
    let companions = agent.spec.companions.iter();
    broken_if(companions.flat_map(|companion| &companion.volumes).any(|name| !known(name)), "spec.companions")
}

pub(super) fn metrics_out_of_reach(agent: &Agent) -> Vec<String> {
    let spec = &agent.spec;
    broken_if(spec.service_monitor.is_some() && spec.network_policy.metrics.is_empty(), "spec.serviceMonitor")
}

fn env_of(agent: &Agent) -> impl Iterator<Item = (String, &EnvVar)> {
    let template = agent.spec.pod_template.env.iter().enumerate();
    let own = template.map(|(index, env)| (format!("spec.podTemplate.env[{index}]"), env));
    let beside = agent.spec.companions.iter().enumerate().flat_map(|(companion, found)| {
        let env = found.env.iter().enumerate();
        env.map(move |(index, env)| (format!("spec.companions[{companion}].env[{index}]"), env))
    });
    own.chain(beside)
}

pub(super) fn env_source(agent: &Agent) -> Vec<String> {
    let ambiguous = |env: &EnvVar| {
        !one_given(&[env.value.is_some(), env.secret_key_ref.is_some(), env.config_map_key_ref.is_some()])
    };
    env_of(agent).filter(|(_, env)| ambiguous(env)).map(|(path, _)| path).collect()
}

pub(super) fn env_reserved(agent: &Agent) -> Vec<String> {
    let env = agent.spec.pod_template.env.iter().enumerate();
    env.filter(|(_, env)| env.name.starts_with("HOLDFAST_") || env.name == "POD_NAME")
        .map(|(index, _)| format!("spec.podTemplate.env[{index}].name"))
        .collect()
}

pub(super) fn volume_source(agent: &Agent) -> Vec<String> {
    let volumes = agent.spec.pod_template.volumes.iter().enumerate();
    volumes
        .filter(|(_, volume)| {
            !one_given(&[
                volume.empty_dir.is_some(),
                volume.config_map.is_some(),
                volume.secret.is_some(),
                volume.claim.is_some(),
            ])
        })
        .map(|(index, _)| format!("spec.podTemplate.volumes[{index}]"))
        .collect()
}

fn is_reserved_mount(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let plain = format!("/{}/", parts.join("/"));
    path.contains("..")
        || parts.is_empty()
        || RESERVED_MOUNTS.iter().any(|reserved| plain.starts_with(&format!("{reserved}/")))
}

pub(super) fn volume_reserved(agent: &Agent) -> Vec<String> {
    let volumes = agent.spec.pod_template.volumes.iter().enumerate();
    volumes
        .filter(|(_, volume)| volume.name.starts_with("holdfast-") || is_reserved_mount(&volume.mount_path))
        .map(|(index, _)| format!("spec.podTemplate.volumes[{index}]"))
        .collect()
}

pub(super) fn label_reserved(agent: &Agent) -> Vec<String> {
    let names = agent.spec.pod_template.labels.keys();
    names
        .filter(|name| name.starts_with("holdfast.dev/") || name.starts_with("app.kubernetes.io/"))
        .map(|name| format!("spec.podTemplate.labels.{name}"))
        .collect()
}

pub(super) fn annotation_reserved(agent: &Agent) -> Vec<String> {
    let names = agent.spec.pod_template.annotations.keys();
    names
        .filter(|name| RESERVED_ANNOTATIONS.iter().any(|reserved| name.starts_with(reserved)))
        .map(|name| format!("spec.podTemplate.annotations.{name}"))
        .collect()
}

pub(super) fn egress_target(agent: &Agent) -> Vec<String> {
    let egress = agent.spec.network_policy.egress.iter().enumerate();
    egress
        .filter(|(_, egress)| egress.pods.is_some() == egress.cidr.is_some())
        .map(|(index, _)| format!("spec.networkPolicy.egress[{index}]"))
        .collect()
}

/// Compares what both specs have; a store that was only now added has orphaned nothing.
fn same_in_both<T: PartialEq>(old: &AgentSpec, new: &AgentSpec, part: impl Fn(&StateStore) -> T) -> bool {
    match (&old.state_store, &new.state_store) {
        (Some(old), Some(new)) => part(old) == part(new),
        _ => true,
    }
}

pub(super) fn store_type_unchanged(old: &AgentSpec, new: &AgentSpec) -> bool {
    same_in_both(old, new, |store| store.kind)
}

pub(super) fn key_prefix_unchanged(old: &AgentSpec, new: &AgentSpec) -> bool {
    same_in_both(old, new, |store| store.key_prefix.clone())
}

pub(super) fn managed_redis_unchanged(old: &AgentSpec, new: &AgentSpec) -> bool {
    let both_redis =
        [old, new].iter().all(|spec| spec.state_store.as_ref().is_some_and(|s| s.redis.is_some()));
    !both_redis || same_in_both(old, new, |store| store.managed().map(|managed| managed.storage))
}

pub(super) fn claim_name_unchanged(old: &AgentSpec, new: &AgentSpec) -> bool {
    same_in_both(old, new, |store| store.json_file.as_ref()?.volume.as_ref()?.claim_name.clone())
}

pub(super) fn isolation_unchanged(old: &AgentSpec, new: &AgentSpec) -> bool {
    match (&old.filesystem, &new.filesystem) {
        (Some(old), Some(new)) => old.isolation == new.isolation,
        _ => true,
    }
}
