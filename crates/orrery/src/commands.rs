//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::Deserialize;
use value::{PartitionKey, Value};

use crate::account::Place;
use crate::connection::ConnectionArguments;
use crate::rows::Format;

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
    /// Ask a server a query and print the rows, or how the query would be answered.
    ///
    /// Without options it asks the server on localhost:8081 with the well-known key of the Cosmos DB
    /// emulator. It ends with 0 if the query was answered, with 1 if it was not, and with 2 if the
    /// command makes no sense.
    Query(Box<QueryArguments>),
    /// Bring procedures, triggers and functions to a container, list and call them.
    #[command(subcommand)]
    Script(ScriptCommand),
    /// List the ranges that a container is cut into, split and merge them.
    #[command(subcommand)]
    Range(RangeCommand),
    /// Write a database, or one of its containers, to files.
    ///
    /// The folder gets export.json with the definitions of containers, their throughput and scripts,
    /// and the documents in files with one on each line, as the server spells them. 'orrery import'
    /// brings it to any server of the protocol, and 'orrery serve --seed DIR/export.json' starts with
    /// it. It ends with 1 if the number of documents does not agree with the server's at the end.
    Export(Box<ExportArguments>),
    /// Bring what 'orrery export' wrote to a server.
    ///
    /// Databases, containers and scripts are created where they are missing; documents that are there
    /// are replaced. System properties of documents are ignored.
    Import(Box<ImportArguments>),
    /// Ask a server interactively.
    ///
    /// Queries end with ';' or an empty line; '\\?' lists the commands. Without a terminal it reads
    /// commands from standard input, prints rows as JSON, and ends with 1 if one of them failed.
    Shell(Box<ShellArguments>),
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

    /// A JSON file with databases, containers, scripts and documents that the server starts with.
    /// What is there already is left alone.
    #[arg(long, env = "ORRERY_SEED", value_name = "FILE")]
    pub(crate) seed: Option<PathBuf>,

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

    /// The host name that clients use; with a port it is announced to all of them, whichever way
    /// they came.
    #[arg(
        long,
        env = "ORRERY_PUBLIC_HOST",
        value_name = "HOST[:PORT]",
        alias = "gateway-endpoint"
    )]
    pub(crate) public_host: Option<String>,

    /// The consistency level that the account announces: Strong, BoundedStaleness, Session,
    /// ConsistentPrefix or Eventual. Reads see every acknowledged write at all of them; requests that
    /// ask for a stronger one get 400 [default: Session]
    #[arg(long, env = "ORRERY_CONSISTENCY", value_name = "LEVEL")]
    pub(crate) consistency: Option<String>,

    /// Answer unsigned requests for the account with 401, as the cloud service does.
    #[arg(long, env = "ORRERY_STRICT", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) strict: Option<bool>,

    /// Refuse requests beyond the throughput of their container with 429, as the cloud service does.
    #[arg(long, env = "ORRERY_THROTTLE", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) throttle: Option<bool>,

    /// Refuse queries over several partitions whose rows have to be sorted or merged with 400/1004, as
    /// the cloud service does; clients that can merge them ask for a plan then. Otherwise the server
    /// answers them whole.
    #[arg(long, env = "ORRERY_CLIENT_MERGES", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) client_merges: Option<bool>,

    /// Refuse to find a document by its URL if its id holds '/', '\\', '#' or a percent escape or ends
    /// with a space (401), or holds control characters (400), as the cloud service's classic gateway
    /// does. Otherwise every id can be addressed, percent-encoded.
    #[arg(long, env = "ORRERY_STRICT_IDS", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) strict_ids: Option<bool>,

    /// The request units that one range serves. A container is cut into one range for every started so
    /// many of its throughput, so with 100 the smallest one has four [default: 10000, as in the cloud
    /// service]
    #[arg(long, env = "ORRERY_RANGE_THROUGHPUT", value_name = "RU")]
    pub(crate) range_throughput: Option<i64>,

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

/// What is asked of whom, and how the answer looks.
#[derive(Args, Clone, Debug)]
pub(crate) struct QueryArguments {
    /// The database.
    pub(crate) database: String,

    /// The container.
    pub(crate) container: String,

    /// The query, such as 'SELECT * FROM c'.
    #[arg(value_name = "QUERY")]
    pub(crate) text: String,

    /// The value of a parameter of the query: '@name=JSON'. Can be given several times.
    #[arg(long = "parameter", value_name = "@NAME=JSON", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, Value)>,

    /// Ask this logical partition only: a JSON value, or an array with one for each level.
    #[arg(long, value_name = "JSON", value_parser = partition_key)]
    pub(crate) partition_key: Option<PartitionKey>,

    /// How many rows to ask for at a time [default: what the server gives, up to 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) page_size: Option<u32>,

    /// Stop after so many rows.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_rows: Option<u64>,

    /// Tell how the query would be answered instead of answering it.
    #[arg(long, conflicts_with_all = ["page_size", "max_rows", "metrics"])]
    pub(crate) explain: bool,

    /// Tell what the answer cost, on standard error.
    #[arg(long)]
    pub(crate) metrics: bool,

    /// How rows look [default: ndjson, or text with --explain]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// What can be done with scripts.
#[derive(Debug, Subcommand)]
pub(crate) enum ScriptCommand {
    /// Make the procedures, triggers and functions of a folder those of a container.
    ///
    /// The folder holds procedures/NAME.js, triggers/NAME.js and functions/NAME.js, each with one
    /// function. The first line of a trigger says when it runs: '// trigger: pre create', with 'pre'
    /// or 'post' and 'all', 'create', 'replace', 'update', 'upsert' or 'delete'. Scripts that are new
    /// are created, scripts that differ are replaced.
    Push(Box<ScriptPushArguments>),
    /// Call a procedure and print what it returns.
    Call(Box<ScriptCallArguments>),
    /// List the procedures, triggers and functions of a container.
    List(Box<ScriptListArguments>),
}

/// A container, named by options.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArguments {
    /// The database.
    #[arg(long, value_name = "NAME")]
    database: String,

    /// The container.
    #[arg(long, value_name = "NAME")]
    container: String,
}

impl PlaceArguments {
    pub(crate) fn place(&self) -> Place {
        Place { database: self.database.clone(), container: self.container.clone() }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ScriptPushArguments {
    /// The folder.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Delete the container's scripts that are not in the folder.
    #[arg(long)]
    pub(crate) prune: bool,

    /// Tell what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ScriptCallArguments {
    /// The procedure.
    pub(crate) name: String,

    /// What it is given: one JSON value for each of its parameters.
    #[arg(value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    pub(crate) arguments: Vec<Value>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// The logical partition that it runs in: a JSON value, or an array with one for each level.
    #[arg(long, value_name = "JSON", value_parser = partition_key, allow_negative_numbers = true)]
    pub(crate) partition_key: PartitionKey,

    /// Tell on standard error what the procedure writes with console.log.
    #[arg(long)]
    pub(crate) log: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ScriptListArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// What can be done with ranges.
#[derive(Debug, Subcommand)]
pub(crate) enum RangeCommand {
    /// List the ranges of a container: id, first key, first key behind it, version, ancestors.
    List(Box<RangeListArguments>),
    /// Split a range in two, while it is in use.
    ///
    /// Clients go on as they are: those that work range by range learn that the range is gone, and
    /// take their tokens to the two that follow it.
    Split(Box<RangeSplitArguments>),
    /// Make one range of two that lie side by side, while they are in use.
    Merge(Box<RangeMergeArguments>),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RangeListArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RangeSplitArguments {
    /// The range, by its id.
    pub(crate) range: String,

    /// The first key of the second half, in hexadecimal [default: where the data is halved]
    #[arg(long, value_name = "KEY")]
    pub(crate) at: Option<String>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RangeMergeArguments {
    /// One range, by its id.
    pub(crate) range: String,

    /// The other one, beside it.
    pub(crate) other: String,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ExportArguments {
    /// A new folder, or '-' for the documents of one container on standard output
    /// [default: a folder named as the database]
    #[arg(value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// The database.
    #[arg(long, value_name = "NAME")]
    pub(crate) database: String,

    /// Only this container.
    #[arg(long, value_name = "NAME")]
    pub(crate) container: Option<String>,

    /// Leave out the system properties of documents (_rid, _self, _etag, _attachments, _ts).
    #[arg(long)]
    pub(crate) strip_system: bool,

    /// Go on with an export that was interrupted.
    #[arg(long)]
    pub(crate) resume: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ImportArguments {
    /// A folder that 'orrery export' wrote, a seed (.json), a file with a document on each line
    /// (.ndjson), or '-' for such lines on standard input.
    #[arg(value_name = "PATH")]
    pub(crate) input: PathBuf,

    /// Import into a database of this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<String>,

    /// Import only this container.
    #[arg(long, value_name = "NAME")]
    pub(crate) container: Option<String>,

    /// Go on with an import that was interrupted.
    #[arg(long)]
    pub(crate) resume: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ShellArguments {
    /// The database, or the container, to start in.
    #[arg(value_name = "DATABASE[.CONTAINER]")]
    pub(crate) place: Option<String>,

    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// Reads `@name=JSON`.
fn parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected @name=JSON")?;
    if !name.starts_with('@') || name.len() < 2 {
        return Err(format!("the name of a parameter starts with '@': @name, not '{name}'"));
    }
    Ok((name.to_owned(), json(value)?))
}

/// Reads a partition key: its one value, or an array of them.
pub(crate) fn partition_key(text: &str) -> Result<PartitionKey, String> {
    let components = match json(text)? {
        Value::Array(components) => components,
        component => vec![component],
    };
    PartitionKey::parse_header(&Value::from(components).to_text()).map_err(|e| e.to_string())
}

pub(crate) fn json(text: &str) -> Result<Value, String> {
    Value::parse(text.as_bytes()).map_err(|error| {
        format!("it is not JSON: {error}; a string needs its quotes: '\"{text}\"'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_a_name_and_a_value() {
        let check = |text: &str, name: &str, value: &str| {
            let (found_name, found) = parameter(text).unwrap();
            assert_eq!((found_name.as_str(), found.to_text().as_str()), (name, value), "{text}");
        };
        check("@a=1", "@a", "1");
        check("@a=\"x=y\"", "@a", "\"x=y\"");
        check("@list=[1, null]", "@list", "[1,null]");
        for (text, part) in [
            ("@a", "expected @name=JSON"),
            ("a=1", "starts with '@'"),
            ("@=1", "starts with '@'"),
            ("@a=ada", "needs its quotes: '\"ada\"'"),
        ] {
            let error = parameter(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn partition_keys_are_a_value_or_several() {
        let check = |text: &str, expected: &str| {
            assert_eq!(partition_key(text).unwrap().to_string(), expected, "{text}");
        };
        check("\"ada\"", "[\"ada\"]");
        check("[\"a\", 1]", "[\"a\",1]");
        check("null", "[null]");
        check("{}", "[{}]");
        assert!(partition_key("ada").unwrap_err().contains("quotes"));
        assert!(partition_key("{\"a\":1}").unwrap_err().contains("cannot hold"));
        assert!(partition_key("[[1]]").is_err());
    }
}
