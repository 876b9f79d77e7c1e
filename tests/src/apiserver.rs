//! A real kube-apiserver and etcd as plain processes on loopback: ready in seconds, gone with the test.
//!
//! There are no controllers: a Deployment stays as it was applied, and a test says itself how its status goes on.
//! The programs come from `HOLDFAST_ETCD` and `HOLDFAST_KUBE_APISERVER`, or from `tests/rig/tools`.
//! Someone who has a cluster names it in `HOLDFAST_TEST_KUBECONFIG`: see `given.rs`.

mod given;

pub use given::MARK;

use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    signature::{self, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;

use crate::programs::program;
use given::Given;

const START: Duration = Duration::from_secs(60);
const ADMIN: &str = "admin-token";
const OPERATOR: &str = "operator-token";
const NARROW: &str = "narrow-token";

/// The user the operator's chart would run it as.
pub const OPERATOR_USER: &str = "system:serviceaccount:holdfast-system:holdfast";

const AUDIT_POLICY: &str = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],
"rules":[{"level":"Metadata","users":["system:serviceaccount:holdfast-system:holdfast"]},{"level":"None"}]}"#;

/// Killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to a file. Where the system can, it also dies with us.
    pub fn start(program: &Path, args: &[String], env: &[(&str, String)], log: PathBuf) -> Result<Self> {
        let output = File::create(&log)?;
        let setpriv = Path::new("/usr/bin/setpriv");
        let mut command = if setpriv.exists() {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(args).envs(env.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log })
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn has_exited(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// As the kubelet would first.
    pub fn terminate(&self) -> Result<()> {
        Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        Ok(())
    }

    pub fn wait(&mut self) -> Result<std::process::ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct ApiServer {
    folder: TempDir,
    kind: Kind,
}

enum Kind {
    Own(Own),
    Given(Given),
}

struct Own {
    port: u16,
    // In this order: the server goes before what it stands on.
    server: Process,
    etcd: Process,
}

impl ApiServer {
    /// The cluster that `HOLDFAST_TEST_KUBECONFIG` names, or one of our own.
    pub async fn given_or_own() -> Result<Self> {
        match Given::from_environment()? {
            Some(given) => Ok(Self { folder: tempfile::tempdir()?, kind: Kind::Given(given) }),
            None => Self::start().await,
        }
    }

    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let [port, etcd_port, peer_port] = free_ports()?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = Process::start(
            &program("etcd")?,
            &[
                format!("--data-dir={}", at("etcd").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
            &[],
            at("etcd.log"),
        )?;
        let (private, public) = signing_keys()?;
        fs::write(at("service-account.key"), private)?;
        fs::write(at("service-account.pub"), public)?;
        fs::write(at("audit-policy.json"), AUDIT_POLICY)?;
        let tokens = format!(
            "{ADMIN},admin,1,system:masters\n{OPERATOR},{OPERATOR_USER},2,system:serviceaccounts\n\
             {NARROW},system:serviceaccount:holdfast-system:narrow,3,system:serviceaccounts\n"
        );
        fs::write(at("tokens.csv"), tokens)?;
        let server = Process::start(
            &program("kube-apiserver")?,
            &[
                format!("--etcd-servers={etcd_url}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".into(),
                format!("--cert-dir={}", at("certificates").display()),
                format!("--token-auth-file={}", at("tokens.csv").display()),
                "--authorization-mode=RBAC".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={}", at("service-account.pub").display()),
                format!("--service-account-signing-key-file={}", at("service-account.key").display()),
                "--service-cluster-ip-range=10.0.0.0/16".into(),
                // Stricter than most clusters: owning an object asks for a right of its own.
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
                format!("--audit-policy-file={}", at("audit-policy.json").display()),
                format!("--audit-log-path={}", at("audit.log").display()),
                "--audit-log-mode=blocking".into(),
            ],
            &[],
            at("kube-apiserver.log"),
        )?;
        let mut own = Own { port, server, etcd };
        own.ready().await?;
        Ok(Self { folder, kind: Kind::Own(own) })
    }

    /// Somebody's cluster: it has controllers, no audit log, and is not ours to break.
    pub fn is_given(&self) -> bool {
        matches!(self.kind, Kind::Given(_))
    }

    /// Of our own server.
    pub fn port(&self) -> Result<u16> {
        match &self.kind {
            Kind::Own(own) => Ok(own.port),
            Kind::Given(_) => bail!("only a server of our own has a port on loopback"),
        }
    }

    /// As an administrator.
    pub async fn client(&self) -> Result<Client> {
        client(&fs::read_to_string(self.admin()?)?).await
    }

    /// A kubeconfig file: as an administrator.
    pub fn admin(&self) -> Result<PathBuf> {
        match &self.kind {
            Kind::Own(own) => self.written("admin.yaml", &kubeconfig(own.port, ADMIN)),
            Kind::Given(given) => Ok(given.admin()),
        }
    }

    /// A kubeconfig file: with the rights its chart gives the operator, and no more.
    pub fn operator(&self) -> Result<PathBuf> {
        let text = match &self.kind {
            Kind::Own(own) => kubeconfig(own.port, OPERATOR),
            Kind::Given(given) => given.operator()?,
        };
        self.written("operator.yaml", &text)
    }

    /// The same for a release of the chart that is called `narrow`.
    pub fn narrow_operator(&self) -> Result<PathBuf> {
        self.written("narrow-operator.yaml", &kubeconfig(self.port()?, NARROW))
    }

    /// The same, through a proxy that speaks plain HTTP.
    pub fn operator_through(&self, proxy: u16) -> Result<PathBuf> {
        let kubeconfig = kubeconfig(proxy, OPERATOR).replace("https://", "http://");
        self.written(&format!("operator-{proxy}.yaml"), &kubeconfig)
    }

    /// As the operator.
    pub async fn operator_client(&self) -> Result<Client> {
        client(&fs::read_to_string(self.operator()?)?).await
    }

    /// A fresh path for a log.
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// What the operator asked for so far: one JSON document a line.
    pub fn audit(&self) -> String {
        fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        match &self.kind {
            Kind::Own(own) => own.logs(),
            Kind::Given(_) => String::new(),
        }
    }

    fn written(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        // Another test may be reading it.
        let mut draft = tempfile::NamedTempFile::new_in(self.folder.path())?;
        draft.write_all(text.as_bytes())?;
        draft.persist(&path)?;
        Ok(path)
    }
}

impl Own {
    async fn ready(&mut self) -> Result<()> {
        let client = client(&kubeconfig(self.port, ADMIN)).await?;
        let deadline = Instant::now() + START;
        let request = || http::Request::get("/readyz").body(Vec::new());
        loop {
            if client.request_text(request()?).await.is_ok() {
                return Ok(());
            }
            if self.server.has_exited() || self.etcd.has_exited() || Instant::now() > deadline {
                bail!("the API server did not start:\n{}", self.logs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn logs(&self) -> String {
        format!("etcd:\n{}\nkube-apiserver:\n{}", tail(&self.etcd.log()), tail(&self.server.log()))
    }
}

/// The last lines: what explains a failure stands there.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Ports that were free a moment ago.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn kubeconfig(port: u16, token: &str) -> String {
    // The certificate is made anew by every server and is only ever seen on loopback.
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: test, user: {{token: {token}}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    )
}

/// What service account tokens are signed with, and what they are checked with.
fn signing_keys() -> Result<(String, String)> {
    let unmade = |_| anyhow::anyhow!("no signing key could be made");
    let key =
        signature::EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).map_err(unmade)?;
    let private = key.to_pkcs8v1().map_err(unmade)?;
    let public = AsDer::<PublicKeyX509Der>::as_der(key.public_key()).map_err(unmade)?;
    Ok((pem("PRIVATE KEY", private.as_ref()), pem("PUBLIC KEY", public.as_ref())))
}

fn pem(kind: &str, der: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der))
}
