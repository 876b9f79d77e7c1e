//! What Redis' errors mean to a session.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::error::StoreError;

/// A failed command. Two of them are dealt with here and never reach a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server does not know the script: it was restarted, or never saw it.
    NoScript,
    /// A key holds something else; which one is found out by asking.
    WrongType,
    Store(StoreError),
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoScript => Self::Failed("Redis forgot a script it was just given".to_owned()),
            Fault::WrongType => Self::Corrupt("a key is of another type".to_owned()),
            Fault::Store(error) => error,
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// No connection could be made: nothing was sent.
pub fn before_sending(error: &RedisError) -> StoreError {
    match by_server(error) {
        Some(fault) => fault.into(),
        None if error.kind() == ErrorKind::AuthenticationFailed => denied(error),
        None => StoreError::Unavailable(error.to_string()),
    }
}

/// The command was on its way: unless the server itself answered, it may have been carried out.
pub fn after_sending(error: &RedisError) -> Fault {
    by_server(error).unwrap_or_else(|| match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            Fault::Store(StoreError::Unanswered("Redis took too long".to_owned()))
        }
        ErrorKind::Io => {
            Fault::Store(StoreError::Unanswered(format!("the connection to Redis was lost: {error}")))
        }
        ErrorKind::Parse => {
            Fault::Store(StoreError::Unanswered("what Redis answered cannot be read".to_owned()))
        }
        _ => Fault::Store(StoreError::Failed(error.to_string())),
    })
}

/// What the server said. Every one of these refuses a script before its first write.
fn by_server(error: &RedisError) -> Option<Fault> {
    let text = error.to_string();
    let refused = |why: &str| Fault::Store(StoreError::Unavailable(format!("{why}: {text}")));
    if let ErrorKind::Server(kind) = error.kind() {
        return Some(match kind {
            ServerErrorKind::NoScript => Fault::NoScript,
            ServerErrorKind::BusyLoading => StoreError::Loading.into(),
            ServerErrorKind::ReadOnly => StoreError::ReadOnly.into(),
            ServerErrorKind::NoPerm => denied(error).into(),
            ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain => {
                refused("Redis cannot serve this key at the moment")
            }
            _ if text.contains("ACL failure in script") => denied(error).into(),
            _ if text.contains("Error compiling script") => {
                StoreError::Failed("Redis 7.0 or newer is needed".to_owned()).into()
            }
            _ => StoreError::Failed(text).into(),
        });
    }
    Some(match error.code()? {
        "OOM" => StoreError::OutOfMemory.into(),
        "WRONGTYPE" => Fault::WrongType,
        "CORRUPT" => StoreError::Corrupt(described(error.detail().unwrap_or("a key is damaged"))).into(),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => denied(error).into(),
        "MISCONF" => refused("Redis cannot write to its disk"),
        "NOREPLICAS" => refused("Redis has too few replicas to accept writes"),
        "BUSY" => refused("Redis is busy with somebody else's script"),
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => refused("Redis cannot serve this key at the moment"),
        _ => StoreError::Failed(text).into(),
    })
}

/// Redis appends to an error raised in a script where it was raised.
fn described(detail: &str) -> String {
    let end = detail.find(" script: ").unwrap_or(detail.len());
    detail[..end].trim_end_matches(',').to_owned()
}

fn denied(error: &RedisError) -> StoreError {
    StoreError::Denied(match error.code() {
        Some("NOAUTH") => "it wants a password".to_owned(),
        Some("WRONGPASS") => "wrong user or password".to_owned(),
        _ if error.kind() == ErrorKind::AuthenticationFailed => "wrong user or password".to_owned(),
        _ => error.detail().map_or_else(|| "not permitted".to_owned(), described),
    })
}
