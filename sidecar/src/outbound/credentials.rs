//! The headers that open a server's door, read from Secrets and read again when the door stays shut.

use std::sync::{PoisonError, RwLock};

use holdfast_crds::{HeaderFrom, SecretKeyRef};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::secrets::{Secret, SecretError, Secrets};

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("{0:?} is no name of a header; correct extraHeaders or headersFrom")]
    HeaderName(String),
    #[error("the value of {0:?} in extraHeaders cannot be sent; use visible ASCII characters")]
    HeaderValue(String),
    #[error("what Secret {name:?} holds under {key:?} cannot be sent as a header; check it for line ends")]
    SecretValue { name: String, key: String },
}

/// How a server takes its key.
#[derive(Debug, Clone)]
pub struct KeyHeader {
    pub name: HeaderName,
    pub prefix: &'static str,
}

impl KeyHeader {
    pub const BEARER: Self = Self { name: http::header::AUTHORIZATION, prefix: "Bearer " };
}

pub struct Credentials {
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
    pub fn new(
        secrets: Secrets,
        key: Option<(KeyHeader, SecretKeyRef)>,
        fixed: HeaderMap,
        from: Vec<HeaderFrom>,
    ) -> Result<Self, CredentialError> {
        let nothing = Current { headers: HeaderMap::new(), values: Vec::new() };
        let mut made = Self { secrets, key, fixed, from, current: RwLock::new(nothing) };
        let current = made.read()?;
        made.current = RwLock::new(current);
        Ok(made)
    }

    /// Headers as a manifest writes them.
    pub fn fixed<'a>(
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<HeaderMap, CredentialError> {
        let parsed = headers.into_iter().map(|(name, value)| {
            let value =
                HeaderValue::try_from(value).map_err(|_| CredentialError::HeaderValue(name.clone()))?;
            Ok((header_name(name)?, value))
        });
        parsed.collect()
    }

    pub fn headers(&self) -> HeaderMap {
        self.current.read().unwrap_or_else(PoisonError::into_inner).headers.clone()
    }

    /// Reads the Secrets again; whether they have changed.
    pub fn reread(&self) -> bool {
        let Ok(fresh) = self.read() else { return false };
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *current != fresh;
        *current = fresh;
        changed
    }

    /// `text` without the values it should not have known.
    pub fn redact(&self, text: &str) -> String {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let values = current.values.iter().map(Secret::expose).filter(|value| !value.is_empty());
        values.fold(text.to_owned(), |text, value| text.replace(value, "…"))
    }

    fn read(&self) -> Result<Current, CredentialError> {
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

fn header_name(name: &str) -> Result<HeaderName, CredentialError> {
    HeaderName::try_from(name).map_err(|_| CredentialError::HeaderName(name.to_owned()))
}

fn sensitive(value: &str, reference: &SecretKeyRef) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::try_from(value).map_err(|_| CredentialError::SecretValue {
        name: reference.name.clone(),
        key: reference.key.clone(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
