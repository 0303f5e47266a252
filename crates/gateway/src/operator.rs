//! Pages for whoever runs the server: is it there, is it well, what does it do.
//!
//! None needs a signature, so none says anything about the data but how much there is.

use db::{Db, Result};
use storage::RangeStore;
use value::{Object, Value};

use crate::metrics::{Exposition, Metrics};
use crate::response::Answer;
use crate::router::Page;

/// What the pages are made of.
pub(crate) struct Operator<'a, S: RangeStore> {
    pub db: &'a Db<S>,
    pub metrics: &'a Metrics,
    /// The certificate that clients should trust.
    pub trust_pem: &'a str,
    /// The URL by which the page was asked for.
    pub endpoint: &'a str,
}

impl<S: RangeStore> Operator<'_, S> {
    /// Makes a page.
    pub(crate) fn page(&self, page: Page) -> Result<Answer> {
        match page {
            Page::Alive => Ok(Answer::page(PLAIN, "alive\n")),
            // Counting asks every range, so a storage engine that refuses to serve shows here.
            Page::Ready => self.db.stats().map(|_| Answer::page(PLAIN, "ready\n")),
            Page::Status => self.status(),
            Page::Metrics => self.figures(),
            Page::Certificate => {
                Ok(Answer::page("application/x-pem-file", self.trust_pem.to_owned()))
            }
            Page::Explorer => Ok(Answer::page("text/html; charset=utf-8", self.explorer())),
        }
    }

    fn status(&self) -> Result<Answer> {
        let stats = self.db.stats()?;
        let status = Object::from([
            ("status", Value::from("ready")),
            ("server", Value::from("Orrery")),
            ("version", Value::from(env!("CARGO_PKG_VERSION"))),
            ("databases", Value::from(stats.databases)),
            ("containers", Value::from(stats.containers)),
            ("documents", Value::from(stats.documents)),
            ("documentBytes", Value::from(stats.bytes)),
            ("connections", Value::from(self.metrics.connections_open())),
        ]);
        Ok(Answer::object(200, &status))
    }

    fn figures(&self) -> Result<Answer> {
        let stats = self.db.stats()?;
        let mut page = Exposition { text: self.metrics.render() };
        for (name, help, value) in [
            ("orrery_databases", "Databases.", stats.databases as f64),
            ("orrery_containers", "Containers.", stats.containers as f64),
            ("orrery_documents", "Documents, expired ones included.", stats.documents as f64),
            ("orrery_document_bytes", "Size of all documents as text.", stats.bytes as f64),
        ] {
            page.single(name, "gauge", help, value);
        }
        Ok(Answer::page("text/plain; version=0.0.4; charset=utf-8", page.text))
    }

    /// The endpoint holds nothing that HTML would take for markup: see [`crate::account`].
    fn explorer(&self) -> String {
        let (endpoint, version) = (self.endpoint, env!("CARGO_PKG_VERSION"));
        format!(
            "<!doctype html>\n\
             <html lang=\"en\">\n\
             <head><meta charset=\"utf-8\"><title>Orrery</title></head>\n\
             <body>\n\
             <h1>Orrery is running</h1>\n\
             <p>Version {version}, a document database that speaks the Azure Cosmos DB for NoSQL \
             protocol.</p>\n\
             <p>Endpoint: <code>{endpoint}</code>. Connect with any Azure Cosmos DB SDK in gateway \
             mode, with this endpoint and the account key that the server was started with.</p>\n\
             <p>Clients that check certificates should trust \
             <a href=\"/_explorer/emulator.pem\">the server's authority</a>. \
             See also <a href=\"/status\">status</a> and <a href=\"/metrics\">metrics</a>.</p>\n\
             </body>\n\
             </html>\n"
        )
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
