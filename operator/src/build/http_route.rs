//! A way in from a Gateway, when the manifest asks for one. Of the Gateway API only what is said here.

use holdfast_crds::{Agent, ParentRef};
use kube::{CustomResource, ResourceExt as _};
use serde::{Deserialize, Serialize};

use super::owned;
use crate::names;

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
    parent_refs: Vec<ParentRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hostnames: Vec<String>,
    rules: Vec<RouteRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteRule {
    matches: Vec<RouteMatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    filters: Vec<RouteFilter>,
    backend_refs: Vec<BackendRef>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RouteMatch {
    path: PathMatch,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PathMatch {
    #[serde(rename = "type")]
    kind: String,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteFilter {
    #[serde(rename = "type")]
    kind: String,
    url_rewrite: UrlRewrite,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct UrlRewrite {
    path: PathRewrite,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PathRewrite {
    #[serde(rename = "type")]
    kind: String,
    replace_prefix_match: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct BackendRef {
    name: String,
    port: i32,
}

pub(super) fn build(agent: &Agent) -> Option<HTTPRoute> {
    let asked = agent.spec.http_route.as_ref()?;
    let prefix = asked.path_prefix.clone();
    // The agent knows nothing of the prefix it is found under.
    let rewrite = (prefix != "/").then(|| RouteFilter {
        kind: "URLRewrite".to_owned(),
        url_rewrite: UrlRewrite {
            path: PathRewrite { kind: "ReplacePrefixMatch".to_owned(), replace_prefix_match: "/".to_owned() },
        },
    });
    Some(HTTPRoute {
        metadata: owned(agent, agent.name_any(), "agent"),
        spec: HTTPRouteSpec {
            parent_refs: asked.parent_refs.clone(),
            hostnames: asked.hostnames.clone(),
            rules: vec![RouteRule {
                matches: vec![RouteMatch {
                    path: PathMatch { kind: "PathPrefix".to_owned(), value: prefix },
                }],
                filters: rewrite.into_iter().collect(),
                backend_refs: vec![BackendRef { name: agent.name_any(), port: names::CLIENT_PORT }],
            }],
        },
    })
}
