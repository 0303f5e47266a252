//! Makes one configuration of the command line, the variables and a file.
//!
//! Each source fills what the ones before it left open: the command line, `ORRERY_*` variables (both
//! read by the argument parser), the file, the variables of Microsoft's emulator images, and last
//! the defaults. Variables with general names, such as `PORT`, count only where the server stands in
//! for the emulator: elsewhere they mean something else.

use std::fmt;
use std::path::PathBuf;

use db::RangeThroughput;
use gateway::{Certificate, Consistency, EMULATOR_KEY, Key, Keys, Origins};

use crate::commands::ServeArguments;

/// What the server does, with nothing left open.
#[derive(Debug)]
pub(crate) struct ServerConfig {
    /// Where data is kept; in memory if nowhere.
    pub(crate) data: Option<PathBuf>,
    /// What the server starts with.
    pub(crate) seed: Option<PathBuf>,
    pub(crate) listen: Listen,
    pub(crate) port: u16,
    pub(crate) health_port: Option<u16>,
    pub(crate) gateway: gateway::Config,
    pub(crate) range_throughput: RangeThroughput,
    pub(crate) log: String,
    pub(crate) log_json: bool,
    /// Whether the key is the one that everybody knows, and so may be printed.
    pub(crate) well_known_key: bool,
    /// Whether the server stands in for Microsoft's emulator image.
    pub(crate) emulator: bool,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// On this machine only, by both of its addresses.
    Localhost,
    Address(String),
}

/// A configuration that cannot be used, and what to do about it.
#[derive(Debug)]
pub(crate) struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

type Result<T> = std::result::Result<T, ConfigError>;

fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(ConfigError(message.into()))
}

/// Looks a variable up; the process's environment, or a test's.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl ServerConfig {
    pub(crate) fn resolve(arguments: ServeArguments, variables: Variables<'_>) -> Result<Self> {
        let file = read_file(&arguments)?;
        let arguments = with_file(arguments, file);
        let emulator = arguments.emulator.unwrap_or(false);
        let arguments = with_emulator_variables(arguments, emulator, variables)?;
        if arguments.accepted.cert_path.is_some() {
            return wrong(
                "certificates in PKCS #12 (--cert-path, CERT_PATH) are not read: convert it with \
                 'openssl pkcs12 -in X.pfx -nodes -out X.pem' and give --cert and --cert-key",
            );
        }
        let listen = match arguments.listen.as_deref() {
            None if emulator => Listen::Address("0.0.0.0".to_owned()),
            None | Some("localhost") => Listen::Localhost,
            Some(address) => Listen::Address(address.to_owned()),
        };
        let (keys, well_known_key) = keys(&arguments, &listen, emulator)?;
        let data = match arguments.in_memory {
            Some(true) => None,
            _ => Some(arguments.data.clone().unwrap_or_else(|| PathBuf::from("orrery-data"))),
        };
        let certificate = match (&arguments.cert, &arguments.cert_key) {
            (Some(certificate), Some(key)) => {
                Certificate::Files { certificate: certificate.clone(), key: key.clone() }
            }
            (None, None) => Certificate::Own(data.as_ref().map(|data| data.join("tls"))),
            _ => return wrong("--cert and --cert-key belong together: give both"),
        };
        let consistency = arguments.consistency.as_deref().unwrap_or("Session");
        let consistency = Consistency::named(consistency).ok_or_else(|| {
            ConfigError(format!(
                "--consistency is one of {}, not '{consistency}'",
                Consistency::ALL.map(Consistency::name).join(", ")
            ))
        })?;
        let range_throughput = match arguments.range_throughput {
            None => RangeThroughput::default(),
            Some(units) => RangeThroughput::new(units).ok_or_else(|| {
                let (least, most) = RangeThroughput::BOUNDS.into_inner();
                ConfigError(format!(
                    "--range-throughput is from {least} to {most} request units, not {units}"
                ))
            })?,
        };
        let log_json = match arguments.log_format.as_deref() {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => {
                return wrong(format!("--log-format is 'text' or 'json', not '{other}'"));
            }
        };
        Ok(Self {
            port: arguments.port.unwrap_or(8081),
            health_port: arguments.health_port.or(emulator.then_some(8080)),
            gateway: gateway::Config {
                keys,
                public_host: arguments.public_host.clone(),
                consistency,
                strict: arguments.strict.unwrap_or(false),
                throttle: arguments.throttle.unwrap_or(false),
                client_merges: arguments.client_merges.unwrap_or(false),
                strict_ids: arguments.strict_ids.unwrap_or(false),
                cors: origins(arguments.cors_origins.as_deref(), &listen),
                connections_max: arguments.connections_max.unwrap_or(4096),
                accept_test_tokens: arguments.accept_test_tokens.unwrap_or(false),
                certificate,
            },
            range_throughput,
            log: arguments.log.clone().unwrap_or_else(|| "info".to_owned()),
            log_json,
            seed: arguments.seed.clone(),
            data,
            listen,
            well_known_key,
            emulator,
        })
    }
}

fn read_file(arguments: &ServeArguments) -> Result<ServeArguments> {
    let Some(path) = &arguments.config else { return Ok(ServeArguments::default()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?;
    toml::from_str(&text)
        .map_err(|error| ConfigError(format!("{} is not valid: {error}", path.display())))
}

/// Fills from the file what the command line and the variables left open.
fn with_file(arguments: ServeArguments, file: ServeArguments) -> ServeArguments {
    // A key on the command line also takes the place of a key file in the file, and the reverse.
    let has_key = arguments.key.is_some() || arguments.key_file.is_some();
    let file_keys = if has_key { (None, None) } else { (file.key, file.key_file) };
    ServeArguments {
        data: arguments.data.or(file.data),
        in_memory: arguments.in_memory.or(file.in_memory),
        seed: arguments.seed.or(file.seed),
        listen: arguments.listen.or(file.listen),
        port: arguments.port.or(file.port),
        key: arguments.key.or(file_keys.0),
        key_file: arguments.key_file.or(file_keys.1),
        secondary_key: arguments.secondary_key.or(file.secondary_key),
        read_only_key: arguments.read_only_key.or(file.read_only_key),
        secondary_read_only_key: arguments.secondary_read_only_key.or(file.secondary_read_only_key),
        allow_emulator_key: arguments.allow_emulator_key.or(file.allow_emulator_key),
        cert: arguments.cert.or(file.cert),
        cert_key: arguments.cert_key.or(file.cert_key),
        public_host: arguments.public_host.or(file.public_host),
        consistency: arguments.consistency.or(file.consistency),
        strict: arguments.strict.or(file.strict),
        throttle: arguments.throttle.or(file.throttle),
        client_merges: arguments.client_merges.or(file.client_merges),
        strict_ids: arguments.strict_ids.or(file.strict_ids),
        range_throughput: arguments.range_throughput.or(file.range_throughput),
        cors_origins: arguments.cors_origins.or(file.cors_origins),
        accept_test_tokens: arguments.accept_test_tokens.or(file.accept_test_tokens),
        connections_max: arguments.connections_max.or(file.connections_max),
        health_port: arguments.health_port.or(file.health_port),
        log: arguments.log.or(file.log),
        log_format: arguments.log_format.or(file.log_format),
        emulator: arguments.emulator.or(file.emulator),
        config: arguments.config,
        accepted: arguments.accepted,
    }
}

/// Fills from the variables of Microsoft's images what is still open.
fn with_emulator_variables(
    mut arguments: ServeArguments,
    emulator: bool,
    variables: Variables<'_>,
) -> Result<ServeArguments> {
    let has_key = arguments.key.is_some() || arguments.key_file.is_some();
    // The classic image's names are its own; nobody else sets them.
    if !has_key {
        arguments.key = variables("AZURE_COSMOS_EMULATOR_KEY");
    }
    if arguments.public_host.is_none() {
        arguments.public_host = variables("AZURE_COSMOS_EMULATOR_IP_ADDRESS_OVERRIDE");
    }
    if !emulator {
        return Ok(arguments);
    }
    if arguments.in_memory.is_none() && arguments.data.is_none() {
        let persist = variables("AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE");
        if persist.is_some_and(|persist| !persist.eq_ignore_ascii_case("true")) {
            arguments.in_memory = Some(true);
        }
    }
    if arguments.port.is_none()
        && let Some(port) = variables("PORT")
    {
        let port = port.parse();
        arguments.port = Some(port.map_err(|_| ConfigError("PORT is not a port".to_owned()))?);
    }
    if arguments.key.is_none() && arguments.key_file.is_none() {
        arguments.key_file = variables("KEY_FILE").map(PathBuf::from);
    }
    if arguments.data.is_none() {
        arguments.data = variables("DATA_PATH").map(PathBuf::from);
    }
    if arguments.public_host.is_none() {
        let host = variables("GATEWAY_PUBLIC_ENDPOINT");
        arguments.public_host = host.filter(|host| host != "localhost");
    }
    if arguments.log.is_none() {
        arguments.log = variables("LOG_LEVEL");
    }
    if arguments.accepted.cert_path.is_none() {
        arguments.accepted.cert_path = variables("CERT_PATH").map(PathBuf::from);
    }
    Ok(arguments)
}

/// The keys, and whether the primary one is the one that everybody knows.
fn keys(arguments: &ServeArguments, listen: &Listen, emulator: bool) -> Result<(Keys, bool)> {
    let given = match (&arguments.key, &arguments.key_file) {
        (Some(key), _) => Some(key.clone()),
        (None, Some(path)) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?
                .trim()
                .to_owned(),
        ),
        (None, None) => None,
    };
    let well_known = given.as_deref().is_none_or(|key| key == EMULATOR_KEY);
    let local = match listen {
        Listen::Localhost => true,
        Listen::Address(address) => is_loopback(address),
    };
    if well_known && !local && !emulator && arguments.allow_emulator_key != Some(true) {
        return wrong(
            "the well-known emulator key is no protection on an address that others can reach. \
             Give your own with --key (base64 of 64 random bytes: openssl rand -base64 64 | tr -d \
             '\\n'), listen on localhost only, or say --allow-emulator-key if that is what you want",
        );
    }
    let parse = |name: &str, text: &str| {
        Key::parse(text).map_err(|error| ConfigError(format!("{name}: {}", error.0)))
    };
    let optional = |name: &str, text: &Option<String>| {
        text.as_deref().map(|text| parse(name, text)).transpose()
    };
    let keys = Keys {
        primary: parse("--key", given.as_deref().unwrap_or(EMULATOR_KEY))?,
        secondary: optional("--secondary-key", &arguments.secondary_key)?,
        primary_read_only: optional("--read-only-key", &arguments.read_only_key)?,
        secondary_read_only: optional(
            "--secondary-read-only-key",
            &arguments.secondary_read_only_key,
        )?,
    };
    Ok((keys, well_known))
}

fn is_loopback(address: &str) -> bool {
    let address = address.trim_start_matches('[').trim_end_matches(']');
    address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn origins(list: Option<&str>, listen: &Listen) -> Origins {
    match list.map(str::trim) {
        None if *listen == Listen::Localhost => Origins::Any,
        None | Some("") => Origins::None,
        Some("*") => Origins::Any,
        Some(list) => {
            Origins::Only(list.split(',').map(|origin| origin.trim().to_owned()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Cli, Command};

    fn resolve(line: &str, variables: &[(&str, &str)]) -> Result<ServerConfig> {
        let words = ["orrery", "serve"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| ConfigError(error.to_string()))?;
        let Command::Serve(arguments) = cli.command else { panic!("is serve") };
        let variables: Vec<_> =
            variables.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        ServerConfig::resolve(*arguments, &|name| {
            variables.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
        })
    }

    #[test]
    fn the_defaults_are_safe_and_local() {
        let config = resolve("", &[]).unwrap();
        assert_eq!(config.listen, Listen::Localhost);
        assert_eq!(config.port, 8081);
        assert_eq!(config.data, Some(PathBuf::from("orrery-data")));
        assert_eq!(config.health_port, None);
        assert_eq!(config.gateway.cors, Origins::Any);
        assert!(config.well_known_key);
    }

    #[test]
    fn the_well_known_key_is_refused_on_open_addresses() {
        let error = resolve("--listen 0.0.0.0", &[]).unwrap_err();
        assert!(error.0.contains("--allow-emulator-key"), "{error}");
        let error = resolve(&format!("--listen 10.0.0.1 --key {EMULATOR_KEY}"), &[]).unwrap_err();
        assert!(error.0.contains("no protection"), "{error}");
        assert!(resolve("--listen 127.0.0.1", &[]).is_ok());
        assert!(resolve("--listen ::1", &[]).is_ok());
        assert!(resolve("--listen 0.0.0.0 --allow-emulator-key", &[]).is_ok());
        let own = "A".repeat(86) + "==";
        let config = resolve(&format!("--listen 0.0.0.0 --key {own}"), &[]).unwrap();
        assert!(!config.well_known_key);
        assert_eq!(config.gateway.cors, Origins::None);
    }

    #[test]
    fn keys_are_checked() {
        let error = resolve("--key abc", &[]).unwrap_err();
        assert!(error.0.starts_with("--key"), "{error}");
        let error = resolve("--secondary-key !", &[]).unwrap_err();
        assert!(error.0.starts_with("--secondary-key"), "{error}");
    }

    #[test]
    fn variables_of_the_emulator_count_where_it_is_stood_in_for() {
        let variables =
            [("PORT", "9000"), ("DATA_PATH", "/data"), ("GATEWAY_PUBLIC_ENDPOINT", "cosmos")];
        let config = resolve("", &variables).unwrap();
        assert_eq!(config.port, 8081);
        let config = resolve("--emulator", &variables).unwrap();
        assert_eq!(config.port, 9000);
        assert_eq!(config.data, Some(PathBuf::from("/data")));
        assert_eq!(config.gateway.public_host.as_deref(), Some("cosmos"));
        assert_eq!(config.listen, Listen::Address("0.0.0.0".to_owned()));
        assert_eq!(config.health_port, Some(8080));
        let config = resolve("--emulator --port 7000", &variables).unwrap();
        assert_eq!(config.port, 7000);
        let error = resolve("--emulator", &[("CERT_PATH", "x.pfx")]).unwrap_err();
        assert!(error.0.contains("openssl pkcs12"), "{error}");
    }

    #[test]
    fn consistency_is_a_level_of_the_protocol() {
        assert_eq!(resolve("", &[]).unwrap().gateway.consistency, Consistency::Session);
        let config = resolve("--consistency strong", &[]).unwrap();
        assert_eq!(config.gateway.consistency, Consistency::Strong);
        let error = resolve("--consistency perfect", &[]).unwrap_err();
        assert!(error.0.contains("Strong, BoundedStaleness, Session"), "{error}");
    }

    #[test]
    fn the_throughput_of_a_range_has_bounds() {
        let config = resolve("--range-throughput 6000", &[]).unwrap();
        assert_eq!(Some(config.range_throughput), RangeThroughput::new(6_000));
        let config = resolve("", &[]).unwrap();
        assert_eq!(Some(config.range_throughput), RangeThroughput::new(10_000));
        for line in ["--range-throughput 0", "--range-throughput 1000001"] {
            let error = resolve(line, &[]).unwrap_err();
            assert!(error.0.contains("from 100 to 1000000"), "{error}");
        }
    }

    #[test]
    fn options_of_the_emulator_are_accepted() {
        resolve(
            "--protocol https --enable-explorer false --explorer-port 1234 --log-level warn \
             --enable-telemetry false --query-buffer-size 4096 --data-path x",
            &[],
        )
        .unwrap();
    }

    #[test]
    fn a_file_fills_what_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orrery.toml");
        std::fs::write(&path, "port = 9100\nin-memory = true\nlog = \"warn\"\n").unwrap();
        let line = format!("--config {} --port 9200", path.display());
        let config = resolve(&line, &[]).unwrap();
        assert_eq!((config.port, config.data, config.log.as_str()), (9200, None, "warn"));

        std::fs::write(&path, "prot = 1\n").unwrap();
        let error = resolve(&format!("--config {}", path.display()), &[]).unwrap_err();
        assert!(error.0.contains("prot"), "{error}");
    }
}
