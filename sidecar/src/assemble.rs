//! From a config to the parts that run: the store opened, the model and the tools made, the callers' token read.

use std::sync::Arc;

use holdfast_crds::{Agent, AuthType, Redis};
use http::HeaderName;

use crate::api::auth::{Auth, Token};
use crate::config::{Config, StoreChoice};
use crate::model;
use crate::secrets::{SecretError, Secrets};
use crate::session::Sessions;
use crate::store::file::FileOptions;
use crate::store::{FileStore, MemoryStore, Store};
use crate::tools;

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
}

/// Everything a manifest asks for, ready to serve. Nobody has been called yet.
pub struct Assembled {
    pub sessions: Sessions,
    pub auth: Auth,
    pub store: Arc<dyn Store>,
}

pub async fn assemble(agent: &Agent, config: &Config, secrets: &Secrets) -> Result<Assembled, AssembleError> {
    let mut settings = config.settings.clone();
    if let Some(from) = &agent.spec.system_prompt_from {
        let prompt = secrets.read_config(&from.config_map_key_ref).map_err(AssembleError::SystemPrompt)?;
        settings.system_prompt = Some(prompt.into());
    }
    let auth = auth(agent, secrets)?;
    let model = model::from_manifest(agent, secrets)?;
    let store = open_store(config, secrets).await?;
    let tools = tools::from_manifest(agent, secrets)?;
    // Who takes over a call at once should offer the tools that the call began with.
    tools.settle().await;
    let sessions = Sessions::new(Arc::clone(&store), model, tools, settings);
    Ok(Assembled { sessions, auth, store })
}

async fn open_store(config: &Config, secrets: &Secrets) -> Result<Arc<dyn Store>, AssembleError> {
    let limits = config.limits.clone();
    Ok(match &config.store {
        StoreChoice::Memory => Arc::new(MemoryStore::new(limits)),
        StoreChoice::Folder(folder) => {
            let options = FileOptions { cache_bytes: config.settings.cache_bytes, ..FileOptions::default() };
            Arc::new(FileStore::open(folder, limits, options)?)
        }
        StoreChoice::Redis(redis) => open_redis(redis, config, secrets).await?,
    })
}

async fn open_redis(_: &Redis, _: &Config, _: &Secrets) -> Result<Arc<dyn Store>, AssembleError> {
    Err(AssembleError::Redis("this build has no Redis; use JsonFile".into()))
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
