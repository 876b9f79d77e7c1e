//! Single values out of Secrets and ConfigMaps, asked for when they are needed and let go at once.

use std::collections::BTreeSet;

use holdfast_crds::{ConfigMapKeyRef, SecretKeyRef};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::{Api, Client};

use crate::{
    error::Error,
    references::{Kind, Reference},
};

pub fn secrets(client: &Client, namespace: &str) -> Api<Secret> {
    Api::namespaced(client.clone(), namespace)
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub fn failed(kind: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
    let what = format!("{kind} {name}");
    move |source| Error::Dereference { what, source: Box::new(source) }
}

pub async fn secret_value(
    client: &Client,
    namespace: &str,
    from: &SecretKeyRef,
) -> Result<Option<Vec<u8>>, Error> {
    let found = secrets(client, namespace).get_opt(&from.name).await.map_err(failed("Secret", &from.name))?;
    Ok(found.and_then(|secret| secret.data?.remove(&from.key)).map(|bytes| bytes.0))
}

pub async fn config_map_value(
    client: &Client,
    namespace: &str,
    from: &ConfigMapKeyRef,
) -> Result<Option<String>, Error> {
    let found = config_maps(client, namespace).get_opt(&from.name).await;
    let found = found.map_err(failed("ConfigMap", &from.name))?;
    Ok(found.and_then(|config_map| config_map.data?.remove(&from.key)))
}

/// The names of the keys of a Secret or ConfigMap, or the ways a claim may be used.
pub async fn contents(
    client: &Client,
    namespace: &str,
    reference: &Reference,
) -> Result<BTreeSet<String>, Error> {
    let failed = failed(reference.kind.word(), &reference.name);
    Ok(match reference.kind {
        Kind::Secret => {
            let found = secrets(client, namespace).get_opt(&reference.name).await.map_err(failed)?;
            found.and_then(|secret| secret.data).unwrap_or_default().into_keys().collect()
        }
        Kind::ConfigMap => {
            let found = config_maps(client, namespace).get_opt(&reference.name).await.map_err(failed)?;
            let found = found.unwrap_or_default();
            let texts = found.data.unwrap_or_default().into_keys();
            texts.chain(found.binary_data.unwrap_or_default().into_keys()).collect()
        }
        Kind::Claim => {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            let found = claims.get_opt(&reference.name).await.map_err(failed)?;
            found.and_then(|claim| claim.spec?.access_modes).unwrap_or_default().into_iter().collect()
        }
    })
}
