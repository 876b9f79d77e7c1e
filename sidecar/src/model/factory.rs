//! From a manifest to the model it names.

use std::sync::Arc;

use holdfast_crds::{Agent, Model as Manifest, Provider as Kind};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};

use super::Model;
use super::anthropic::{self, Anthropic};
use super::openai::OpenAi;
use super::provider::{Protocol, Provider};
use super::scripted::Scripted;
use crate::outbound::{
    CredentialError, Credentials, KeyHeader, Options, Outbound, OutboundError, USER_AGENT,
};
use crate::secrets::{SecretError, Secrets};

/// A manifest's model that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ModelConfigError {
    #[error("spec.model.baseUrl {0:?} is no address; write http:// or https://, a host and a path")]
    BaseUrl(String),
    #[error("spec.model: {0}")]
    Credentials(#[from] CredentialError),
    #[error("spec.model.caBundleFrom: {0}")]
    Certificates(#[from] SecretError),
    #[error("spec.model: {0}")]
    Outbound(#[from] OutboundError),
}

/// The model a manifest names. Its Secrets are read; nothing is sent yet.
pub fn from_manifest(agent: &Agent, secrets: &Secrets) -> Result<Arc<dyn Model>, ModelConfigError> {
    let manifest = &agent.spec.model;
    match manifest.provider {
        Kind::Scripted => Ok(Arc::new(Scripted::new(
            manifest.scripted.clone().unwrap_or_default(),
            manifest.request_timeout.get(),
        ))),
        Kind::OpenAI => {
            over_http(manifest, secrets, OpenAi::new(manifest)?, KeyHeader::BEARER, HeaderMap::new())
        }
        Kind::Anthropic => {
            let (name, value) = anthropic::VERSION;
            let version = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            over_http(manifest, secrets, Anthropic::new(manifest)?, anthropic::KEY, version)
        }
    }
}

fn over_http(
    manifest: &Manifest,
    secrets: &Secrets,
    protocol: impl Protocol,
    key: KeyHeader,
    mut headers: HeaderMap,
) -> Result<Arc<dyn Model>, ModelConfigError> {
    headers.insert(http::header::USER_AGENT, USER_AGENT);
    headers.extend(Credentials::fixed(&manifest.extra_headers)?);
    let key = manifest.api_key_secret_ref.clone().map(|reference| (key, reference));
    let credentials = Credentials::new(secrets.clone(), key, headers, manifest.headers_from.clone())?;
    let mut options = Options::from_env();
    if let Some(from) = &manifest.ca_bundle_from {
        options.trust = options.trust.with_pem(&secrets.read_certificates(from)?)?;
    }
    let client = Outbound::new(protocol.uri(), options)?;
    let request_timeout = manifest.request_timeout.get();
    Ok(Arc::new(Provider { protocol, client, credentials, request_timeout }))
}

/// `path` below `base`, whether or not `base` ends with a slash, names the path already or has a query.
pub(super) fn endpoint(base: &str, path: &str) -> Result<Uri, ModelConfigError> {
    let wrong = || ModelConfigError::BaseUrl(base.to_owned());
    let mut parts = base.trim().parse::<Uri>().map_err(|_| wrong())?.into_parts();
    if !matches!(parts.scheme.as_ref().map(http::uri::Scheme::as_str), Some("http" | "https")) {
        return Err(wrong());
    }
    let given = parts.path_and_query.take().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let above = given.path().trim_end_matches('/');
    let above = above.strip_suffix(path).unwrap_or(above);
    let query = given.query().map_or_else(String::new, |query| format!("?{query}"));
    let whole = format!("{above}{path}{query}");
    parts.path_and_query = Some(whole.parse().or_else(|_| "/".parse()).map_err(|_| wrong())?);
    Uri::from_parts(parts).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_found_below_every_way_to_write_its_base() {
        let at = |base: &str| endpoint(base, "/chat/completions").map(|uri| uri.to_string()).ok();
        let expected = Some("http://vllm:8000/v1/chat/completions".to_owned());
        assert_eq!(at("http://vllm:8000/v1"), expected);
        assert_eq!(at("http://vllm:8000/v1/"), expected);
        assert_eq!(at("http://vllm:8000/v1/chat/completions"), expected);
        assert_eq!(at("http://deepseek").as_deref(), Some("http://deepseek/chat/completions"));
        assert_eq!(
            at("https://x.openai.azure.com/openai/deployments/d?api-version=1").as_deref(),
            Some("https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1")
        );
        assert_eq!(at("ftp://x/v1"), None);
        assert_eq!(at("/v1"), None);
        assert_eq!(endpoint("http://x", "").expect("an address").path(), "/");
    }
}
