//! From a config to the parts that run: the store opened, the model and the tools made, the callers' token read.

use std::sync::Arc;

use holdfast_crds::{Agent, AuthType, Redis, SecretKeyRef};
use http::HeaderName;
use redis::IntoConnectionInfo;

use crate::api::auth::{Auth, Token};
use crate::config::{Config, FilesChoice, FilesConfig, StoreChoice};
use crate::model;
use crate::secrets::{SecretError, Secrets};
use crate::session::Sessions;
use crate::store::file::FileOptions;
use crate::store::redis::{Credentials, RedisConfig, Standalone};
use crate::store::{FileStore, MemoryStore, RedisStore, Store, StoreError};
use crate::telemetry::{self, Measured, Metrics, traces};
use crate::tools::{self, Tools};
use crate::workspace::local::Local;
use crate::workspace::remote::Remote;
use crate::workspace::{Trees, Workspace};

#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    #[error("{0}")]
    Model(#[from] model::ModelConfigError),
    #[error("{0}")]
    Tools(#[from] tools::ToolConfigError),
    #[error("{0}")]
    Folder(#[from] crate::store::file::OpenError),
    #[error("spec.systemPromptFrom: {0}")]
    SystemPrompt(SecretError),
    #[error("spec.auth: {0}")]
    Auth(String),
    #[error("spec.stateStore.redis: {0}")]
    Redis(String),
    #[error("spec.filesystem: {0}")]
    Files(StoreError),
}

/// Everything a manifest asks for, ready to serve. Nobody has been called yet.
pub struct Assembled {
    pub sessions: Sessions,
    pub auth: Auth,
    pub metrics: Arc<Metrics>,
}

pub async fn assemble(agent: &Agent, config: &Config, secrets: &Secrets) -> Result<Assembled, AssembleError> {
    let mut settings = config.settings.clone();
    if let Some(from) = &agent.spec.system_prompt_from {
        let prompt = secrets.read_config(&from.config_map_key_ref).map_err(AssembleError::SystemPrompt)?;
        settings.system_prompt = Some(prompt.into());
    }
    let auth = auth(agent, secrets)?;
    let metrics = Arc::new(Metrics::default());
    let traces = traces::from_env(agent, &settings.replica);
    settings.traces = traces.clone();
    let model = Arc::new(Measured::new(&metrics, &traces, model::from_manifest(agent, secrets)?));
    let store = Arc::new(Measured::new(&metrics, &traces, open_store(config, secrets)?));
    let workspace = config.files.as_ref().map(|files| open_files(files, config, secrets)).transpose()?;
    #[cfg(feature = "failpoints")]
    let workspace = workspace.as_ref().map(crate::failpoints::armed_files);
    let files_for = |by| workspace.as_ref().map(|files| telemetry::measured_files(&metrics, by, files));
    let tools = tools::from_manifest(agent, secrets, files_for("tool"))?;
    let tools = Arc::new(Measured::new(&metrics, &traces, tools));
    // Who takes over a call at once should offer the tools that the call began with.
    tools.settle().await;
    #[cfg(feature = "failpoints")]
    let (store, model, tools) = crate::failpoints::armed(store, model, tools);
    let sessions = Sessions::with_workspace(store, model, tools, settings, files_for("client"));
    Ok(Assembled { sessions, auth, metrics })
}

fn open_files(files: &FilesConfig, config: &Config, secrets: &Secrets) -> Result<Workspace, AssembleError> {
    let (prefix, limits) = (&config.settings.prefix, files.limits.clone());
    let trees: Arc<dyn Trees> = match &files.place {
        FilesChoice::Folder(folder) => {
            Arc::new(Local::open(folder, prefix, limits).map_err(AssembleError::Files)?)
        }
        FilesChoice::Redis(redis) => {
            // A connection of their own: a lease's renewal must not wait behind a file.
            let link = Standalone::new(redis_config(redis, secrets)?).map_err(AssembleError::Files)?;
            Arc::new(Remote::over(Arc::new(link), prefix, limits).map_err(AssembleError::Files)?)
        }
    };
    Ok(Workspace::new(trees, files.isolation))
}

fn open_store(config: &Config, secrets: &Secrets) -> Result<Arc<dyn Store>, AssembleError> {
    let limits = config.limits.clone();
    Ok(match &config.store {
        StoreChoice::Memory => Arc::new(MemoryStore::new(limits)),
        StoreChoice::Folder(folder) => {
            let options = FileOptions { cache_bytes: config.settings.cache_bytes, ..FileOptions::default() };
            Arc::new(FileStore::open(folder, limits, options)?)
        }
        StoreChoice::Redis(redis) => {
            let unusable = |error: StoreError| AssembleError::Redis(error.to_string());
            let server = redis_config(redis, secrets)?;
            Arc::new(RedisStore::open(server, &config.settings.prefix, limits).map_err(unusable)?)
        }
    })
}

fn redis_config(redis: &Redis, secrets: &Secrets) -> Result<RedisConfig, AssembleError> {
    let unreadable = |error: SecretError| AssembleError::Redis(error.to_string());
    let mut config = match (&redis.url, &redis.url_secret_ref) {
        (Some(url), _) => RedisConfig::new(url),
        (None, Some(reference)) => {
            let mut config = RedisConfig::new(secrets.read(reference).map_err(unreadable)?.expose());
            let (secrets, reference) = (secrets.clone(), reference.clone());
            config.credentials = Some(Arc::new(move || credentials(&secrets, &reference)));
            config
        }
        (None, None) => {
            let detail = "a managed Redis exists only in a cluster; here, name one by url or urlSecretRef";
            return Err(AssembleError::Redis(detail.to_owned()));
        }
    };
    if let Some(tls) = &redis.tls {
        config.ca = Some(secrets.read_certificates(&tls.ca_from).map_err(unreadable)?.into_bytes());
    }
    Ok(config)
}

/// As the Secret has them now: a rotated password is found at the next connection.
fn credentials(secrets: &Secrets, reference: &SecretKeyRef) -> Result<Credentials, String> {
    let url = secrets.read(reference).map_err(|error| error.to_string())?;
    // The crate's own message may repeat the URL, and the URL has the password.
    let info = url.expose().into_connection_info().map_err(|_| "the URL in it is none".to_owned())?;
    let settings = info.redis_settings();
    let text = |value: Option<&str>| value.map(str::to_owned);
    Ok(Credentials { username: text(settings.username()), password: text(settings.password()) })
}

fn auth(agent: &Agent, secrets: &Secrets) -> Result<Auth, AssembleError> {
    let auth = &agent.spec.auth;
    match auth.kind {
        AuthType::None => Ok(Auth::None),
        AuthType::Token => {
            let reference = auth.token_secret_ref.clone();
            let reference = reference
                .ok_or_else(|| AssembleError::Auth("tokenSecretRef is missing; name the Secret".into()))?;
            let header = auth.user_header.as_deref().map(HeaderName::try_from).transpose();
            let header =
                header.map_err(|_| AssembleError::Auth("userHeader is no name of a header".into()))?;
            let secrets = secrets.clone();
            let source = move || {
                let token = secrets.read(&reference).map_err(|error| error.to_string())?;
                Ok(token.expose().to_owned())
            };
            Token::new(Box::new(source), header).map(Auth::Token).map_err(AssembleError::Auth)
        }
    }
}
