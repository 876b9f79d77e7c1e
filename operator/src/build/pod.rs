//! The pod of a replica. What keeps the promises (probes, grace period, preStop, security context) is set here and
//! nowhere else; `podTemplate` has no say in it.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_crds::{
    Agent, Companion, EnvVar as GivenEnv, Filesystem, FilesystemType, Resources as GivenResources,
    Volume as GivenVolume,
};
use k8s_openapi::{
    api::core::v1::ObjectFieldSelector as FieldSelector,
    api::core::v1::{
        Capabilities, ConfigMapKeySelector, ConfigMapProjection, ConfigMapVolumeSource, Container,
        ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, KeyToPath, Lifecycle,
        LifecycleHandler, LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
        PodSecurityContext, PodSpec, Probe, ProjectedVolumeSource, ResourceRequirements, SeccompProfile,
        SecretKeySelector, SecretProjection, SecretVolumeSource, SecurityContext, SleepAction,
        TCPSocketAction, Volume, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::ResourceExt as _;

use super::{Inputs, claim, placement, seconds};
use crate::{
    names,
    references::{self, Kind},
};

const MANIFEST_VOLUME: &str = "holdfast-manifest";
const SECRETS_VOLUME: &str = "holdfast-secrets";
const CONFIG_VOLUME: &str = "holdfast-config";
const STORE_VOLUME: &str = "holdfast-store";
const WORKSPACE_VOLUME: &str = "holdfast-workspace";

pub(super) fn build(agent: &Agent, inputs: &Inputs) -> PodSpec {
    let template = &agent.spec.pod_template;
    let companions: Vec<Container> =
        agent.spec.companions.iter().map(|companion| beside(companion, &template.volumes)).collect();
    let pull_secrets: Vec<LocalObjectReference> = template
        .image_pull_secrets
        .iter()
        .map(|secret| LocalObjectReference { name: secret.name.clone() })
        .collect();
    PodSpec {
        service_account_name: Some(agent.name_any()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(seconds(agent.spec.grace_period())),
        security_context: Some(pod_security()),
        init_containers: (!companions.is_empty()).then_some(companions),
        containers: vec![agent_container(agent, inputs)],
        volumes: Some(volumes(agent)),
        topology_spread_constraints: Some(vec![placement::over_nodes(agent)]),
        node_selector: (!template.node_selector.is_empty()).then(|| template.node_selector.clone()),
        tolerations: (!template.tolerations.is_empty()).then(|| template.tolerations.clone()),
        affinity: Some(placement::over_zones(agent, template.affinity.clone().unwrap_or_default())),
        priority_class_name: template.priority_class_name.clone(),
        image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
        ..PodSpec::default()
    }
}

fn agent_container(agent: &Agent, inputs: &Inputs) -> Container {
    let manifest = format!("{}/{}", names::MANIFEST_DIR, names::MANIFEST_FILE);
    let client = format!("0.0.0.0:{}", names::CLIENT_PORT);
    let platform = format!("0.0.0.0:{}", names::PLATFORM_PORT);
    let args =
        ["run", &manifest, "--listen", &client, "--admin-listen", &platform, "--replica", "$(POD_NAME)"];
    Container {
        name: "agent".to_owned(),
        image: Some(agent.spec.image.clone().unwrap_or_else(|| inputs.sidecar_image.clone())),
        args: Some(args.map(str::to_owned).to_vec()),
        env: Some(environment(agent)),
        ports: Some(vec![port("http", names::CLIENT_PORT), port("admin", names::PLATFORM_PORT)]),
        resources: Some(resources(&agent.spec.pod_template.resources, &default_resources())),
        startup_probe: Some(probe("/livez", 1, 60)),
        readiness_probe: Some(probe("/readyz", 2, 3)),
        liveness_probe: Some(probe("/livez", 10, 3)),
        lifecycle: pre_stop(agent),
        security_context: Some(container_security(Some(names::NOBODY))),
        volume_mounts: Some(mounts(agent)),
        ..Container::default()
    }
}

/// A native sidecar: up before the agent, down after it, so that a draining agent keeps its tools.
fn beside(companion: &Companion, volumes: &[GivenVolume]) -> Container {
    let seen = volumes.iter().filter(|volume| companion.volumes.contains(&volume.name)).map(mount);
    let mounts: Vec<VolumeMount> = seen.collect();
    let env: Vec<EnvVar> = companion.env.iter().map(variable).collect();
    let tcp =
        |port: u16| TCPSocketAction { port: IntOrString::Int(port.into()), ..TCPSocketAction::default() };
    Container {
        name: companion.name.clone(),
        image: Some(companion.image.clone()),
        restart_policy: Some("Always".to_owned()),
        command: (!companion.command.is_empty()).then(|| companion.command.clone()),
        args: (!companion.args.is_empty()).then(|| companion.args.clone()),
        env: (!env.is_empty()).then_some(env),
        ports: companion.port.map(|number| vec![port("companion", number.into())]).map(|mut ports| {
            ports.iter_mut().for_each(|port| port.name = None);
            ports
        }),
        resources: Some(resources(&companion.resources, &default_resources())),
        startup_probe: companion.port.map(|port| Probe {
            tcp_socket: Some(tcp(port)),
            period_seconds: Some(1),
            failure_threshold: Some(60),
            ..Probe::default()
        }),
        security_context: Some(container_security(None)),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..Container::default()
    }
}

fn environment(agent: &Agent) -> Vec<EnvVar> {
    let plain = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    };
    let pod_name = EnvVar {
        name: "POD_NAME".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(FieldSelector {
                field_path: "metadata.name".to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let mut environment = vec![
        pod_name,
        plain("HOLDFAST_SECRETS_DIR", names::SECRETS_DIR),
        plain("HOLDFAST_CONFIG_DIR", names::CONFIG_DIR),
    ];
    environment.extend(folder(agent).map(|_| plain("HOLDFAST_WORKSPACE_DIR", names::WORKSPACE_DIR)));
    environment.extend(agent.spec.pod_template.env.iter().map(variable));
    environment
}

fn variable(given: &GivenEnv) -> EnvVar {
    let secret = given.secret_key_ref.as_ref().map(|from| EnvVarSource {
        secret_key_ref: Some(SecretKeySelector {
            name: from.name.clone(),
            key: from.key.clone(),
            ..SecretKeySelector::default()
        }),
        ..EnvVarSource::default()
    });
    let config_map = given.config_map_key_ref.as_ref().map(|from| EnvVarSource {
        config_map_key_ref: Some(ConfigMapKeySelector {
            name: from.name.clone(),
            key: from.key.clone(),
            ..ConfigMapKeySelector::default()
        }),
        ..EnvVarSource::default()
    });
    EnvVar { name: given.name.clone(), value: given.value.clone(), value_from: secret.or(config_map) }
}

/// While load balancers forget the pod it goes on as before.
fn pre_stop(agent: &Agent) -> Option<Lifecycle> {
    let delay = seconds(agent.spec.shutdown.pre_stop_delay.get());
    (delay > 0).then(|| Lifecycle {
        pre_stop: Some(LifecycleHandler {
            sleep: Some(SleepAction { seconds: delay }),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    })
}

fn probe(path: &str, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("admin".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn default_resources() -> ResourceRequirements {
    let quantity = |text: &str| Quantity(text.to_owned());
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            ("cpu".to_owned(), quantity("50m")),
            ("memory".to_owned(), quantity("64Mi")),
        ])),
        limits: Some(BTreeMap::from([("memory".to_owned(), quantity("512Mi"))])),
        ..ResourceRequirements::default()
    }
}

/// The manifest's word where it has one, else ours.
fn resources(given: &GivenResources, default: &ResourceRequirements) -> ResourceRequirements {
    if given.is_empty() {
        return default.clone();
    }
    ResourceRequirements {
        requests: (!given.requests.is_empty()).then(|| given.requests.clone()),
        limits: (!given.limits.is_empty()).then(|| given.limits.clone()),
        ..ResourceRequirements::default()
    }
}

pub(super) fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        fs_group: Some(names::NOBODY),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

pub(super) fn container_security(user: Option<i64>) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        run_as_user: user,
        run_as_group: user,
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}

/// Over zones and nodes where that is possible, counted for each version of the pods by itself.
fn volumes(agent: &Agent) -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: MANIFEST_VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: agent.name_any(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }];
    volumes.extend(projected(agent, Kind::Secret, SECRETS_VOLUME));
    volumes.extend(projected(agent, Kind::ConfigMap, CONFIG_VOLUME));
    volumes.extend(claim::name(agent).map(|claim_name| Volume {
        name: STORE_VOLUME.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name,
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    }));
    volumes.extend(folder(agent).map(workspace));
    volumes.extend(agent.spec.pod_template.volumes.iter().map(volume));
    volumes
}

/// The filesystem, where it is a folder of the pod.
fn folder(agent: &Agent) -> Option<&Filesystem> {
    agent.spec.filesystem.as_ref().filter(|files| files.kind == FilesystemType::Local)
}

/// The claim that was named, or a folder that lives and dies with the pod.
fn workspace(files: &Filesystem) -> Volume {
    let claim = files.claim().map(|volume| PersistentVolumeClaimVolumeSource {
        claim_name: volume.claim_name.clone(),
        ..PersistentVolumeClaimVolumeSource::default()
    });
    Volume {
        name: WORKSPACE_VOLUME.to_owned(),
        empty_dir: claim.is_none().then(EmptyDirVolumeSource::default),
        persistent_volume_claim: claim,
        ..Volume::default()
    }
}

/// One volume for all keys of a kind that the agent reads: `<object>/<key>`. Only the keys it was given.
fn projected(agent: &Agent, kind: Kind, volume: &str) -> Option<Volume> {
    let mut by_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in references::read_as_files(agent).into_iter().filter(|file| file.kind == kind) {
        by_name.entry(file.name).or_default().extend(file.key);
    }
    let sources: Vec<VolumeProjection> = by_name
        .into_iter()
        .map(|(name, keys)| {
            let path = |key: String| KeyToPath { path: format!("{name}/{key}"), key, ..KeyToPath::default() };
            let items = Some(keys.into_iter().map(path).collect());
            match kind {
                Kind::Secret => VolumeProjection {
                    secret: Some(SecretProjection {
                        name: name.clone(),
                        items,
                        ..SecretProjection::default()
                    }),
                    ..VolumeProjection::default()
                },
                _ => VolumeProjection {
                    config_map: Some(ConfigMapProjection {
                        name: name.clone(),
                        items,
                        ..ConfigMapProjection::default()
                    }),
                    ..VolumeProjection::default()
                },
            }
        })
        .collect();
    (!sources.is_empty()).then(|| Volume {
        name: volume.to_owned(),
        projected: Some(ProjectedVolumeSource { sources: Some(sources), default_mode: Some(0o440) }),
        ..Volume::default()
    })
}

fn volume(given: &GivenVolume) -> Volume {
    Volume {
        name: given.name.clone(),
        empty_dir: given.empty_dir.as_ref().map(|folder| EmptyDirVolumeSource {
            size_limit: folder.size_limit.map(|limit| Quantity(limit.to_string())),
            ..EmptyDirVolumeSource::default()
        }),
        config_map: given.config_map.as_ref().map(|object| ConfigMapVolumeSource {
            name: object.name.clone(),
            ..ConfigMapVolumeSource::default()
        }),
        secret: given.secret.as_ref().map(|object| SecretVolumeSource {
            secret_name: Some(object.name.clone()),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        persistent_volume_claim: given.claim.as_ref().map(|object| PersistentVolumeClaimVolumeSource {
            claim_name: object.name.clone(),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn mounts(agent: &Agent) -> Vec<VolumeMount> {
    let at = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    };
    let files = references::read_as_files(agent);
    let reads = |kind| files.iter().any(|file| file.kind == kind);
    let mut mounts = vec![at(MANIFEST_VOLUME, names::MANIFEST_DIR, true)];
    mounts.extend(reads(Kind::Secret).then(|| at(SECRETS_VOLUME, names::SECRETS_DIR, true)));
    mounts.extend(reads(Kind::ConfigMap).then(|| at(CONFIG_VOLUME, names::CONFIG_DIR, true)));
    mounts.extend(claim::name(agent).map(|_| at(STORE_VOLUME, names::STORE_DIR, false)));
    mounts.extend(folder(agent).map(|_| at(WORKSPACE_VOLUME, names::WORKSPACE_DIR, false)));
    mounts.extend(agent.spec.pod_template.volumes.iter().map(mount));
    mounts
}

fn mount(given: &GivenVolume) -> VolumeMount {
    VolumeMount {
        name: given.name.clone(),
        mount_path: given.mount_path.clone(),
        read_only: Some(given.read_only),
        ..VolumeMount::default()
    }
}
