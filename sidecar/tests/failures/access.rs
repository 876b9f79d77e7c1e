//! Passwords, permissions and TLS.

use std::sync::{Arc, Mutex};

use holdfast_sidecar::store::redis::{Credentials, RedisConfig, commands};
use holdfast_sidecar::store::*;
use holdfast_tests::certificates::Certificates;
use holdfast_tests::redis::Options;

use super::{Broken, config, talk};
use crate::support::requests::*;

fn with_password(config: RedisConfig, username: Option<&str>, password: &str) -> RedisConfig {
    let credentials =
        Credentials { username: username.map(str::to_owned), password: Some(password.to_owned()) };
    RedisConfig { credentials: Some(Arc::new(move || Ok(credentials.clone()))), ..config }
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_never_shown() {
    let broken = Broken::new(Options::default().volatile().password("right-secret"));
    let denied = |answer: Result<(), StoreError>| match answer {
        Err(StoreError::Denied(text)) => text,
        other => panic!("{other:?}"),
    };
    denied(broken.talk.store.ping().await);
    let wrong = with_password(config(&broken.server), None, "wrong-secret");
    let shown = format!("{wrong:?}");
    let text = denied(talk(wrong).store.ping().await);
    assert!(!text.contains("secret") && !shown.contains("secret"), "{text} {shown}");
    let in_url = broken.server.url().replace("127", ":wrong-secret@127");
    let text = denied(talk(RedisConfig { url: in_url, ..config(&broken.server) }).store.ping().await);
    assert!(!text.contains("secret"), "{text}");

    let right = talk(with_password(config(&broken.server), None, "right-secret"));
    right.turn("one").await;
    assert_eq!(right.history().await.len(), 2);
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_repeating_it() {
    for url in ["redis://user:secret@", "http://x:secret@y", "secret", "redis://:secret@host:port"] {
        let opened = RedisStore::open(RedisConfig::new(url), "ns.agent", limits());
        match opened.map(drop) {
            Err(StoreError::Failed(text)) => assert!(!text.contains("secret"), "{text}"),
            other => panic!("{url}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_rotated_password_is_found_without_a_restart() {
    let broken = Broken::new(Options::default().volatile().password("first"));
    let secret = Arc::new(Mutex::new("first".to_owned()));
    let read = Arc::clone(&secret);
    let source = move || {
        let password = Some(read.lock().expect("a lock").clone());
        Ok(Credentials { username: None, password })
    };
    let talk = talk(RedisConfig { credentials: Some(Arc::new(source)), ..config(&broken.server) });
    talk.turn("one").await;
    // The server changes first and drops its clients; then the secret is updated.
    broken.command(&["CONFIG", "SET", "requirepass", "second"]);
    kill_clients(&broken);
    let error = crate::support::eventually("the change is noticed", || async {
        match talk.store.ping().await {
            Err(error @ StoreError::Denied(_)) => Some(error),
            Err(_) => None,
            Ok(()) => panic!("the old password still works"),
        }
    })
    .await;
    assert_eq!(error.label(), "denied");
    *secret.lock().expect("a lock") = "second".to_owned();
    talk.turn("two").await;
    assert_eq!(talk.history().await.len(), 4);
}

/// The rig's own password is the first one: it comes in by the new one.
fn kill_clients(broken: &Broken) {
    let url = broken.server.url().replace("127", ":second@127");
    let client = ::redis::Client::open(url).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    ::redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut connection).expect("kill");
}

/// The rules as a user copies them from the documentation.
fn documented_rules() -> Vec<String> {
    let page = include_str!("../../../docs/store-redis.md");
    let rules = page.split("```acl\n").nth(1).expect("the ACL rules").split("```").next().expect("an end");
    rules.split_whitespace().map(|rule| rule.replace("<prefix>", super::PREFIX)).collect()
}

#[tokio::test]
async fn a_user_with_just_the_documented_rules_can_do_everything() {
    let broken = Broken::new(Options::default().volatile());
    let rules = documented_rules();
    let words: Vec<&str> = ["ACL", "SETUSER", "agent", "on", ">secret"]
        .into_iter()
        .chain(rules.iter().map(String::as_str))
        .collect();
    assert_eq!(broken.command(&words), "+OK");
    for command in commands() {
        assert!(rules.contains(&format!("+{command}")), "{command} is used and not documented");
    }
    let user = talk(with_password(config(&broken.server), Some("agent"), "secret"));
    let heard = user.store.announcements();
    user.store.ping().await.expect("ping");
    let grant = user.granted("one").await;
    user.waiting(&begin("two"), 1).await;
    let events = vec![event(1, EventName::Delta, &"x".repeat(1 << 20)), event(2, EventName::Delta, "{}")];
    user.renew(&Renew { events, ..renew(&grant) }).await.expect("renew");
    let steps = vec![step(StepKind::Message, "1")];
    user.append(&append(&grant, 0, steps)).await.expect("append");
    let failed = Commit { ended: Ended::Failed, go_on: true, ..commit(&grant) };
    let next = user.commit(&failed).await.expect("commit").expect("two");
    let grant = Grant { call: *next, ..grant };
    crate::support::eventually("an announcement", || async {
        user.interrupt("two", "{}").await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        (!heard.is_empty()).then_some(())
    })
    .await;
    user.suspend(&suspend(&grant)).await;
    assert!(user.is_overdue().await);
    let grant = user.takeover(&claim()).await;
    let failed = Commit { ended: Ended::Failed, ..commit_of(&grant, 1, &grant.call.id) };
    user.commit(&failed).await.expect("commit");
    let Retried::Granted(grant) = user.retry(&retry("two", 0)).await else { panic!("granted") };
    user.commit(&commit(&grant)).await.expect("commit");
    assert!(user.events("one", None).await.gap);
    user.rewrite(&rewrite(Condition::Exists, &["1"])).await;
    assert_eq!(user.history().await.len(), 1);
    assert_eq!(user.store.list(&id("ann"), 10, None).await.expect("list").sessions.len(), 1);
    assert!(user.live().await.is_empty() && user.delete().await);

    let words = ["ACL", "SETUSER", "agent", "-evalsha"];
    assert_eq!(broken.command(&words), "+OK");
    let answer = user.store.load(&user.slot, None).await;
    assert!(matches!(answer, Err(StoreError::Denied(_))), "{answer:?}");
    let other = RedisConfig { ..with_password(config(&broken.server), Some("agent"), "secret") };
    let other = RedisStore::open(other, "another.agent", limits()).expect("a store");
    assert_eq!(broken.command(&["ACL", "SETUSER", "agent", "+evalsha"]), "+OK");
    let answer = other.load(&user.slot, None).await;
    assert!(matches!(answer, Err(StoreError::Denied(_))), "another agent's keys: {answer:?}");
}

#[tokio::test]
async fn tls_with_a_ca_of_ones_own() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let certificates = Certificates::make().expect("certificates");
    let server = Options::default().volatile().tls(&certificates).start().expect("a server");
    let ca = Some(certificates.ca().expect("the CA"));
    let trusting = talk(RedisConfig { ca, ..config(&server) });
    trusting.turn("one").await;
    assert_eq!(trusting.history().await.len(), 2);
    let answer = talk(config(&server)).store.ping().await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "an unknown authority: {answer:?}");
    let bad = RedisConfig { ca: Some(b"no certificate".to_vec()), ..config(&server) };
    let opened = RedisStore::open(bad, "ns.agent", limits());
    assert!(matches!(opened.map(drop), Err(StoreError::Failed(_))), "a CA bundle without a certificate");
}
