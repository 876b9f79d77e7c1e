//! Certificates for tests that speak TLS.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A certificate authority and a server certificate for 127.0.0.1 and localhost, made by the `openssl` program.
#[derive(Debug, Clone)]
pub struct Certificates {
    dir: Arc<TempDir>,
}

impl Certificates {
    pub fn make() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("holdfast-tls-").tempdir()?;
        let openssl = |arguments: &str| -> Result<()> {
            let output = Command::new("openssl")
                .args(arguments.split(' '))
                .current_dir(dir.path())
                .stdin(Stdio::null())
                .output()
                .context("openssl cannot be started")?;
            ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        fs::write(
            dir.path().join("server.ext"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
        )?;
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=holdfast-tests"))?;
        openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"))?;
        openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile server.ext",
        )?;
        Ok(Self { dir: Arc::new(dir) })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn ca(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.file("ca.crt"))?)
    }
}
