//! Asks a Redis what it really is before conversations are trusted to it: what it would refuse, and what it would
//! lose. Answers come from a fixed list, so that nobody can use the operator to look around a network.

use std::{collections::HashMap, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _,
    RedisError, ServerErrorKind, TlsCertificates, aio::MultiplexedConnection,
};

use crate::conditions::{Finding, reason};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const OLDEST_REDIS: u32 = 7;

/// Where a Redis is and whom to trust there. Holds a password: never printed, never kept.
pub struct Address {
    pub url: String,
    /// Where the agent's pods are: a name without dots is one of its Services.
    pub namespace: String,
    pub certificate_authorities: Option<Vec<u8>>,
}

/// What a Redis said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub ready: Finding,
    pub durable: Finding,
}

impl Outcome {
    fn unusable(ready: Finding) -> Self {
        Self {
            durable: Finding::unknown(reason::UNKNOWN, "the store could not be asked what it would lose"),
            ready,
        }
    }

    pub fn not_checked(why: &str) -> Self {
        Self::unusable(Finding::unknown(reason::NOT_CHECKED, why))
    }
}

pub async fn check(address: Address) -> Outcome {
    let mut connection = match connect(address).await {
        Ok(connection) => connection,
        Err(finding) => return Outcome::unusable(finding),
    };
    let info: String = match redis::cmd("INFO").query_async(&mut connection).await {
        Ok(info) => info,
        Err(error) => return Outcome::unusable(refusal(&error)),
    };
    let info = fields(&info);
    let ready = usable(&info);
    let config: Option<HashMap<String, String>> =
        redis::cmd("CONFIG").arg("GET").arg("append*").query_async(&mut connection).await.ok();
    Outcome { ready, durable: with_replicas(durability(&info, config.as_ref()), &info) }
}

async fn connect(address: Address) -> Result<MultiplexedConnection, Finding> {
    let invalid = || {
        Finding::no(
            reason::INVALID_ADDRESS,
            "the store's URL cannot be used: write redis://host:6379/0 or rediss://host:6379/0",
        )
    };
    let store = address.url.as_str().into_connection_info().map_err(|_| invalid())?;
    let store = as_the_pods_find_it(store, &address.namespace);
    let encrypted = matches!(store.addr(), ConnectionAddr::TcpTls { .. });
    let client = match address.certificate_authorities.filter(|_| encrypted) {
        Some(root_cert) => {
            Client::build_with_tls(store, TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
        }
        None => Client::open(store),
    }
    .map_err(|_| invalid())?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| refusal(&error))
}

/// Whether who is meant depends on the namespace of whoever asks.
pub fn is_local_name(url: &str) -> bool {
    url.into_connection_info().is_ok_and(|store| local_name(store.addr()).is_some())
}

fn local_name(address: &ConnectionAddr) -> Option<&str> {
    let (ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) = address else { return None };
    (!host.contains(['.', ':']) && host != "localhost").then_some(host)
}

/// Their search path begins with their own namespace, ours with another.
fn as_the_pods_find_it(store: ConnectionInfo, namespace: &str) -> ConnectionInfo {
    let Some(whole) = local_name(store.addr()).map(|name| format!("{name}.{namespace}.svc")) else {
        return store;
    };
    let mut address = store.addr().clone();
    if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = &mut address {
        *host = whole;
    }
    store.set_addr(address)
}

/// Refused us, or merely not heard from.
fn refusal(error: &RedisError) -> Finding {
    let code = error.code().unwrap_or_default();
    let refused = error.kind() == ErrorKind::AuthenticationFailed || matches!(code, "WRONGPASS" | "NOAUTH");
    if code == "NOPERM" {
        Finding::unknown(
            reason::CHECK_FORBIDDEN,
            "the store lets us in but does not let us ask INFO: allow it to our user",
        )
    } else if refused {
        Finding::no(
            reason::AUTHENTICATION_FAILED,
            "the store refuses our user or password: correct the URL in the Secret, or the rights of its user",
        )
    } else if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::BusyLoading)) {
        Finding::unknown(reason::UNREACHABLE, "the store is still loading its data")
    } else {
        Finding::unknown(
            reason::UNREACHABLE,
            "the store cannot be reached from the operator; the agent's pods may still reach it",
        )
    }
}

fn usable(info: &HashMap<&str, &str>) -> Finding {
    let is_valkey = info.contains_key("valkey_version");
    let version = info.get("redis_version").copied().unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if !is_valkey && major < OLDEST_REDIS {
        return Finding::no(
            reason::UNSUPPORTED_VERSION,
            "the store is older than Redis 7.0: upgrade it, or use Valkey",
        );
    }
    if info.get("role").copied() == Some("slave") {
        return Finding::no(
            reason::READ_ONLY,
            "the store is a read-only replica: point the URL at its primary",
        );
    }
    Finding::yes(reason::CONNECTED, "the store answers and lets us in")
}

/// The worst there is to say, with the setting that would change it.
fn durability(info: &HashMap<&str, &str>, config: Option<&HashMap<String, String>>) -> Finding {
    let policy = info.get("maxmemory_policy").copied();
    if policy.is_some_and(|policy| policy != "noeviction") {
        return Finding::no(
            reason::EVICTING,
            "the store drops conversations when its memory is full: set maxmemory-policy noeviction",
        );
    }
    let memory_only = || {
        Finding::no(
            reason::MEMORY_ONLY,
            "a crash of the store loses everything since its last dump: set appendonly yes and appendfsync always",
        )
    };
    match (
        info.get("aof_enabled").copied(),
        config.and_then(|config| config.get("appendfsync")).map(String::as_str),
    ) {
        (Some("0"), _) | (Some("1"), Some("no")) => memory_only(),
        (Some("1"), Some("always")) if policy.is_some() => {
            Finding::yes(reason::ALWAYS, "what the store has acknowledged survives its crash")
        }
        (Some("1"), Some("everysec")) => Finding::no(
            reason::EVERY_SECOND,
            "a crash of the store loses up to a second of what it has acknowledged: set appendfsync always",
        ),
        _ => Finding::unknown(
            reason::UNKNOWN,
            "the store does not let us read its settings: allow CONFIG GET to find out what it would lose",
        ),
    }
}

/// A replica is told after the store has acknowledged. That there are any, not how many: that changes by itself.
fn with_replicas(mut durable: Finding, info: &HashMap<&str, &str>) -> Finding {
    if info.get("connected_slaves").is_some_and(|count| *count != "0") {
        durable.message +=
            "; it has replicas, and whoever fails over to a replica loses what that has not received yet";
    }
    durable
}

fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Truth;

    fn said(info: &str, fsync: Option<&str>) -> (Truth, &'static str, Truth, &'static str) {
        let config = fsync.map(|fsync| HashMap::from([("appendfsync".to_owned(), fsync.to_owned())]));
        let info = fields(info);
        let (ready, durable) = (usable(&info), durability(&info, config.as_ref()));
        (ready.truth, ready.reason, durable.truth, durable.reason)
    }

    #[test]
    fn what_a_store_says_decides_what_is_said_of_it() {
        use Truth::{False, True, Unknown};
        let base = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n";
        for (info, fsync, expected) in [
            (format!("{base}aof_enabled:1"), Some("always"), (True, "Connected", True, "Always")),
            (format!("{base}aof_enabled:1"), Some("everysec"), (True, "Connected", False, "EverySecond")),
            (format!("{base}aof_enabled:1"), Some("no"), (True, "Connected", False, "MemoryOnly")),
            (format!("{base}aof_enabled:0"), Some("always"), (True, "Connected", False, "MemoryOnly")),
            (format!("{base}aof_enabled:0"), None, (True, "Connected", False, "MemoryOnly")),
            (format!("{base}aof_enabled:1"), None, (True, "Connected", Unknown, "Unknown")),
            (
                base.replace("noeviction", "allkeys-lru"),
                Some("always"),
                (True, "Connected", False, "Evicting"),
            ),
            (base.replace("7.2.4", "6.2.14"), None, (False, "UnsupportedVersion", Unknown, "Unknown")),
            (base.replace("master", "slave"), None, (False, "ReadOnly", Unknown, "Unknown")),
            (
                format!("{}valkey_version:8.1.0\r\n", base.replace("7.2.4", "6.0.0")),
                None,
                (True, "Connected", Unknown, "Unknown"),
            ),
        ] {
            assert_eq!(said(&info, fsync), expected, "{info} {fsync:?}");
        }
    }

    #[test]
    fn a_short_name_is_looked_for_where_the_pods_are() {
        for (url, expected) in [
            ("redis://redis:6379", "redis.team.svc:6379"),
            ("rediss://:word@redis:6380/1", "redis.team.svc:6380"),
            ("redis://redis.data:6379", "redis.data:6379"),
            ("redis://redis.data.svc.cluster.local", "redis.data.svc.cluster.local:6379"),
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://[::1]:6379", "::1:6379"),
            ("redis://localhost:6379", "localhost:6379"),
        ] {
            let store = as_the_pods_find_it(url.into_connection_info().unwrap(), "team");
            assert_eq!(store.addr().to_string(), expected);
            assert_eq!(is_local_name(url), expected.contains(".team."), "{url}");
        }
    }
}
