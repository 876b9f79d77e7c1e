//! The way out: private certificate authorities and HTTP proxies, on real sockets.

mod model_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use holdfast_sidecar::model::from_manifest;
use holdfast_sidecar::outbound::{Options, Outbound, Spliced, Trust, read_bounded};
use holdfast_sidecar::secrets::Secrets;
use holdfast_tests::fake_model::{FakeModel, Reply};
use http::{Method, Request};
use hyper_util::client::proxy::matcher::Matcher;
use model_support::{Question, agent};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// TLS before a fake model, with a certificate of an authority nobody knows. Its port, and the authority.
async fn behind_tls(fake: &FakeModel) -> (u16, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate =
        CertificateParams::new(names).expect("parameters").signed_by(&key, &authority).expect("signed");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("a config");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (acceptor, to) = (TlsAcceptor::from(Arc::new(config)), fake.address);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut inside) = acceptor.accept(stream).await else { return };
                let Ok(mut plain) = TcpStream::connect(to).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut plain).await;
            });
        }
    });
    (port, authority.pem())
}

#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Vec<String>>>);

/// A proxy that writes down the head of what it is asked, and does it.
async fn proxy(passed: Passed) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let passed = passed.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                passed.0.lock().expect("the list").push(head.clone());
                let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                if head.starts_with("CONNECT ") {
                    let Ok(mut there) = TcpStream::connect(&target).await else { return };
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                    return;
                }
                let mut body = vec![0; 2];
                let _ = stream.read_exact(&mut body).await;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{target}", target.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    format!("http://user:pass@127.0.0.1:{port}")
}

async fn post(outbound: &Outbound, uri: &str, body: &'static [u8]) -> Bytes {
    let mut request = Request::new(Spliced::from(Bytes::from_static(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.parse().expect("an address");
    let response = outbound.send(request).await.expect("an answer");
    read_bounded(response.into_body(), 1 << 20).await.expect("a body")
}

#[tokio::test]
async fn a_private_authority_is_trusted_only_where_the_manifest_names_it() {
    let fake = FakeModel::start(|_| Reply::text("through TLS")).await.expect("a fake");
    let (port, authority) = behind_tls(&fake).await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("corp")).expect("a folder");
    std::fs::write(folder.path().join("corp/ca.pem"), authority).expect("written");
    let secrets = Secrets::new(None, Some(folder.path().into()), |_| None);
    let mut manifest =
        json!({"provider": "OpenAI", "name": "x", "baseUrl": format!("https://localhost:{port}/v1")});
    let stranger = from_manifest(&agent(manifest.clone()), &secrets).expect("a model");
    let refused = Question::user("hi").ask(&stranger).await;
    assert!(refused.error().to_string().contains("UnknownIssuer"), "{}", refused.error());
    manifest["caBundleFrom"] = json!({"configMapKeyRef": {"name": "corp", "key": "ca.pem"}});
    let known = from_manifest(&agent(manifest), &secrets).expect("a model");
    assert_eq!(Question::user("hi").streamed().ask(&known).await.text(), "through TLS");
}

#[tokio::test]
async fn proxies_are_used_as_the_environment_says() {
    let fake = FakeModel::start(|_| Reply::text("ok")).await.expect("a fake");
    let (port, authority) = behind_tls(&fake).await;
    let passed = Passed::default();
    let proxy = proxy(passed.clone()).await;
    let out = |uri: &str| {
        let options = Options {
            trust: Trust::default().with_pem(&authority).expect("a certificate"),
            proxies: Matcher::builder().all(proxy.as_str()).no("direct.test").build(),
            keep_idle: Duration::from_secs(1),
        };
        Outbound::new(&uri.parse().expect("an address"), options).expect("a client")
    };
    let secure = format!("https://localhost:{port}/v1/models");
    assert!(String::from_utf8_lossy(&post(&out(&secure), &secure, b"{}").await).contains("fake"));
    let plain = "http://models.test/v1/chat?x=1";
    assert_eq!(post(&out(plain), plain, b"{}").await, plain, "the proxy is told the whole address");
    let heads = passed.0.lock().expect("the list").clone();
    assert_eq!(heads.len(), 2);
    assert!(heads[0].starts_with(&format!("CONNECT localhost:{port} ")), "{}", heads[0]);
    for head in &heads {
        assert!(head.to_ascii_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz"), "{head}");
    }
    let mut request = Request::new(Spliced::from(Bytes::new()));
    *request.uri_mut() = "http://direct.test/".parse().expect("an address");
    out("http://direct.test/")
        .send(request)
        .await
        .expect_err("nobody is called that, and the proxy was not asked");
    assert_eq!(passed.0.lock().expect("the list").len(), 2);
}
