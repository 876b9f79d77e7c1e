//! The description of the interface and the interface itself are the same.

use std::collections::BTreeSet;

use holdfast_sidecar::api::{openapi, paths};
use http::Method;
use serde_json::Value;

use crate::kit::{Send, echo};

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let agent = echo().await;
    let served = agent.get("/openapi.json").await.ok();
    let described: Value = serde_json::from_str(openapi::document()).expect("JSON");
    assert_eq!(served, described);
    let described: BTreeSet<(String, String)> = described["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().expect("an item").keys().filter(|key| *key != "parameters");
            methods.map(|method| (path.clone(), method.to_uppercase())).collect::<Vec<_>>()
        })
        .collect();
    let mut routed = BTreeSet::new();
    for path in paths() {
        let refused = agent.send(Send::new(Method::TRACE, &path.replace(['{', '}'], ""))).await;
        refused.problem(405, "method-not-allowed");
        for method in refused.header("allow").expect("allow").split(',').filter(|method| *method != "HEAD") {
            routed.insert((path.clone(), method.to_owned()));
        }
    }
    assert_eq!(described, routed);
    assert!(routed.len() > 30, "{}", routed.len());
}

#[test]
fn operations_have_names_of_their_own() {
    let described: Value = serde_json::from_str(openapi::document()).expect("JSON");
    let mut names = BTreeSet::new();
    for (path, item) in described["paths"].as_object().expect("paths") {
        for (method, operation) in
            item.as_object().expect("an item").iter().filter(|(key, _)| *key != "parameters")
        {
            let name = operation["operationId"].as_str().unwrap_or_default();
            assert!(!name.is_empty() && names.insert(name.to_owned()), "{method} {path}: {name:?}");
        }
    }
}
