//! The second step, pure: whether what was found may run.

use holdfast_crds::{Agent, StoreType, rules};

use crate::{
    conditions::{Finding, Truth, reason},
    dereference::{Found, Missing},
    names,
    references::Kind,
};

/// What is to be said of the Agent, and whether its pods may be made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub accepted: Finding,
    pub resolved: Finding,
    pub store_ready: Finding,
    pub store_durable: Finding,
    pub hold: Option<Hold>,
}

/// Why what runs is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    NotAccepted,
    Unresolved,
    /// A store that refuses us. One that merely cannot be reached from here holds nothing up.
    StoreRefuses,
    Paused,
}

/// The rules, for an Agent that was stored before they were.
pub fn accepted(agent: &Agent) -> Finding {
    let broken = rules::broken_in_cluster(agent);
    match broken.first() {
        None => Finding::yes(reason::ACCEPTED, "the manifest keeps the rules"),
        Some(first) => {
            let all: Vec<String> =
                broken.iter().map(|rule| format!("{}: {}", rule.path, rule.message)).collect();
            Finding::no(first.reason, all.join("; "))
        }
    }
}

pub fn validate(agent: &Agent, found: &Found) -> Verdict {
    let accepted = match &found.narrow_claim {
        Some(claim) if rules::broken_in_cluster(agent).is_empty() => too_narrow(claim),
        _ => accepted(agent),
    };
    let resolved = resolved(found);
    let (store_ready, store_durable) = store(agent, found);
    let hold = if names::is_paused(agent) {
        Some(Hold::Paused)
    } else if accepted.truth != Truth::True {
        Some(Hold::NotAccepted)
    } else if resolved.truth != Truth::True {
        Some(Hold::Unresolved)
    } else if store_ready.truth == Truth::False {
        Some(Hold::StoreRefuses)
    } else {
        None
    };
    Verdict { accepted, resolved, store_ready, store_durable, hold }
}

/// The rule about Local files and replicas, found broken by the claim itself.
fn too_narrow(claim: &str) -> Finding {
    let rule = rules::LOCAL_FILESYSTEM_WITH_REPLICAS;
    let message = rules::RULES.iter().find(|known| known.reason == rule).map_or("", |known| known.message);
    Finding::no(
        rule,
        format!(
            "PersistentVolumeClaim {claim} is not ReadWriteMany as filesystem.volume.accessMode says; {message}"
        ),
    )
}

fn resolved(Found { missing, unknown, .. }: &Found) -> Finding {
    let Some(first) = missing.first() else {
        let mut message = "everything the manifest points at is there".to_owned();
        for kind in unknown {
            message += &format!("; this cluster knows no {kind}: it is made once it does");
        }
        return Finding::yes(reason::RESOLVED, message);
    };
    let reason = match first {
        Missing::Key(_) => reason::KEY_NOT_FOUND,
        Missing::Access(..) => reason::CLAIM_ACCESS_MODE,
        Missing::Object(reference) => match reference.kind {
            Kind::Secret => reason::SECRET_NOT_FOUND,
            Kind::ConfigMap => reason::CONFIG_MAP_NOT_FOUND,
            Kind::Claim => reason::CLAIM_NOT_FOUND,
        },
    };
    let sentences: Vec<String> = missing.iter().map(sentence).collect();
    Finding::no(reason, sentences.join("; "))
}

fn sentence(missing: &Missing) -> String {
    match missing {
        Missing::Object(reference) => {
            format!(
                "{} {} does not exist: create it in this namespace",
                reference.kind.word(),
                reference.name
            )
        }
        Missing::Key(reference) => format!(
            "{} {} has no key {}: add it",
            reference.kind.word(),
            reference.name,
            reference.key.as_deref().unwrap_or_default()
        ),
        Missing::Access(reference, access) => format!(
            "{} {} has none of the access modes {}: use a claim that has one",
            reference.kind.word(),
            reference.name,
            access.modes().join(", ")
        ),
    }
}

fn store(agent: &Agent, found: &Found) -> (Finding, Finding) {
    match (agent.spec.state_store.as_ref().map(|store| store.kind), &found.store) {
        (Some(StoreType::JsonFile), _) => (
            Finding::yes(reason::LOCAL, "conversations live in files on the agent's volume"),
            Finding::yes(reason::ALWAYS, "every file is synced to the volume before it is acknowledged"),
        ),
        (Some(StoreType::InMemory), _) => (
            Finding::yes(reason::LOCAL, "conversations live in the agent's memory"),
            Finding::no(
                reason::MEMORY_ONLY,
                "every conversation is lost when the pod stops: for more than a trial use stateStore.type Redis",
            ),
        ),
        (Some(StoreType::Redis), Some(outcome)) => (outcome.ready.clone(), outcome.durable.clone()),
        (Some(StoreType::Redis) | None, _) => {
            let unknown = || Finding::unknown(reason::NOT_CHECKED, "the store's address is not known yet");
            (unknown(), Finding::unknown(reason::UNKNOWN, unknown().message))
        }
    }
}
