//! What may not be said together, or not be changed: one table.
//!
//! Each entry says a rule once for people (reason and message), once in CEL for the API server and once in Rust,
//! for objects that were stored before the rule existed and for manifests read outside a cluster.
//! `corpus.yaml` beside the definition holds manifests that break and keep them; CEL and Rust must agree on it.

mod holds;
mod table;

use serde_json::{Map, Value, json};

use crate::{
    agent::{Agent, AgentSpec},
    schema,
};

pub use table::{MAX_GRACE_PERIOD, RULES};

/// The rule that only the volume itself can settle: the operator looks at the claim.
pub const LOCAL_FILESYSTEM_WITH_REPLICAS: &str = "LocalFilesystemWithReplicas";

/// One rule.
pub struct Rule {
    /// Names it in a condition and in a mistake.
    pub reason: &'static str,
    /// What is wrong and what to write instead.
    pub message: &'static str,
    /// Where in the schema the CEL expression is attached: `self` is the value there.
    pub places: &'static [&'static str],
    /// The field to blame, relative to the place.
    pub field: Option<&'static str>,
    pub cel: &'static str,
    /// What it looks at beyond its places: where one of these is itself mistaken, the rule stays silent.
    pub reads: &'static [&'static str],
    pub check: Check,
}

/// The same rule in Rust.
pub enum Check {
    /// Holds everywhere. Gives the paths of the fields that break it.
    Always(fn(&Agent) -> Vec<String>),
    /// Holds only in a cluster.
    InCluster(fn(&Agent) -> Vec<String>),
    /// What may not change from an old spec to a new one.
    Unchanged(fn(&AgentSpec, &AgentSpec) -> bool),
}

/// A rule that an Agent breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub reason: &'static str,
    pub path: String,
    pub message: &'static str,
    pub(crate) reads: &'static [&'static str],
}

/// Every rule this Agent breaks outside a cluster.
pub fn broken_anywhere(agent: &Agent) -> Vec<Violation> {
    broken(agent, false)
}

/// Every rule this Agent breaks in a cluster.
pub fn broken_in_cluster(agent: &Agent) -> Vec<Violation> {
    broken(agent, true)
}

/// Every rule that going from one spec to the other breaks.
pub fn broken_by_change<'a>(
    old: &'a AgentSpec,
    new: &'a AgentSpec,
) -> impl Iterator<Item = &'static Rule> + 'a {
    RULES.iter().filter(|rule| match rule.check {
        Check::Unchanged(unchanged) => !unchanged(old, new),
        Check::Always(_) | Check::InCluster(_) => false,
    })
}

fn broken(agent: &Agent, in_cluster: bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for rule in RULES {
        let paths = match rule.check {
            Check::Always(check) => check(agent),
            Check::InCluster(check) if in_cluster => check(agent),
            Check::InCluster(_) | Check::Unchanged(_) => continue,
        };
        violations.extend(paths.into_iter().map(|path| Violation {
            reason: rule.reason,
            path,
            message: rule.message,
            reads: rule.reads,
        }));
    }
    violations
}

/// Attach every rule to the schema as `x-kubernetes-validations`.
pub(crate) fn attach(schema: &mut Value) {
    for rule in RULES {
        for place in rule.places {
            if let Some(part) = schema::at(schema, place) {
                let validations = part.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
                if let Value::Array(validations) = validations {
                    validations.push(Value::Object(as_validation(rule)));
                }
            }
        }
    }
}

fn as_validation(rule: &Rule) -> Map<String, Value> {
    let mut validation = Map::new();
    validation.insert("rule".into(), json!(rule.cel));
    validation.insert("message".into(), json!(format!("{}: {}", rule.reason, rule.message)));
    if let Some(field) = rule.field {
        validation.insert("fieldPath".into(), json!(format!(".{field}")));
    }
    validation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_finds_its_places_in_the_schema() {
        let mut schema = schema::schema().unwrap();
        for rule in RULES {
            for place in rule.places {
                let part =
                    schema::at(&mut schema, place).unwrap_or_else(|| panic!("{}: no {place}", rule.reason));
                let attached = part["x-kubernetes-validations"].as_array().unwrap();
                assert!(attached.iter().any(|v| v["rule"] == rule.cel), "{} is not at {place}", rule.reason);
            }
        }
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        name: String,
        #[serde(default)]
        metadata: Option<Value>,
        #[serde(default)]
        before: Option<AgentSpec>,
        spec: AgentSpec,
        #[serde(default)]
        breaks: BTreeSet<String>,
    }

    fn corpus() -> Vec<Case> {
        let mut corpus: serde_yaml::Value = serde_yaml::from_str(include_str!("../../corpus.yaml")).unwrap();
        corpus.apply_merge().unwrap();
        serde_yaml::from_value(corpus).unwrap()
    }

    #[test]
    fn the_corpus_breaks_what_it_says() {
        for case in corpus() {
            let mut agent = Agent::new("case", case.spec);
            if let Some(metadata) = case.metadata {
                agent.metadata = serde_json::from_value(metadata).unwrap();
            }
            let changed =
                case.before.iter().flat_map(|before| broken_by_change(before, &agent.spec)).map(|r| r.reason);
            let found: BTreeSet<String> = broken_in_cluster(&agent)
                .iter()
                .map(|v| v.reason)
                .chain(changed)
                .map(str::to_owned)
                .collect();
            assert_eq!(found, case.breaks, "{}", case.name);
        }
    }

    #[test]
    fn the_corpus_breaks_every_rule_once() {
        let broken: BTreeSet<String> = corpus().into_iter().flat_map(|case| case.breaks).collect();
        let all: BTreeSet<String> = RULES.iter().map(|rule| rule.reason.to_owned()).collect();
        assert_eq!(broken, all);
    }
}
