//! A Redis for one Agent alone: one pod, every write synced to its volume before it is acknowledged, nothing
//! evicted, a password nobody chose.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use holdfast_crds::{Agent, OnDelete};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec},
        core::v1::{
            Container, ContainerPort, KeyToPath, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodSpec,
            PodTemplateSpec, Probe, ResourceRequirements, Secret, SecretVolumeSource, Service, ServicePort,
            ServiceSpec, TCPSocketAction, Volume, VolumeMount, VolumeResourceRequirements,
        },
        networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicySpec},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt as _;

use super::{
    Inputs, network_policy, owned,
    pod::{container_security, pod_security},
};
use crate::names;

pub const URL_KEY: &str = "url";
pub const PASSWORD_KEY: &str = "password";
const CONFIG_KEY: &str = "redis.conf";
const CONFIG_DIR: &str = "/etc/redis";

/// A managed Redis' password. Not for printing.
#[derive(Clone)]
pub struct Password {
    pub text: String,
    /// uid and resourceVersion of the Secret that holds it; absent before the first.
    pub version: Option<String>,
    /// The Secret says what it should.
    pub intact: bool,
}

impl Hash for Password {
    /// The version stands for the text.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.version, self.intact).hash(hasher);
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password").field("version", &self.version).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub struct ManagedRedis {
    /// Only where there is none yet, or it is not as it should be. Everything else carries its version.
    pub secret: Option<Secret>,
    pub service: Service,
    pub network_policy: NetworkPolicy,
    pub stateful_set: StatefulSet,
}

pub(super) fn build(agent: &Agent, inputs: &Inputs, password: &Password) -> ManagedRedis {
    ManagedRedis {
        secret: (!password.intact).then(|| secret(agent, &password.text)),
        service: service(agent),
        network_policy: network_policy(agent),
        stateful_set: stateful_set(agent, inputs, password),
    }
}

/// Where it is, and the way in.
pub fn url(agent: &Agent, password: &str) -> String {
    let (name, namespace) = (names::redis_name(agent), agent.namespace().unwrap_or_default());
    format!("redis://:{password}@{name}.{namespace}.svc:{}/0", names::REDIS_PORT)
}

/// What the Secret must say.
pub fn secret_data(agent: &Agent, password: &str) -> BTreeMap<String, ByteString> {
    let config = format!(
        "port {}\ndir /data\nappendonly yes\nappendfsync always\nmaxmemory-policy noeviction\nsave \"\"\nrequirepass {password}\n",
        names::REDIS_PORT
    );
    let bytes = |text: String| ByteString(text.into_bytes());
    BTreeMap::from([
        (CONFIG_KEY.to_owned(), bytes(config)),
        (PASSWORD_KEY.to_owned(), bytes(password.to_owned())),
        (URL_KEY.to_owned(), bytes(url(agent, password))),
    ])
}

fn secret(agent: &Agent, password: &str) -> Secret {
    Secret {
        metadata: owned(agent, names::redis_name(agent), "store"),
        type_: Some("Opaque".to_owned()),
        data: Some(secret_data(agent, password)),
        ..Secret::default()
    }
}

fn service(agent: &Agent) -> Service {
    Service {
        metadata: owned(agent, names::redis_name(agent), "store"),
        spec: Some(ServiceSpec {
            selector: Some(names::store_selector(agent)),
            ports: Some(vec![ServicePort {
                name: Some("redis".to_owned()),
                port: names::REDIS_PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String("redis".to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Only the agent's own pods, and the operator, which asks it how durable it is.
fn network_policy(agent: &Agent) -> NetworkPolicy {
    let labelled = |labels| Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
    let operator = BTreeMap::from([("app.kubernetes.io/name".to_owned(), names::OPERATOR_NAME.to_owned())]);
    let peers = vec![
        NetworkPolicyPeer { pod_selector: labelled(names::selector(agent)), ..NetworkPolicyPeer::default() },
        NetworkPolicyPeer {
            namespace_selector: Some(LabelSelector::default()),
            pod_selector: labelled(operator),
            ..NetworkPolicyPeer::default()
        },
    ];
    NetworkPolicy {
        metadata: owned(agent, names::redis_name(agent), "store"),
        spec: Some(NetworkPolicySpec {
            pod_selector: labelled(names::store_selector(agent)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: Some(peers),
                ports: Some(vec![network_policy::tcp(names::REDIS_PORT)]),
            }]),
            ..NetworkPolicySpec::default()
        }),
    }
}

fn stateful_set(agent: &Agent, inputs: &Inputs, password: &Password) -> StatefulSet {
    let managed = agent.spec.state_store.as_ref().and_then(|store| store.managed());
    let on_delete = match managed.map(|managed| managed.on_delete).unwrap_or_default() {
        OnDelete::Retain => "Retain",
        OnDelete::Delete => "Delete",
    };
    let mut labels = names::labels(agent, "store");
    labels.extend(names::store_selector(agent));
    // A changed password must reach the running server.
    let annotations = password
        .version
        .clone()
        .map(|version| BTreeMap::from([(names::REFERENCES_ANNOTATION.to_owned(), version)]));
    StatefulSet {
        metadata: owned(agent, names::redis_name(agent), "store"),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some(names::redis_name(agent)),
            selector: LabelSelector {
                match_labels: Some(names::store_selector(agent)),
                ..LabelSelector::default()
            },
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some(on_delete.to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), annotations, ..ObjectMeta::default() }),
                spec: Some(pod(agent, inputs)),
            },
            volume_claim_templates: Some(vec![claim(agent)]),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn pod(agent: &Agent, inputs: &Inputs) -> PodSpec {
    let managed = agent.spec.state_store.as_ref().and_then(|store| store.managed());
    let image =
        managed.and_then(|managed| managed.image.clone()).unwrap_or_else(|| inputs.redis_image.clone());
    let answers = |period, failures| Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String("redis".to_owned()),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        ..Probe::default()
    };
    let quantity = |text: &str| Quantity(text.to_owned());
    let mount = |name: &str, path: &str, read_only| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    };
    PodSpec {
        service_account_name: Some(agent.name_any()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(pod_security()),
        containers: vec![Container {
            name: "redis".to_owned(),
            image: Some(image),
            command: Some(vec!["redis-server".to_owned(), format!("{CONFIG_DIR}/{CONFIG_KEY}")]),
            ports: Some(vec![ContainerPort {
                name: Some("redis".to_owned()),
                container_port: names::REDIS_PORT,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            readiness_probe: Some(answers(2, 3)),
            liveness_probe: Some(answers(10, 6)),
            resources: Some(ResourceRequirements {
                requests: Some(BTreeMap::from([
                    ("cpu".to_owned(), quantity("50m")),
                    ("memory".to_owned(), quantity("128Mi")),
                ])),
                ..ResourceRequirements::default()
            }),
            security_context: Some(container_security(Some(names::NOBODY))),
            volume_mounts: Some(vec![mount("data", "/data", false), mount("config", CONFIG_DIR, true)]),
            ..Container::default()
        }],
        volumes: Some(vec![Volume {
            name: "config".to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::redis_name(agent)),
                default_mode: Some(0o440),
                items: Some(vec![KeyToPath {
                    key: CONFIG_KEY.to_owned(),
                    path: CONFIG_KEY.to_owned(),
                    ..KeyToPath::default()
                }]),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

fn claim(agent: &Agent) -> PersistentVolumeClaim {
    let managed = agent.spec.state_store.as_ref().and_then(|store| store.managed());
    let storage = managed.map(|managed| managed.storage.to_string()).unwrap_or_default();
    PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some("data".to_owned()), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: managed.and_then(|managed| managed.storage_class_name.clone()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(storage))])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
