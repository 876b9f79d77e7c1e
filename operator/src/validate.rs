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
    let accepted = accepted(agent);
    let resolved = resolved(&found.missing);
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

fn resolved(missing: &[Missing]) -> Finding {
    let Some(first) = missing.first() else {
        return Finding::yes(reason::RESOLVED, "everything the manifest points at is there");
    };
    let reason = match first {
        Missing::Key(_) => reason::KEY_NOT_FOUND,
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
