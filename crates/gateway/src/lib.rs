//! HTTP in the Cosmos dialect.
//!
//! In reading order: `listen` accepts connections; `service` is the way of a request from its
//! first byte to its answer; [`router`] says what a path addresses; [`auth`] who is asking;
//! `headers`, `request` and `response` are where headers are read and written; `documents`, `changes`
//! and `metadata` ask the database. This crate is the only one that knows the wire protocol, and it
//! knows nothing of keys and engines.

mod account;
pub mod auth;
mod authority;
mod batch;
pub mod binary_json;
mod changes;
mod compute;
mod config;
mod consistency;
mod cors;
mod documents;
mod dtc;
mod headers;
pub mod hybrid_row;
mod keys;
mod listen;
mod metadata;
mod metrics;
mod operator;
mod query_headers;
mod request;
mod response;
pub mod router;
mod service;
mod tls;

pub use account::endpoint_of;
pub use config::{Certificate, Config, Origins};
pub use consistency::Consistency;
pub use keys::{EMULATOR_KEY, InvalidKey, Key, Keys};
pub use listen::Scheme;
pub use service::Gateway;
pub use tls::TlsError;
