//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::Deserialize;

/// An open-source document database that speaks the Azure Cosmos DB for NoSQL protocol.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    ///
    /// Without options it listens on localhost:8081 (HTTP and HTTPS on the same port), keeps its
    /// data in ./orrery-data and accepts the well-known key of the Cosmos DB emulator.
    Serve(Box<ServeArguments>),
    /// Check that everything stored fits together. The server must not be running.
    Verify(VerifyArguments),
}

/// What can be said about the server, on the command line or in a file.
///
/// Every option can also be given as a variable, `ORRERY_` and its name in capitals, or in a TOML
/// file (`--config`) under its long name. The command line wins over variables, they over the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServeArguments {
    /// A TOML file with any of these options.
    #[arg(long, env = "ORRERY_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,

    /// Where data is kept [default: ./orrery-data]
    #[arg(long, env = "ORRERY_DATA", value_name = "DIR", alias = "data-path")]
    pub(crate) data: Option<PathBuf>,

    /// Keep data in memory only; it is gone when the server stops.
    #[arg(long, env = "ORRERY_IN_MEMORY", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) in_memory: Option<bool>,

    /// The address to listen on [default: localhost]
    #[arg(long, env = "ORRERY_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<String>,

    /// The port to listen on; 0 takes any that is free [default: 8081]
    #[arg(long, env = "ORRERY_PORT", value_name = "N")]
    pub(crate) port: Option<u16>,

    /// The primary key: base64 of 64 bytes [default on localhost: the well-known emulator key]
    #[arg(long, env = "ORRERY_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// A file that holds the primary key.
    #[arg(long, env = "ORRERY_KEY_FILE", value_name = "FILE", conflicts_with = "key")]
    pub(crate) key_file: Option<PathBuf>,

    /// The secondary key, accepted like the primary one, for rotation.
    #[arg(long, env = "ORRERY_SECONDARY_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) secondary_key: Option<String>,

    /// A key that may only read.
    #[arg(long, env = "ORRERY_READ_ONLY_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) read_only_key: Option<String>,

    /// A second key that may only read.
    #[arg(
        long,
        env = "ORRERY_SECONDARY_READ_ONLY_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub(crate) secondary_read_only_key: Option<String>,

    /// Accept the well-known emulator key on other addresses than localhost too. Everybody knows it.
    #[arg(long, env = "ORRERY_ALLOW_EMULATOR_KEY", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) allow_emulator_key: Option<bool>,

    /// A certificate in PEM [default: one signed by Orrery's own authority]
    #[arg(long, env = "ORRERY_CERT", value_name = "FILE", requires = "cert_key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM.
    #[arg(long, env = "ORRERY_CERT_KEY", value_name = "FILE", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,

    /// The host name that clients use, if they come through something that changes it.
    #[arg(long, env = "ORRERY_PUBLIC_HOST", value_name = "HOST", alias = "gateway-endpoint")]
    pub(crate) public_host: Option<String>,

    /// Answer unsigned requests for the account with 401, as the cloud service does.
    #[arg(long, env = "ORRERY_STRICT", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) strict: Option<bool>,

    /// Origins of web pages that may call the server, separated by commas, or '*'
    /// [default: '*' on localhost, none elsewhere]
    #[arg(long, env = "ORRERY_CORS_ORIGINS", value_name = "LIST")]
    pub(crate) cors_origins: Option<String>,

    /// Accept the unsigned AAD tokens that the tests of the SDKs make from the key.
    #[arg(long, env = "ORRERY_ACCEPT_TEST_TOKENS", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) accept_test_tokens: Option<bool>,

    /// How many connections are served at once [default: 4096]
    #[arg(long, env = "ORRERY_CONNECTIONS_MAX", value_name = "N")]
    pub(crate) connections_max: Option<usize>,

    /// A second port that answers /alive, /ready and /status [default: none]
    #[arg(long, env = "ORRERY_HEALTH_PORT", value_name = "N")]
    pub(crate) health_port: Option<u16>,

    /// What is logged: quiet, error, warn, info, debug, trace, or a filter such as gateway=debug
    /// [default: info]
    #[arg(long, env = "ORRERY_LOG", value_name = "FILTER", alias = "log-level")]
    pub(crate) log: Option<String>,

    /// How logs look: text or json [default: text]
    #[arg(long, env = "ORRERY_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,

    /// Stand in for Microsoft's emulator image: listen on all addresses with the well-known key,
    /// health checks on port 8080, and the image's variables (PORT, PROTOCOL, KEY_FILE, DATA_PATH,
    /// GATEWAY_PUBLIC_ENDPOINT, LOG_LEVEL and others) are read.
    #[arg(long, env = "ORRERY_EMULATOR", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) emulator: Option<bool>,

    /// The emulator image's options that have nothing to choose here: they are accepted.
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) accepted: AcceptedArguments,
}

/// Options of Microsoft's emulator image that are accepted so that existing commands work.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AcceptedArguments {
    /// Both protocols are always served on the same port.
    #[arg(long, hide = true, value_parser = ["http", "https", "https-insecure"])]
    pub(crate) protocol: Option<String>,
    /// There is no explorer of the emulator's kind.
    #[arg(long, hide = true, num_args = 0..=1)]
    pub(crate) enable_explorer: Option<Option<String>>,
    #[arg(long, hide = true)]
    pub(crate) explorer_port: Option<u16>,
    #[arg(long, hide = true)]
    pub(crate) explorer_protocol: Option<String>,
    /// A certificate in PKCS #12, which is not served: refused with what to do instead.
    #[arg(long, hide = true)]
    pub(crate) cert_path: Option<PathBuf>,
    #[arg(long, hide = true, num_args = 0..=1)]
    pub(crate) enable_otlp: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1)]
    pub(crate) enable_console: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1)]
    pub(crate) verbose: Option<Option<String>>,
    #[arg(long, hide = true)]
    pub(crate) query_buffer_size: Option<u32>,
    #[arg(long, hide = true, num_args = 0..=1)]
    pub(crate) enable_telemetry: Option<Option<String>>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyArguments {
    /// Where data is kept.
    #[arg(long, env = "ORRERY_DATA", value_name = "DIR", default_value = "orrery-data")]
    pub(crate) data: PathBuf,
}
