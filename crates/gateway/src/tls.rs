//! The server's certificate.
//!
//! A server that nobody gave a certificate makes its own authority at first start, keeps the
//! authority's key and certificate in the data directory, and issues itself a certificate at every
//! start and again before it expires. So a client that trusts the authority once goes on trusting
//! the server, whatever name it is moved to.
//!
//! The authority's key never leaves the directory and is readable by its owner alone; the server's
//! own key is never written at all.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use db::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::account::split_port;
use crate::config::Certificate;

const DAY_S: u64 = 24 * 60 * 60;
/// Some clients refuse server certificates that are valid for longer than about 800 days.
const SERVER_VALID_S: u64 = 365 * DAY_S;
const AUTHORITY_VALID_S: u64 = 20 * 365 * DAY_S;
/// A certificate is replaced when less than this is left of it.
const RENEWAL_S: u64 = 30 * DAY_S;

/// Why there is no certificate.
#[derive(Debug)]
pub struct TlsError {
    message: String,
}

impl TlsError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    fn file(path: &Path, error: impl fmt::Display) -> Self {
        Self::new(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TlsError {}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> Self {
        Self::new(format!("a certificate cannot be made: {error}"))
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::new(format!("the certificate cannot be used: {error}"))
    }
}

/// The server's side of TLS.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// What connections are accepted with.
    pub server: Arc<ServerConfig>,
    /// The certificate that clients should trust, in PEM.
    pub trust_pem: Arc<str>,
}

impl Tls {
    /// Makes or loads the certificate.
    pub(crate) fn new(
        source: &Certificate,
        public_host: Option<&str>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let (resolver, trust_pem): (Arc<dyn ResolvesServerCert>, String) = match source {
            Certificate::Own(directory) => {
                let authority = Authority::load_or_create(directory.as_deref(), clock.now_s())?;
                let trust_pem = authority.certificate_pem.clone();
                let own = OwnCertificate::issue(authority, server_names(public_host), clock)?;
                (Arc::new(own), trust_pem)
            }
            Certificate::Files { certificate, key } => {
                let (certified, pem) = load_files(certificate, key)?;
                (Arc::new(FixedCertificate(Arc::new(certified))), pem)
            }
        };
        let mut server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { server: Arc::new(server), trust_pem: trust_pem.into() })
    }
}

/// The names under which a client may reach us.
fn server_names(public_host: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let machine = std::fs::read_to_string("/etc/hostname").ok();
    let public_name = public_host.map(|host| split_port(host).0);
    for name in [machine.as_deref(), public_name].into_iter().flatten() {
        let name = name.trim().trim_start_matches('[').trim_end_matches(']').to_owned();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Signs server certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

impl Authority {
    fn load_or_create(directory: Option<&Path>, now_s: u64) -> Result<Self, TlsError> {
        let Some(directory) = directory else {
            return Self::create(now_s).map(|(authority, _)| authority);
        };
        if let Some(authority) = Self::load(directory, now_s)? {
            return Ok(authority);
        }
        let (authority, key_file) = Self::create(now_s)?;
        std::fs::create_dir_all(directory).map_err(|error| TlsError::file(directory, error))?;
        write_file(&key_path(directory), &key_file, 0o600)?;
        write_file(&certificate_path(directory), &authority.certificate_pem, 0o644)?;
        Ok(authority)
    }

    /// A new authority, and what its key file holds.
    fn create(now_s: u64) -> Result<(Self, String), TlsError> {
        let key = KeyPair::generate()?;
        let until_s = now_s + AUTHORITY_VALID_S;
        // Text before the key block is ignored by everything that reads PEM.
        let key_file = format!("{VALID_UNTIL}{until_s}\n{}", key.serialize_pem());
        let mut params = authority_params(&key);
        set_validity(&mut params, now_s, until_s);
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok((Self { issuer: Issuer::new(params, key), certificate_pem }, key_file))
    }

    /// The authority of an earlier start, unless there is none or it expires soon.
    fn load(directory: &Path, now_s: u64) -> Result<Option<Self>, TlsError> {
        let (key_path, certificate_path) = (key_path(directory), certificate_path(directory));
        let (Some(key_file), Some(certificate_pem)) =
            (read_file(&key_path)?, read_file(&certificate_path)?)
        else {
            return Ok(None);
        };
        let until_s = key_file.lines().find_map(|line| line.strip_prefix(VALID_UNTIL));
        let until_s = until_s
            .and_then(|until| until.trim().parse::<u64>().ok())
            .ok_or_else(|| TlsError::file(&key_path, "it does not say until when it is valid"))?;
        if until_s < now_s.saturating_add(RENEWAL_S) {
            return Ok(None);
        }
        let key = KeyPair::from_pem(&key_file).map_err(|error| TlsError::file(&key_path, error))?;
        let params = authority_params(&key);
        Ok(Some(Self { issuer: Issuer::new(params, key), certificate_pem }))
    }
}

/// How the first line of the key file starts.
const VALID_UNTIL: &str = "valid until: ";

fn key_path(directory: &Path) -> PathBuf {
    directory.join("ca.key")
}

fn certificate_path(directory: &Path) -> PathBuf {
    directory.join("ca.pem")
}

/// What is the same every time the authority is made or loaded. Its name has a part of its public
/// key, because clients that have trusted an older authority of the same name confuse the two.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    let mark: String = digest.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Orrery local authority {mark}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A certificate issued by our authority, replaced when it is about to expire.
struct OwnCertificate {
    authority: Authority,
    names: Vec<String>,
    clock: Arc<dyn Clock>,
    current: Mutex<Issued>,
}

#[derive(Clone)]
struct Issued {
    certified: Arc<CertifiedKey>,
    until_s: u64,
}

impl OwnCertificate {
    fn issue(
        authority: Authority,
        names: Vec<String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let issued = issue(&authority, &names, clock.now_s())?;
        Ok(Self { authority, names, clock, current: Mutex::new(issued) })
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let now_s = self.clock.now_s();
        // A panic while the lock was held left the old certificate in place, which still serves.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.until_s < now_s.saturating_add(RENEWAL_S) {
            match issue(&self.authority, &self.names, now_s) {
                Ok(issued) => *current = issued,
                Err(error) => tracing::error!(%error, "the certificate cannot be renewed"),
            }
        }
        current.certified.clone()
    }
}

fn issue(authority: &Authority, names: &[String], now_s: u64) -> Result<Issued, TlsError> {
    let key = KeyPair::generate()?;
    let until_s = now_s + SERVER_VALID_S;
    let mut params = CertificateParams::default();
    set_validity(&mut params, now_s, until_s);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Orrery");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    let certificate = params.signed_by(&key, &authority.issuer)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private)?;
    let certified = CertifiedKey::new(vec![certificate.der().clone()], signing);
    Ok(Issued { certified: Arc::new(certified), until_s })
}

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The user's certificate.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn load_files(certificate: &Path, key: &Path) -> Result<(CertifiedKey, String), TlsError> {
    let read = |path| std::fs::read_to_string(path).map_err(|error| TlsError::file(path, error));
    let pem = read(certificate)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::file(certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::file(certificate, "there is no certificate in this file"));
    }
    let private = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes())
        .map_err(|error| TlsError::file(key, error))?;
    let certified = CertifiedKey::from_der(chain, private, &default_provider())
        .map_err(|error| TlsError::file(key, error))?;
    Ok((certified, pem))
}

/// Sets from when until when a certificate is valid. It starts a day early, for clients whose clock
/// is behind.
fn set_validity(params: &mut CertificateParams, from_s: u64, until_s: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(from_s.saturating_sub(DAY_S));
    params.not_after = epoch + Duration::from_secs(until_s);
}

fn read_file(path: &Path) -> Result<Option<String>, TlsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TlsError::file(path, error)),
    }
}

/// Writes a file that only its owner may change, all of it or nothing.
fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let staged = path.with_extension("new");
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        #[cfg(not(unix))]
        let _ = mode;
        let mut file = options.open(&staged)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&staged, path)
    };
    write().map_err(|error| TlsError::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::ManualClock;

    const NOW_S: u64 = 1_700_000_000;

    fn clock(now_s: u64) -> Arc<ManualClock> {
        Arc::new(ManualClock::at_ms(now_s * 1_000))
    }

    fn own(directory: &Path, now_s: u64) -> Tls {
        Tls::new(&Certificate::Own(Some(directory.into())), Some("db.test"), clock(now_s)).unwrap()
    }

    #[test]
    fn the_authority_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let tls = directory.path().join("tls");
        let first = own(&tls, NOW_S);
        let second = own(&tls, NOW_S + 400 * DAY_S);
        assert_eq!(first.trust_pem, second.trust_pem);
        assert!(first.trust_pem.starts_with("-----BEGIN CERTIFICATE-----"));
    }

    #[test]
    fn an_authority_about_to_expire_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let first = own(directory.path(), NOW_S);
        let late_s = NOW_S + AUTHORITY_VALID_S - RENEWAL_S + 1;
        assert_ne!(first.trust_pem, own(directory.path(), late_s).trust_pem);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_the_key() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        own(directory.path(), NOW_S);
        let mode = std::fs::metadata(key_path(directory.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_server_certificate_is_renewed_while_running() {
        let clock = clock(NOW_S);
        let (authority, _) = Authority::create(NOW_S).unwrap();
        let own = OwnCertificate::issue(authority, server_names(None), clock.clone()).unwrap();
        let first = own.current();
        assert!(Arc::ptr_eq(&first, &own.current()));
        clock.advance_ms((SERVER_VALID_S - RENEWAL_S + 1) * 1_000);
        let second = own.current();
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &own.current()));
    }

    #[test]
    fn a_broken_key_file_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        own(directory.path(), NOW_S);
        std::fs::write(key_path(directory.path()), "valid until: 9999999999\nnothing").unwrap();
        let source = Certificate::Own(Some(directory.path().into()));
        let error = Tls::new(&source, None, clock(NOW_S)).unwrap_err();
        assert!(error.to_string().contains("ca.key"), "{error}");
    }

    #[test]
    fn the_users_files_are_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["db.test".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let (certificate, key_file) =
            (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        std::fs::write(&certificate, &pem).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let files = Certificate::Files { certificate: certificate.clone(), key: key_file };
        let tls = Tls::new(&files, None, clock(NOW_S)).unwrap();
        assert_eq!(&*tls.trust_pem, pem);
        let swapped = Certificate::Files { certificate: certificate.clone(), key: certificate };
        assert!(Tls::new(&swapped, None, clock(NOW_S)).is_err());
    }

    #[test]
    fn the_public_host_is_a_name_of_the_certificate() {
        let names = server_names(Some("[::2]"));
        assert!(names.contains(&"localhost".to_owned()) && names.contains(&"::2".to_owned()));
        assert!(server_names(Some("db.test:443")).contains(&"db.test".to_owned()));
    }
}
