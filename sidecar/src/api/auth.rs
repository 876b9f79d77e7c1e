//! Who calls: nobody in particular, or whoever holds the token, on behalf of the user a gateway has verified.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use crate::state::Id;

/// How long a token that was replaced may still be good, and a new one not yet.
const REREAD: Duration = Duration::from_secs(1);

/// Where the present token is read from; each reading may find a new one.
pub type TokenSource = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

pub enum Auth {
    /// Every caller is trusted to name its user.
    None,
    Token(Token),
}

pub struct Token {
    source: TokenSource,
    known: Mutex<Known>,
    /// The header in which a gateway names the user it has verified.
    user_header: Option<HeaderName>,
}

/// Only its hash is kept, so that comparing takes as long for any guess of any length.
struct Known {
    hash: [u8; 32],
    read: Instant,
}

impl Token {
    /// Fails where there is no token: an agent that nobody could call, or everybody, is never started.
    pub fn new(source: TokenSource, user_header: Option<HeaderName>) -> Result<Self, String> {
        let hash = hash_of_token(&source)?;
        Ok(Self { source, known: Mutex::new(Known { hash, read: Instant::now() }), user_header })
    }

    fn hash(&self) -> [u8; 32] {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read.elapsed() >= REREAD {
            known.read = Instant::now();
            match hash_of_token(&self.source) {
                Ok(hash) => known.hash = hash,
                // Between two versions of a mounted Secret there may be none for a moment.
                Err(error) => tracing::warn!("the token cannot be read again, the last one stays: {error}"),
            }
        }
        known.hash
    }
}

fn hash_of_token(source: &TokenSource) -> Result<[u8; 32], String> {
    let token = source()?;
    let token = token.trim();
    if token.is_empty() {
        return Err("the token is empty; write one into its Secret".to_owned());
    }
    Ok(Sha256::digest(token).into())
}

impl Auth {
    /// Whether this header is the gateway's to set.
    pub fn takes_user_from(&self, header: &str) -> bool {
        matches!(self, Self::Token(Token { user_header: Some(name), .. }) if name.as_str() == header)
    }

    /// The user the caller has proved to be. `None` where it has not to, and may name any.
    pub fn user(&self, headers: &HeaderMap) -> Result<Option<Id>, Problem> {
        let Self::Token(token) = self else { return Ok(None) };
        let offered = bearer(headers).ok_or_else(|| {
            Problem::unauthenticated("send the agent's token as authorization: Bearer <token>")
        })?;
        let offered: [u8; 32] = Sha256::digest(offered).into();
        if !bool::from(offered.ct_eq(&token.hash())) {
            return Err(Problem::unauthenticated(
                "this is not the agent's token; ask its operator for the present one",
            ));
        }
        let Some(header) = &token.user_header else { return Ok(None) };
        let mut named = headers.get_all(header).iter();
        let user = named.next().and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        match user {
            // A gateway that adds its header to the caller's own has verified one of them, and nobody can say which.
            Some(_) if named.next().is_some() => Err(Problem::unauthenticated(format!(
                "the header {header} is there more than once; the gateway must replace what its caller sends"
            ))),
            Some(user) => Ok(Some(Id::new("user", user)?)),
            None => Err(Problem::unauthenticated(format!(
                "the header {header} must name the user; it is set by the gateway that holds the token"
            ))),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn with(header: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header, value.parse().expect("a header"));
        headers
    }

    #[test]
    fn a_rotated_token_replaces_the_old_one_and_a_vanished_one_does_not() {
        let secret = Arc::new(Mutex::new(Ok("old\n".to_owned())));
        let source = Arc::clone(&secret);
        let token =
            Token::new(Box::new(move || source.lock().expect("lock").clone()), None).expect("a token");
        let age = |token: &Token| token.known.lock().expect("lock").read -= REREAD;
        let auth = |token: Token| Auth::Token(token);
        let offer = |auth: &Auth, text: &str| auth.user(&with("authorization", text)).is_ok();

        *secret.lock().expect("lock") = Ok("new".to_owned());
        age(&token);
        let auth = auth(token);
        assert!(offer(&auth, "Bearer new") && offer(&auth, "bearer new"));
        assert!(!offer(&auth, "Bearer old") && !offer(&auth, "Bearer ne") && !offer(&auth, "Basic new"));

        *secret.lock().expect("lock") = Err("gone".to_owned());
        let Auth::Token(token) = &auth else { unreachable!() };
        age(token);
        assert!(offer(&auth, "Bearer new"));
    }

    #[test]
    fn no_agent_starts_with_an_empty_token() {
        assert!(Token::new(Box::new(|| Ok(" \n".to_owned())), None).is_err());
        assert!(Token::new(Box::new(|| Err("no such Secret".to_owned())), None).is_err());
    }
}
