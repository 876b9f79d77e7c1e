//! Pure: what a manifest points at in its namespace, and which of it the agent reads as files.

use holdfast_crds::{Agent, CertificatesFrom, ConfigMapKeyRef, Filesystem, SecretKeyRef};

use crate::{build, names};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Secret,
    ConfigMap,
    Claim,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Claim => "PersistentVolumeClaim",
        }
    }
}

/// An object in the Agent's namespace, and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    pub kind: Kind,
    pub name: String,
    pub key: Option<String>,
    /// Of a claim; where a user mounts one, what it is good for is the user's business.
    pub access: Option<Access>,
}

/// How a claim must let itself be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// By one writer.
    Write,
}

impl Access {
    /// The access modes, of which the claim must have one.
    pub fn modes(self) -> &'static [&'static str] {
        match self {
            Self::Write => &["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"],
        }
    }
}

impl Reference {
    fn secret(from: &SecretKeyRef) -> Self {
        Self { kind: Kind::Secret, name: from.name.clone(), key: Some(from.key.clone()), access: None }
    }

    fn config_map(from: &ConfigMapKeyRef) -> Self {
        Self { kind: Kind::ConfigMap, name: from.name.clone(), key: Some(from.key.clone()), access: None }
    }

    fn certificates(from: &CertificatesFrom) -> impl Iterator<Item = Self> {
        let config_map = from.config_map_key_ref.as_ref().map(Self::config_map);
        config_map.into_iter().chain(from.secret_key_ref.as_ref().map(Self::secret))
    }

    fn whole(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned(), key: None, access: None }
    }
}

/// What the agent reads as files, `<directory of the kind>/<name>/<key>`. Sorted, each once.
pub fn read_as_files(agent: &Agent) -> Vec<Reference> {
    let spec = &agent.spec;
    let mut found: Vec<Reference> = Vec::new();
    found.extend(spec.model.api_key_secret_ref.as_ref().map(Reference::secret));
    found.extend(spec.model.headers_from.iter().map(|header| Reference::secret(&header.secret_key_ref)));
    found.extend(spec.model.ca_bundle_from.iter().flat_map(Reference::certificates));
    for tool in &spec.tools {
        found.extend(tool.mcp.headers_from.iter().map(|header| Reference::secret(&header.secret_key_ref)));
    }
    if let Some(redis) = spec.state_store.as_ref().and_then(|store| store.redis.as_ref()) {
        found.extend(redis.url_secret_ref.as_ref().map(Reference::secret));
        found.extend(redis.tls.iter().flat_map(|tls| Reference::certificates(&tls.ca_from)));
        found.extend(redis.managed.as_ref().map(|_| Reference {
            kind: Kind::Secret,
            name: names::redis_name(agent),
            key: Some(build::REDIS_URL_KEY.to_owned()),
            access: None,
        }));
    }
    found.extend(spec.auth.token_secret_ref.as_ref().map(Reference::secret));
    found.sort();
    found.dedup();
    found
}

/// Everything that must exist before a pod of this Agent can start. Sorted, each once. The Secret of a managed
/// Redis is not among them: the operator makes it.
pub fn needed(agent: &Agent) -> Vec<Reference> {
    let spec = &agent.spec;
    let mut found = read_as_files(agent);
    found
        .extend(spec.system_prompt_from.as_ref().map(|from| Reference::config_map(&from.config_map_key_ref)));
    for env in spec.pod_template.env.iter().chain(spec.companions.iter().flat_map(|companion| &companion.env))
    {
        found.extend(env.secret_key_ref.as_ref().map(Reference::secret));
        found.extend(env.config_map_key_ref.as_ref().map(Reference::config_map));
    }
    for volume in &spec.pod_template.volumes {
        found.extend(volume.secret.as_ref().map(|object| Reference::whole(Kind::Secret, &object.name)));
        found
            .extend(volume.config_map.as_ref().map(|object| Reference::whole(Kind::ConfigMap, &object.name)));
        found.extend(volume.claim.as_ref().map(|object| Reference::whole(Kind::Claim, &object.name)));
    }
    let file_volume = spec.state_store.as_ref().and_then(|store| store.json_file.as_ref()?.volume.as_ref());
    let claim = file_volume.and_then(|volume| volume.claim_name.as_deref());
    let writable = |name| Reference { access: Some(Access::Write), ..Reference::whole(Kind::Claim, name) };
    found.extend(claim.map(writable));
    let workspace = spec.filesystem.as_ref().and_then(Filesystem::claim);
    found.extend(workspace.map(|volume| writable(&volume.claim_name)));
    if spec.state_store.as_ref().is_some_and(|store| store.managed().is_some()) {
        let made = names::redis_name(agent);
        found.retain(|reference| reference.kind != Kind::Secret || reference.name != made);
    }
    found.sort();
    found.dedup();
    found
}
