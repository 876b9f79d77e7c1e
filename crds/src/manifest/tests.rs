//! Bad manifests and exactly what is said about them.

use insta::assert_snapshot;

use super::{hints, parse};
use crate::{StoreType, schema};

fn said(text: &str) -> String {
    parse(text).expect_err("this manifest is wrong").in_file("agent.yaml").to_string()
}

#[test]
fn the_smallest_manifest_needs_no_store() {
    let agent = parse("apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {model: {provider: Scripted}}").unwrap();
    assert_eq!(agent.spec.effective_state_store().kind, StoreType::JsonFile);
    assert_eq!(agent.spec.session.lease_duration.as_secs(), 6);
    assert_eq!(agent.spec.grace_period().as_secs(), 5 + 30 + 60 + 10 + 300 + 5);
    assert_eq!(agent.key_prefix(), "default.a");
}

#[test]
fn other_kinds_are_passed_over_and_nulls_are_absent() {
    let text = "kind: Secret\n---\napiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec:\n  replicas: ~\n  tools:\n  model: {provider: Scripted}\n";
    assert_eq!(parse(text).unwrap().spec.replicas, None);
}

#[test]
fn every_mistake_at_once() {
    assert_snapshot!(said(
        r#"apiVersion: holdfast.dev/v1
kind: Agent
metadata:
  name: support
  label: {a: b}
spec:
  replicas: three
  model:
    provider: Openai
    base_url: http://vllm
    requestTimeout: 120
    parameters: {temperature: 7, stop: hello}
  loop: {callTimeout: ten minutes}
  tools:
    - name: crm
      mcp: {allow: [a, a]}
    - name: crm
      mcp: {url: crm-mcp/mcp}
      safety: {refund: Dangerous}
  stateStore:
    type: Redis
    redis: {url: "redis://:secret@redis:6379", urlSecretRef: {name: redis}}
    cacheSize: 64
  session: {durability: true}
  podTemplate: {resources: {limits: {cpu: much}}, imagePullSecrets: regcred}
  colour: blue
"#
    ));
}

#[test]
fn rules_are_told_with_their_reason_and_line() {
    assert_snapshot!(said(
        r#"apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata: {name: Support}
spec:
  replicas: 3
  autoscaling: {maxReplicas: 5}
  model:
    provider: OpenAI
    extraHeaders: {Authorization: Bearer x}
  stateStore: {type: JsonFile}
  shutdown: {relayTimeout: 10m}
"#
    ));
}

#[test]
fn a_typing_error_does_not_hide_a_rule() {
    assert_snapshot!(said(
        "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec:\n  replicas: 2\n  model: {provider: Openai}\n  stateStore: {type: InMemory}\n"
    ));
}

#[test]
fn a_rule_about_a_mistaken_field_stays_silent() {
    assert_snapshot!(said(
        "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec:\n  model: {provider: Scripted}\n  stateStore: {type: Redis, redis: {urlSecretRef: {name: a, keys: b}}}\n"
    ));
}

#[test]
fn what_is_missing_altogether() {
    assert_snapshot!(said("kind: Agent\n"));
    assert_snapshot!(said(""));
    assert_snapshot!(said("kind: ConfigMap\n---\nkind: Secret\n"));
    assert_snapshot!(said("- a\n- b\n"));
}

#[test]
fn what_is_not_yaml() {
    assert_snapshot!(said("kind: Agent\nspec: {model: [}\n"));
    assert_snapshot!(said("kind: Agent\nspec:\n  replicas: 1\n  replicas: 2\n"));
    assert_snapshot!(said("a: &a [*a]\n"));
}

#[test]
fn aliases_of_aliases_do_not_grow_without_end() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let last = format!("*a{}", i - 1);
        text.push_str(&format!("a{i}: &a{i} [{}]\n", vec![last; 10].join(", ")));
    }
    assert!(said(&text).contains("too large"));
}

#[test]
fn every_pattern_has_its_words() {
    fn patterns(schema: &serde_json::Value, found: &mut Vec<String>) {
        found.extend(schema["pattern"].as_str().map(str::to_owned));
        for inner in schema["properties"].as_object().into_iter().flat_map(|map| map.values()) {
            patterns(inner, found);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                patterns(&schema[inner], found);
            }
        }
    }
    let mut found = Vec::new();
    patterns(&schema::schema().unwrap()["properties"]["spec"], &mut found);
    assert!(!found.is_empty());
    for pattern in found {
        regex_lite::Regex::new(&pattern).unwrap();
        assert!(hints::PATTERNS.iter().any(|(known, _)| *known == pattern), "no words for {pattern}");
    }
}
