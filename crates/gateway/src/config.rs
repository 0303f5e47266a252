//! What the operator chooses about the gateway.

use std::path::PathBuf;

use crate::consistency::Consistency;
use crate::keys::Keys;

/// The gateway's configuration. There is no default: every choice is made at the top, once.
#[derive(Clone, Debug)]
pub struct Config {
    /// The account's keys.
    pub keys: Keys,
    /// The host name under which clients reach the server, for those who do not say it in their
    /// requests; with a port, for all. Also a name of the certificate.
    pub public_host: Option<String>,
    /// The consistency level that the account announces. No request may ask for a stronger one.
    pub consistency: Consistency,
    /// Answer `GET /` only to those who sign it, as the cloud service does. Readiness probes of
    /// containers need the opposite.
    pub strict: bool,
    /// Leave queries over several partitions to clients where their rows have to be merged, as the cloud
    /// service does.
    pub client_merges: bool,
    /// Refuse to find documents by ids that do not survive in a URL, as the cloud service's classic
    /// gateway does.
    pub strict_ids: bool,
    /// Refuse requests about documents beyond the throughput that is provisioned for them.
    pub throttle: bool,
    /// The web pages that may call the server from a browser.
    pub cors: Origins,
    /// How many connections are served at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// Accept the unsigned AAD tokens of the emulator's tests. Anyone who knows a key can make one,
    /// so they are no weaker than keys, but no stronger either.
    pub accept_test_tokens: bool,
    /// Where the server's certificate comes from.
    pub certificate: Certificate,
}

/// The web pages that may call the server from a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// None.
    None,
    /// Every page.
    Any,
    /// Pages of these origins, such as `https://example.org`.
    Only(Vec<String>),
}

/// Where the server's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Issued by our own authority, whose key and certificate are kept in the directory, or only
    /// in memory where there is none.
    Own(Option<PathBuf>),
    /// The user's, from two PEM files.
    Files {
        /// The certificate, followed by those that lead to its authority.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}
