//! Where a manifest's references to Secrets and ConfigMaps lead: mounted files, or the environment.
//!
//! A value read here is never printed: [`Secret`] shows neither itself nor its length.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use holdfast_crds::{CertificatesFrom, ConfigMapKeyRef, SecretKeyRef};

pub const SECRETS_DIR: &str = "HOLDFAST_SECRETS_DIR";
pub const CONFIG_DIR: &str = "HOLDFAST_CONFIG_DIR";

/// A value that must not be seen. Compare and use it; never print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself: to be sent to whom it is for, and to nobody else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error(
        "{kind} {name:?} has no key {key:?} here; put its value into the file ${directory}/{name}/{key} or into the environment variable {variable}"
    )]
    Missing { kind: &'static str, name: String, key: String, directory: &'static str, variable: String },
    #[error("{kind} {name:?}, key {key:?}, cannot be read: {why}; check the mounted file")]
    Unreadable { kind: &'static str, name: String, key: String, why: String },
    #[error("the certificates name neither a Secret nor a ConfigMap; set secretKeyRef or configMapKeyRef")]
    NoSource,
}

type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Reads references afresh each time, so that what was rotated is found.
#[derive(Clone)]
pub struct Secrets {
    secrets_dir: Option<PathBuf>,
    config_dir: Option<PathBuf>,
    environment: std::sync::Arc<Environment>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("secrets_dir", &self.secrets_dir).finish_non_exhaustive()
    }
}

struct Source<'a> {
    kind: &'static str,
    directory: &'static str,
    mounted: Option<&'a PathBuf>,
    variable_prefix: &'static str,
    name: &'a str,
    key: &'a str,
}

impl Secrets {
    /// As the process was started.
    pub fn from_env() -> Self {
        Self::new(
            std::env::var_os(SECRETS_DIR).map(PathBuf::from),
            std::env::var_os(CONFIG_DIR).map(PathBuf::from),
            |name| std::env::var(name).ok(),
        )
    }

    pub fn new(
        secrets_dir: Option<PathBuf>,
        config_dir: Option<PathBuf>,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { secrets_dir, config_dir, environment: std::sync::Arc::new(environment) }
    }

    pub fn read(&self, reference: &SecretKeyRef) -> Result<Secret, SecretError> {
        self.find(&Source {
            kind: "Secret",
            directory: SECRETS_DIR,
            mounted: self.secrets_dir.as_ref(),
            variable_prefix: "HOLDFAST_SECRET",
            name: &reference.name,
            key: &reference.key,
        })
        .map(Secret)
    }

    pub fn read_config(&self, reference: &ConfigMapKeyRef) -> Result<String, SecretError> {
        self.find(&Source {
            kind: "ConfigMap",
            directory: CONFIG_DIR,
            mounted: self.config_dir.as_ref(),
            variable_prefix: "HOLDFAST_CONFIG",
            name: &reference.name,
            key: &reference.key,
        })
    }

    /// PEM text, from wherever it is kept.
    pub fn read_certificates(&self, from: &CertificatesFrom) -> Result<String, SecretError> {
        match (&from.secret_key_ref, &from.config_map_key_ref) {
            (Some(secret), _) => self.read(secret).map(|pem| pem.0),
            (None, Some(config)) => self.read_config(config),
            (None, None) => Err(SecretError::NoSource),
        }
    }

    fn find(&self, source: &Source<'_>) -> Result<String, SecretError> {
        let &Source { kind, directory, name, key, .. } = source;
        if let Some(mounted) = source.mounted {
            match std::fs::read_to_string(mounted.join(name).join(key)) {
                Ok(value) => return Ok(without_final_newline(value)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let why = error.to_string();
                    return Err(SecretError::Unreadable { kind, name: name.into(), key: key.into(), why });
                }
            }
        }
        let variable = format!("{}_{}_{}", source.variable_prefix, shouted(name), shouted(key));
        (self.environment)(&variable).map(without_final_newline).ok_or_else(|| SecretError::Missing {
            kind,
            name: name.into(),
            key: key.into(),
            directory,
            variable,
        })
    }
}

/// Editors and `echo` end a file with one; no key, token or password of ours does.
fn without_final_newline(mut value: String) -> String {
    value.truncate(value.trim_end_matches(['\n', '\r']).len());
    value
}

fn shouted(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> SecretKeyRef {
        SecretKeyRef { name: "open-ai".into(), key: "api.key".into() }
    }

    #[test]
    fn a_mounted_file_wins_over_the_environment_and_is_read_afresh() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("open-ai/api.key");
        let secrets = Secrets::new(Some(dir.path().into()), None, |name| {
            (name == "HOLDFAST_SECRET_OPEN_AI_API_KEY").then(|| "from-env".to_owned())
        });
        assert_eq!(secrets.read(&reference()).expect("of the environment").expose(), "from-env");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        for value in ["first", "second"] {
            std::fs::write(&file, format!("{value}\n")).expect("written");
            assert_eq!(secrets.read(&reference()).expect("of the file").expose(), value);
        }
    }

    #[test]
    fn what_is_missing_is_named_with_both_places_to_put_it() {
        let secrets = Secrets::new(None, None, |_| None);
        let error = secrets.read(&reference()).expect_err("nowhere").to_string();
        assert!(error.contains("$HOLDFAST_SECRETS_DIR/open-ai/api.key"), "{error}");
        assert!(error.contains("HOLDFAST_SECRET_OPEN_AI_API_KEY"), "{error}");
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new("hunter2");
        assert!(!format!("{secret:?} {secret}").contains("hunter2"));
    }
}
