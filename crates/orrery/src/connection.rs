//! How commands reach a server: their options for it, and what is said when it cannot be reached.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use gateway::{EMULATOR_KEY, Key};

use crate::account::Account;
use crate::client::{Client, Endpoint, Unanswered};
use crate::say;
use crate::trust::Trust;

/// Which server, and who is asking.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectionArguments {
    /// The server.
    #[arg(
        long,
        env = "ORRERY_ENDPOINT",
        value_name = "URL",
        default_value = "http://localhost:8081/"
    )]
    endpoint: Endpoint,

    /// A key of the account [default: the well-known emulator key]
    #[arg(long, env = "ORRERY_KEY", value_name = "KEY", hide_env_values = true)]
    key: Option<String>,

    /// A file that holds a key of the account.
    #[arg(long, env = "ORRERY_KEY_FILE", value_name = "FILE", conflicts_with = "key")]
    key_file: Option<PathBuf>,

    /// The server and the key in one: 'AccountEndpoint=URL;AccountKey=KEY;'.
    #[arg(
        long,
        env = "ORRERY_CONNECTION",
        value_name = "STRING",
        hide_env_values = true,
        conflicts_with_all = ["endpoint", "key", "key_file"]
    )]
    connection: Option<ConnectionString>,

    /// A PEM file with the authorities to trust [default: those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// Trust whatever certificate the server shows.
    #[arg(long)]
    insecure: bool,
}

impl ConnectionArguments {
    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Account, Failure> {
        let key = self.key()?;
        let endpoint = self.endpoint();
        let trust = self.trust(endpoint)?;
        let tls =
            if endpoint.is_secure { Some(trust.config().map_err(Failure::Usage)?) } else { None };
        let client = Client::connect(endpoint, tls, key).await;
        let client = client.map_err(|error| unanswered(&endpoint.to_string(), error))?;
        Ok(Account::new(client, endpoint.to_string()))
    }

    fn endpoint(&self) -> &Endpoint {
        self.connection.as_ref().map_or(&self.endpoint, |connection| &connection.endpoint)
    }

    fn key(&self) -> Result<Key, Failure> {
        let (name, text) = match (&self.connection, &self.key, &self.key_file) {
            (Some(connection), _, _) => ("--connection".to_owned(), connection.key.clone()),
            (None, Some(key), _) => ("--key".to_owned(), key.clone()),
            (None, None, Some(path)) => {
                let text = std::fs::read_to_string(path);
                let refuse =
                    |error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
                (path.display().to_string(), text.map_err(refuse)?)
            }
            (None, None, None) => ("--key".to_owned(), EMULATOR_KEY.to_owned()),
        };
        Key::parse(&text).map_err(|error| Failure::Usage(format!("{name}: {}", error.0)))
    }

    fn trust(&self, endpoint: &Endpoint) -> Result<Trust, Failure> {
        let trust = match &self.ca {
            Some(path) => Trust::File(path.clone()),
            None if self.insecure => Trust::Anything,
            None => Trust::System,
        };
        if trust != Trust::System && !endpoint.is_secure {
            return Err(Failure::Usage(format!(
                "--ca and --insecure are about certificates, and {endpoint} has none; give \
                 --endpoint https://…",
            )));
        }
        Ok(trust)
    }
}

/// What clients of the service are given to connect with.
#[derive(Clone)]
struct ConnectionString {
    endpoint: Endpoint,
    key: String,
}

impl FromStr for ConnectionString {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut endpoint, mut key) = (None, None);
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else { continue };
            match name.trim().to_ascii_lowercase().as_str() {
                "accountendpoint" => endpoint = Some(value.trim().parse()?),
                "accountkey" => key = Some(value.trim().to_owned()),
                // Other parts are settings of one SDK or another.
                _ => {}
            }
        }
        Ok(Self {
            endpoint: endpoint.ok_or("it has no AccountEndpoint")?,
            key: key.ok_or("it has no AccountKey")?,
        })
    }
}

impl std::fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is a secret.
        f.debug_struct("ConnectionString").field("endpoint", &self.endpoint).finish()
    }
}

/// Why a command did not do what it was asked for, for the person who asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command itself makes no sense.
    Usage(String),
    /// It could not be done.
    Refused(String),
    /// Nobody reads the output any more: the reader has had enough.
    Unread,
}

impl Failure {
    /// The failure with the place that it is about in front.
    pub(crate) fn at(self, place: &str) -> Self {
        match self {
            Failure::Usage(message) => Failure::Usage(format!("{place}: {message}")),
            Failure::Refused(message) => Failure::Refused(format!("{place}: {message}")),
            Failure::Unread => Failure::Unread,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Refused(message) => f.write_str(message),
            Failure::Unread => f.write_str("nobody reads the output"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Refused(format!("cannot write the answer: {error}")),
        }
    }
}

/// Runs a command to its end and says how it went.
pub(crate) fn run(
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(command) {
        Ok(()) | Err(Failure::Unread) => Ok(ExitCode::SUCCESS),
        Err(Failure::Refused(message)) => Err(message.into()),
        Err(Failure::Usage(message)) => {
            say(&format!("orrery: {message}"));
            Ok(ExitCode::from(2))
        }
    }
}

/// Says why there is no answer, and what can be done.
pub(crate) fn unanswered(endpoint: &str, error: Unanswered) -> Failure {
    Failure::Refused(match error {
        Unanswered::NotConnected(why) => format!(
            "cannot connect to {endpoint}: {why}; start a server with 'orrery serve', or say where \
             it is with --endpoint"
        ),
        Unanswered::NotTrusted(why) => format!(
            "the certificate of {endpoint} is not trusted: {why}; name the authority with --ca (a \
             server's own is in its data directory, tls/ca.pem), or check nothing with --insecure"
        ),
        Unanswered::Broken(why) => format!(
            "{endpoint} does not answer as a server should: {why}; see whether the address and \
             http or https are right"
        ),
        Unanswered::Late(after) => {
            format!("{endpoint} did not answer within {} seconds", after.as_secs())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_read() {
        let check = |text: &str, expected: Result<(&str, &str), &str>| {
            let found = text.parse::<ConnectionString>();
            match (&found, expected) {
                (Ok(found), Ok((endpoint, key))) => {
                    assert_eq!(found.endpoint.to_string(), endpoint, "{text}");
                    assert_eq!(found.key, key, "{text}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                _ => panic!("{text}: {found:?}"),
            }
        };
        let both = Ok(("https://localhost:8081/", "ab+/=="));
        check("AccountEndpoint=https://localhost:8081/;AccountKey=ab+/==;", both);
        check("accountkey=ab+/== ; accountendpoint = https://localhost:8081/;Database=x", both);
        check("AccountEndpoint=https://localhost:8081/", Err("no AccountKey"));
        check("AccountKey=ab", Err("no AccountEndpoint"));
        check("AccountEndpoint=localhost;AccountKey=ab", Err("http://"));
        check("", Err("no AccountEndpoint"));
    }

    #[test]
    fn the_key_of_a_connection_string_is_not_shown() {
        let text = "AccountEndpoint=https://localhost/;AccountKey=secret";
        let connection: ConnectionString = text.parse().unwrap();
        assert!(!format!("{connection:?}").contains("secret"));
    }
}
