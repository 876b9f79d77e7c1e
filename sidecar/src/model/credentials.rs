//! The headers that open a provider's door, read from Secrets and read again when the door stays shut.

use std::sync::{PoisonError, RwLock};

use holdfast_crds::{HeaderFrom, SecretKeyRef};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::ModelConfigError;
use crate::secrets::{Secret, Secrets};

/// How a provider takes its key.
#[derive(Debug, Clone)]
pub(super) struct KeyHeader {
    pub(super) name: HeaderName,
    pub(super) prefix: &'static str,
}

impl KeyHeader {
    pub(super) const BEARER: Self = Self { name: http::header::AUTHORIZATION, prefix: "Bearer " };
}

pub(super) struct Credentials {
    secrets: Secrets,
    key: Option<(KeyHeader, SecretKeyRef)>,
    /// What is sent with every request as it is.
    fixed: HeaderMap,
    from: Vec<HeaderFrom>,
    current: RwLock<Current>,
}

#[derive(Clone, PartialEq)]
struct Current {
    headers: HeaderMap,
    values: Vec<Secret>,
}

impl Credentials {
    pub(super) fn new(
        secrets: Secrets,
        key: Option<(KeyHeader, SecretKeyRef)>,
        fixed: HeaderMap,
        from: Vec<HeaderFrom>,
    ) -> Result<Self, ModelConfigError> {
        let nothing = Current { headers: HeaderMap::new(), values: Vec::new() };
        let mut made = Self { secrets, key, fixed, from, current: RwLock::new(nothing) };
        let current = made.read()?;
        made.current = RwLock::new(current);
        Ok(made)
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.current.read().unwrap_or_else(PoisonError::into_inner).headers.clone()
    }

    /// Reads the Secrets again; whether they have changed.
    pub(super) fn reread(&self) -> bool {
        let Ok(fresh) = self.read() else { return false };
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *current != fresh;
        *current = fresh;
        changed
    }

    /// `text` without the values it should not have known.
    pub(super) fn redact(&self, text: &str) -> String {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let values = current.values.iter().map(Secret::expose).filter(|value| !value.is_empty());
        values.fold(text.to_owned(), |text, value| text.replace(value, "…"))
    }

    fn read(&self) -> Result<Current, ModelConfigError> {
        let mut headers = HeaderMap::new();
        let mut values = Vec::new();
        if let Some((KeyHeader { name, prefix }, reference)) = &self.key {
            let key = self.secrets.read(reference)?;
            headers.insert(name.clone(), sensitive(&format!("{prefix}{}", key.expose()), reference)?);
            values.push(key);
        }
        headers.extend(self.fixed.clone());
        for HeaderFrom { name, secret_key_ref } in &self.from {
            let value = self.secrets.read(secret_key_ref)?;
            headers.insert(header_name(name)?, sensitive(value.expose(), secret_key_ref)?);
            values.push(value);
        }
        Ok(Current { headers, values })
    }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ModelConfigError> {
    HeaderName::try_from(name).map_err(|_| ModelConfigError::HeaderName(name.to_owned()))
}

fn sensitive(value: &str, reference: &SecretKeyRef) -> Result<HeaderValue, ModelConfigError> {
    let mut value = HeaderValue::try_from(value).map_err(|_| ModelConfigError::SecretValue {
        name: reference.name.clone(),
        key: reference.key.clone(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
