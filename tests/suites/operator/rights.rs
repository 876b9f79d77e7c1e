//! The operator may do what it does, and nothing else.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::bench::{Bench, SOON};

/// The verb, the group and the resource.
type Right = (String, String, String);

/// Every right the chart gives was used by the tests before this one, and nothing was asked for that it does not give:
/// whichever is removed, one of them fails.
pub async fn every_right_is_used_and_none_is_missing(bench: &Bench) -> Result<()> {
    let cluster: ClusterRole = Api::all(bench.client.clone()).get("holdfast").await?;
    let leader: Role =
        Api::namespaced(bench.client.clone(), "holdfast-system").get("holdfast-leader").await?;
    let rules: Vec<PolicyRule> = cluster
        .rules
        .clone()
        .unwrap_or_default()
        .into_iter()
        .chain(leader.rules.unwrap_or_default())
        .collect();
    let granted: BTreeSet<Right> = rules.iter().flat_map(rights).collect();
    ensure!(
        !granted
            .iter()
            .any(|(verb, group, resource)| [verb, group, resource].iter().any(|word| word.contains('*')))
    );

    let mut used = BTreeSet::new();
    for line in bench.server.audit().lines() {
        let entry: Value = serde_json::from_str(line)?;
        let object = &entry["objectRef"];
        let resource = match (object["resource"].as_str(), object["subresource"].as_str()) {
            (Some(resource), Some(subresource)) => format!("{resource}/{subresource}"),
            (Some(resource), None) => resource.to_owned(),
            _ => continue,
        };
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ensure!(entry["responseStatus"]["code"] != 403, "forbidden: {line}");
        used.insert((word(&entry["verb"]), word(&object["apiGroup"]), resource));
    }
    // An apply that makes an object is one request, a patch; that it may create is asked all the same: see below.
    let by_patch =
        |(verb, _, resource): &&Right| verb == "create" && MADE_BY_PATCH.contains(&resource.as_str());
    let unused: Vec<&Right> = granted.difference(&used).filter(|right| !by_patch(right)).collect();
    ensure!(unused.is_empty(), "given and never used: {unused:?}");
    Ok(())
}

fn rights(rule: &PolicyRule) -> Vec<Right> {
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            rights.extend(rule.verbs.iter().map(|verb| (verb.clone(), group.clone(), resource.clone())));
        }
    }
    rights
}

const MADE_BY_PATCH: &[&str] = &[
    "serviceaccounts",
    "services",
    "configmaps",
    "networkpolicies",
    "poddisruptionbudgets",
    "deployments",
    "persistentvolumeclaims",
    "statefulsets",
    "horizontalpodautoscalers",
    "httproutes",
    "servicemonitors",
];

/// An Agent that makes all of these.
fn demanding(resource: &str) -> Value {
    match resource {
        "persistentvolumeclaims" => {
            json!({"model": {"provider": "Scripted"}, "stateStore": {"type": "JsonFile"}})
        }
        "httproutes" | "servicemonitors" => crate::exposure::exposed(),
        _ => {
            json!({"autoscaling": {"maxReplicas": 2}, "model": {"provider": "Scripted"}, "stateStore": {"type": "Redis", "redis": {"managed": {}}}})
        }
    }
}

/// Without the right to create, an Agent is told why nothing happens.
pub async fn a_right_to_create_that_is_taken_away_is_missed(bench: &Bench) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(bench.client.clone());
    let space = bench.namespace("rights").await?;
    let complete = roles.get("holdfast").await?.rules.unwrap_or_default();
    for resource in MADE_BY_PATCH {
        replace(&roles, without_create(&complete, resource)).await?;
        // The API server hears of it by a watch of its own.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let agent = format!("no-{resource}");
        space.apply(&agent, demanding(resource)).await?;
        let said = space.says(&agent, "Progressing", "False", "ApplyFailed", SOON).await;
        replace(&roles, complete.clone()).await?;
        let said = said?.message;
        ensure!(said.contains(&format!("cannot create resource \"{resource}\"")), "{said}");
    }
    Ok(())
}

fn without_create(rules: &[PolicyRule], resource: &str) -> Vec<PolicyRule> {
    let mut less = Vec::new();
    for rule in rules {
        let (these, others): (Vec<String>, Vec<String>) =
            rule.resources.iter().flatten().cloned().partition(|one| one == resource);
        let verbs = rule.verbs.iter().filter(|verb| *verb != "create").cloned().collect();
        less.push(PolicyRule { resources: Some(others), ..rule.clone() });
        less.push(PolicyRule { resources: Some(these), verbs, ..rule.clone() });
    }
    less.retain(|rule| rule.resources.iter().flatten().count() > 0 && !rule.verbs.is_empty());
    less
}

async fn replace(roles: &Api<ClusterRole>, rules: Vec<PolicyRule>) -> Result<()> {
    let mut role = roles.get("holdfast").await?;
    role.rules = Some(rules);
    roles.replace("holdfast", &PostParams::default(), &role).await?;
    Ok(())
}
