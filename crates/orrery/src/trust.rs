//! Which certificates the commands that connect to a server believe.
//!
//! The authorities are those of a file that the user names, or else the bundle that the system keeps
//! for all programs; `SSL_CERT_FILE` names another bundle, as it does for other programs. Whoever
//! checks nothing at all has to say so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Which certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those of the system's authorities.
    System,
    /// Those of the authorities in a PEM file.
    File(PathBuf),
    /// All.
    Anything,
}

/// Where systems keep their bundle of authorities: Debian and its kin, Fedora and its kin, SUSE,
/// Alpine and macOS.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Trust {
    /// The client's side of TLS.
    pub(crate) fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?;
        let builder = match self {
            Trust::System => builder.with_root_certificates(system_authorities()?),
            Trust::File(path) => builder.with_root_certificates(authorities(path)?),
            Trust::Anything => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            }
        };
        Ok(builder.with_no_client_auth())
    }
}

fn system_authorities() -> Result<RootCertStore, String> {
    if let Some(path) = std::env::var_os("SSL_CERT_FILE") {
        return authorities(Path::new(&path));
    }
    match BUNDLES.iter().map(Path::new).find(|path| path.is_file()) {
        Some(path) => authorities(path),
        // A system without authorities trusts nobody; the refusal comes with the certificate.
        None => Ok(RootCertStore::empty()),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let refuse = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let pem = std::fs::read(path).map_err(|error| refuse(&error))?;
    let found: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|e| refuse(&e))?;
    let mut store = RootCertStore::empty();
    // Bundles of old systems have certificates that today's rules refuse; they count for nothing.
    let (added, _) = store.add_parsable_certificates(found);
    if added == 0 {
        return Err(refuse(&"there is no certificate in PEM form"));
    }
    Ok(store)
}

/// Believes every certificate. What is signed with it is still verified, so that a broken connection
/// is told from a stranger's.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
