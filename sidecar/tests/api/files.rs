//! Files over HTTP: handed in, taken out, and nobody else's.

use std::sync::Arc;

use holdfast_sidecar::workspace::local::Local;
use holdfast_sidecar::workspace::{Isolation, TreeLimits, Workspace};
use http::Method;
use serde_json::json;

use crate::kit::{Replica, Send, Setup, echo};

const LIMITS: TreeLimits =
    TreeLimits { max_file: 1000, max_tree: 5000, max_files: 20, ttl: std::time::Duration::from_secs(3600) };

async fn with_files(isolation: Isolation) -> (Replica, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let trees = Local::open(folder.path(), "agent", LIMITS).expect("trees");
    let workspace = Some(Workspace::new(Arc::new(trees), isolation));
    (Setup { workspace, ..Setup::default() }.start().await, folder)
}

fn put(path: &str, body: impl Into<bytes::Bytes>) -> Send {
    Send::put(path).body(body)
}

#[tokio::test]
async fn a_file_goes_in_and_comes_out() {
    let (agent, _folder) = with_files(Isolation::User).await;
    let at = "/v1/users/u/sessions/s/files/notes/a%20b.md";
    let created = agent.send(put(at, "# hello\n")).await;
    assert_eq!((created.status.as_u16(), created.header("location")), (201, Some(at)));
    let etag = created.header("etag").expect("an ETag").to_owned();
    let summary = created.json();
    assert_eq!((&summary["path"], &summary["size"]), (&json!("notes/a b.md"), &json!(8)));
    assert_eq!(format!("\"{}\"", summary["etag"].as_str().expect("an etag")), etag);

    // Of the user, whichever the session.
    let got = agent.get("/v1/users/u/sessions/other/files/notes/a%20b.md").await;
    assert_eq!((got.status.as_u16(), &got.body[..]), (200, &b"# hello\n"[..]));
    assert_eq!(got.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!((got.header("etag"), got.header("accept-ranges")), (Some(etag.as_str()), Some("bytes")));
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(got.header("content-length"), Some("8"));
    let head = agent.send(Send::new(Method::HEAD, at)).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.body.len()), (200, Some("8"), 0));
    let known = agent.send(Send::get(at).header("if-none-match", format!("\"x\", W/{etag}"))).await;
    assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));

    assert_eq!(agent.send(put(at, "again")).await.status.as_u16(), 200);
    let changed = agent.send(put(at, "late").header("if-match", etag.clone())).await;
    changed.problem(412, "file-changed");
    agent.send(put(at, "x").header("if-none-match", "*")).await.problem(412, "file-changed");
    agent.send(put(at, "x").header("if-none-match", "\"a\"")).await.problem(400, "bad-condition");
    assert_eq!(agent.send(put(at, "more").header("if-match", "*")).await.status.as_u16(), 200);
    agent.send(Send::new(Method::DELETE, at).header("if-match", etag)).await.problem(412, "file-changed");
    assert_eq!(agent.delete(at).await.status.as_u16(), 204);
    agent.delete(at).await.problem(404, "no-such-file");
    agent.get(at).await.problem(404, "no-such-file");
}

#[tokio::test]
async fn parts_of_a_file_come_as_ranges() {
    let (agent, _folder) = with_files(Isolation::User).await;
    agent.send(put("/v1/files/digits.bin", "0123456789")).await.ok();
    for (range, part, held) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
    ] {
        let got = agent.send(Send::get("/v1/files/digits.bin").header("range", range)).await;
        assert_eq!((got.status.as_u16(), &got.body[..]), (206, part.as_bytes()), "{range}");
        assert_eq!(got.header("content-range"), Some(held), "{range}");
    }
    let past = agent.send(Send::get("/v1/files/digits.bin").header("range", "bytes=10-")).await;
    past.problem(416, "bad-range");
    assert_eq!(past.header("content-range"), Some("bytes */10"));
    for passed_over in ["bytes=0-1,3-4", "lines=1-2"] {
        let got = agent.send(Send::get("/v1/files/digits.bin").header("range", passed_over)).await;
        assert_eq!((got.status.as_u16(), got.body.len()), (200, 10));
    }
    let etag = agent.get("/v1/files/digits.bin").await.header("etag").expect("an ETag").to_owned();
    let ranged = Send::get("/v1/files/digits.bin").header("range", "bytes=0-3");
    assert_eq!(agent.send(ranged.clone().header("if-range", etag)).await.status.as_u16(), 206);
    assert_eq!(agent.send(ranged.header("if-range", "\"older\"")).await.body, "0123456789");
}

#[tokio::test]
async fn a_listing_has_pages_and_an_etag() {
    let (agent, _folder) = with_files(Isolation::User).await;
    assert_eq!(agent.get("/v1/files").await.ok(), json!({"files": [], "next": null}));
    for name in ["b", "a/1", "a/2", "c"] {
        agent.send(put(&format!("/v1/files/{name}"), name)).await.ok();
    }
    let first = agent.get("/v1/files?limit=3").await;
    let etag = first.header("etag").expect("an ETag").to_owned();
    let page = first.ok();
    let paths: Vec<_> = page["files"].as_array().expect("files").iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["a/1", "a/2", "b"]);
    let cursor = page["next"].as_str().expect("a cursor");
    let rest = agent.get(&format!("/v1/files?limit=3&cursor={cursor}")).await.ok();
    assert_eq!((&rest["files"][0]["path"], &rest["next"]), (&json!("c"), &json!(null)));
    assert_eq!(agent.get("/v1/files?folder=a/").await.ok()["files"].as_array().expect("files").len(), 2);

    let same = agent.send(Send::get("/v1/files?limit=3").header("if-none-match", etag.clone())).await;
    assert_eq!(same.status.as_u16(), 304);
    agent.send(put("/v1/files/b", "changed")).await.ok();
    let changed = agent.send(Send::get("/v1/files?limit=3").header("if-none-match", etag)).await;
    assert_eq!(changed.status.as_u16(), 200);
    for wrong in ["limit=0", "limit=x", "page=2"] {
        agent.get(&format!("/v1/files?{wrong}")).await.problem(400, "bad-query");
    }
    agent.get("/v1/files?folder=..").await.problem(400, "bad-path");
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_with_its_reason() {
    let (agent, _folder) = with_files(Isolation::User).await;
    for path in ["%2e%2e/a", "a/%2e%2e/b", "a%2F%2E%2E%2Fb", "a%5Cb", "a%00b", "a//b", "a/", "%E2%80%AEa"] {
        agent.send(put(&format!("/v1/files/{path}"), "x")).await.problem(400, "bad-path");
        agent.get(&format!("/v1/files/{path}")).await.problem(400, "bad-path");
    }
    agent.send(put("/v1/files/%zz", "x")).await.problem(400, "bad-encoding");
    agent.send(put("/v1/files/a", vec![7; 1001])).await.problem(413, "too-large");
    agent.send(put("/v1/files/a/b", "x")).await.ok();
    agent.send(put("/v1/files/a", "x")).await.problem(409, "path-conflict");
    agent.send(put("/v1/files/a/b/c", "x")).await.problem(409, "path-conflict");
    for n in 0..4 {
        agent.send(put(&format!("/v1/files/{n}"), vec![7; 1000])).await.ok();
    }
    agent.send(put("/v1/files/5", vec![7; 1000])).await.problem(507, "workspace-full");

    let plain = echo().await;
    plain.get("/v1/files").await.problem(404, "no-filesystem");
    plain.send(put("/v1/files/a", "x")).await.problem(404, "no-filesystem");
}

#[tokio::test]
async fn one_users_files_are_never_anothers() {
    let (agent, _folder) = with_files(Isolation::User).await;
    agent.send(put("/v1/users/alice/sessions/s/files/a", "alice's")).await.ok();
    agent.send(put("/v1/sessions/s/files/a", "nobody's")).await.ok();
    assert_eq!(agent.get("/v1/users/alice/sessions/t/files/a").await.body, "alice's");
    for other in ["/v1/users/bob/sessions/s", "/v1/users/anonymous/sessions/s", "/v1/sessions/t", "/v1"] {
        agent.get(&format!("{other}/files/a")).await.problem(404, "no-such-file");
        assert_eq!(agent.get(&format!("{other}/files")).await.ok()["files"], json!([]));
    }
    // An anonymous caller's tree is its session's.
    assert_eq!(agent.get("/v1/sessions/s/files/a").await.body, "nobody's");

    let (agent, _folder) = with_files(Isolation::Agent).await;
    agent.send(put("/v1/users/alice/sessions/s/files/a", "everybody's")).await.ok();
    assert_eq!(agent.get("/v1/users/bob/sessions/t/files/a").await.body, "everybody's");
}

#[tokio::test]
async fn a_sessions_tree_goes_with_its_session_and_a_users_stays() {
    for (isolation, stays) in [(Isolation::Session, false), (Isolation::User, true)] {
        let (agent, _folder) = with_files(isolation).await;
        let session = "/v1/users/u/sessions/s";
        agent.post(&format!("{session}/calls"), json!({"input": "hello"})).await.ok();
        agent.send(put(&format!("{session}/files/a"), "x")).await.ok();
        assert_eq!(agent.delete(session).await.status.as_u16(), 204);
        assert_eq!(
            agent.get(&format!("{session}/files/a")).await.status.is_success(),
            stays,
            "{isolation:?}"
        );
    }
    // Handed in before the first call, and taken away with a session that never was.
    let (agent, _folder) = with_files(Isolation::Session).await;
    agent.send(put("/v1/sessions/early/files/a", "x")).await.ok();
    assert_eq!(agent.get("/v1/sessions/early/files/a").await.body, "x");
    assert_eq!(agent.delete("/v1/sessions/early").await.status.as_u16(), 204);
    agent.get("/v1/sessions/early/files/a").await.problem(404, "no-such-file");
}

#[tokio::test]
async fn a_session_in_use_keeps_its_tree_even_where_no_file_is_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let ttl = std::time::Duration::from_millis(1200);
    let trees = Local::open(folder.path(), "agent", TreeLimits { ttl, ..LIMITS }).expect("trees");
    let workspace = Some(Workspace::new(Arc::new(trees), Isolation::Session));
    let agent = Setup { workspace, ..Setup::default() }.start().await;
    for session in ["used", "left"] {
        agent.send(put(&format!("/v1/sessions/{session}/files/a"), "x")).await.ok();
    }
    let began = std::time::Instant::now();
    while began.elapsed() < ttl * 2 {
        agent.post("/v1/sessions/used/calls", json!({"input": "still here"})).await.ok();
        tokio::time::sleep(ttl / 12).await;
    }
    assert_eq!(agent.get("/v1/sessions/used/files/a").await.body, "x");
    agent.get("/v1/sessions/left/files/a").await.problem(404, "no-such-file");
}

#[tokio::test]
async fn what_clients_do_with_files_is_counted() {
    let (agent, _folder) = with_files(Isolation::User).await;
    let at = "/v1/users/u/sessions/s/files/a";
    agent.send(put(at, "hello")).await.ok();
    agent.send(put(at, "late").header("if-none-match", "*")).await.problem(412, "file-changed");
    assert_eq!(agent.get(at).await.body, "hello");
    agent.get("/v1/users/u/sessions/s/files").await.ok();
    assert_eq!(agent.delete(at).await.status.as_u16(), 204);
    let metrics = agent.platform(Method::GET, "/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).expect("UTF-8");
    for (operation, outcome) in
        [("put", "ok"), ("put", "changed"), ("read", "ok"), ("list", "ok"), ("delete", "ok")]
    {
        let labels = format!("by=\"client\",operation=\"{operation}\",outcome=\"{outcome}\"");
        let line = format!("holdfast_file_seconds_count{{{labels}}} 1");
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for direction in ["read", "written"] {
        let line = format!("holdfast_file_bytes_total{{by=\"client\",direction=\"{direction}\"}} 5");
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
