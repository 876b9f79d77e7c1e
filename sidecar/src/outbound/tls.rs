//! Whom to trust: the machine's authorities, or the public ones where it has none, and those a manifest adds.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::OutboundError;

#[derive(Debug, Clone, Default)]
pub struct Trust {
    private: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Trusts the authorities in `pem` too.
    pub fn with_pem(mut self, pem: &str) -> Result<Self, OutboundError> {
        let unusable = |why: String| OutboundError::Certificates(why);
        let before = self.private.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            self.private.push(certificate.map_err(|error| unusable(error.to_string()))?);
        }
        if self.private.len() == before {
            return Err(unusable("there is no CERTIFICATE block in the PEM text".into()));
        }
        Ok(self)
    }

    pub(super) fn client_config(&self) -> Result<Arc<ClientConfig>, OutboundError> {
        let unusable = |error: rustls::Error| OutboundError::Certificates(error.to_string());
        let roots = if self.private.is_empty() {
            Arc::clone(shared_roots())
        } else {
            let mut roots = shared_roots().as_ref().clone();
            for certificate in &self.private {
                roots.add(certificate.clone()).map_err(unusable)?;
            }
            Arc::new(roots)
        };
        // The provider is named here, so that no other part of the process can choose another one for us.
        let config =
            ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
                .with_safe_default_protocol_versions()
                .map_err(unusable)?
                .with_root_certificates(roots)
                .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

/// Loaded once for all clients, and only when the first of them needs it.
fn shared_roots() -> &'static Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if added == 0 {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Arc::new(roots)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_certificate_is_refused() {
        let error = Trust::default().with_pem("nothing here").expect_err("no certificate").to_string();
        assert!(error.contains("no CERTIFICATE block"), "{error}");
    }
}
