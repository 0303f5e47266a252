//! The way of a request: it goes down once and comes back once.
//!
//! Route, signature and headers are checked before a byte of the body is kept; then the body is read,
//! the database does the work, and the answer is written. A fault of ours ends the request that hit
//! it, with a 500 and a line in the log, and nothing else.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use db::{Clock, Container, Db, Error, Kind};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LOCATION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use storage::RangeStore;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::{self, Rules, Signed};
use crate::authority::Authority;
use crate::compute::Compute;
use crate::config::Config;
use crate::documents::{self, Documents};
use crate::headers::{Headers, Name};
use crate::listen::{self, BodyError, Handler, Limits, Scheme, Source};
use crate::metadata::Metadata;
use crate::metrics::{Answered, Metrics};
use crate::operator::Operator;
use crate::request::{self, Action, Context, Options};
use crate::response::{self, Answer, Refused};
use crate::router::{self, ContainerPath, ContainerTarget, Route, Target};
use crate::tls::{Tls, TlsError};
use crate::{account, cors, dtc};

/// The HTTP side of a database.
pub struct Gateway<S: RangeStore> {
    db: Arc<Db<S>>,
    config: Config,
    tls: Tls,
    compute: Compute,
    metrics: Metrics,
    /// Whether the server is about to stop: for requests that wait for something.
    stopping: watch::Sender<bool>,
}

/// The database's clock, for certificates.
struct DbClock<S: RangeStore>(Arc<Db<S>>);

impl<S: RangeStore> Clock for DbClock<S> {
    fn now_ms(&self) -> u64 {
        self.0.clock().now_ms()
    }
}

/// A request whose head is in order.
#[derive(Debug)]
struct Admitted {
    target: Target,
    action: Action,
    authority: Authority,
    options: Options,
    /// The URL by which the client came, for those answers that say it.
    endpoint: String,
}

/// What is known about a request from its start to its end.
#[derive(Debug)]
struct Exchange {
    context: Context,
    started: Instant,
    kind: &'static str,
    charge_ru: f64,
}

impl Exchange {
    fn start(head: &Parts, headers: &Headers<'_>) -> Self {
        let context = Context::new(headers, head.uri.path());
        Self { context, started: Instant::now(), kind: "other", charge_ru: 0.0 }
    }

    fn render(&mut self, result: Result<Answer, Refused>) -> Response<Bytes> {
        let took = self.started.elapsed();
        match result {
            Ok(answer) => {
                self.charge_ru = answer.charge.ru();
                response::render(answer, &self.context, took)
            }
            Err(refused) => {
                self.charge_ru = refused.charge.ru();
                response::render_error(refused, &self.context, took)
            }
        }
    }
}

impl<S: RangeStore> Gateway<S> {
    /// A gateway to a database; makes or loads the certificate.
    pub fn new(db: Arc<Db<S>>, config: Config) -> Result<Self, TlsError> {
        let clock = Arc::new(DbClock(db.clone()));
        let tls = Tls::new(&config.certificate, config.public_host.as_deref(), clock)?;
        let (compute, metrics) = (Compute::new(), Metrics::default());
        Ok(Self { db, config, tls, compute, metrics, stopping: watch::Sender::new(false) })
    }

    /// The certificate that clients should trust, in PEM.
    pub fn trust_pem(&self) -> &str {
        &self.tls.trust_pem
    }

    /// Serves a port until told to stop, then lets the requests under way finish.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let limits = Limits::new(self.config.connections_max);
        let stopping = self.stopping.clone();
        let shutdown = async move {
            shutdown.await;
            stopping.send_replace(true);
        };
        listen::serve(listener, self.tls.server.clone(), self, limits, shutdown).await
    }

    /// Answers a request that is in memory as a whole: for tests, and for whoever has no socket.
    pub async fn respond(&self, request: Request<Bytes>, scheme: Scheme) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        self.exchange(&head, scheme, Source::Whole(body)).await
    }

    async fn exchange(&self, head: &Parts, scheme: Scheme, body: Source) -> Response<Bytes> {
        let headers = Headers::new(&head.headers);
        let mut exchange = Exchange::start(head, &headers);
        let mut response = match cors::preflight(&self.config.cors, &head.method, &head.headers) {
            Some(response) => response,
            None => {
                let answer = self.answer(&mut exchange, head, &headers, scheme, body);
                let result = catch_panic(answer).await.unwrap_or_else(|message| {
                    self.metrics.panicked();
                    tracing::error!(message, path = head.uri.path(), "a request hit a fault");
                    let told = "the server hit a fault of its own; see its log";
                    Err(Error::new(Kind::Internal, told).into())
                });
                let mut response = exchange.render(result);
                if let Ok(location) = HeaderValue::try_from(self.location(head, scheme)) {
                    response.headers_mut().insert(CONTENT_LOCATION, location);
                }
                response
            }
        };
        cors::expose(&self.config.cors, &head.headers, response.headers_mut());
        let (status, took) = (response.status().as_u16(), exchange.started.elapsed());
        let Exchange { kind, charge_ru, context, .. } = exchange;
        self.metrics.answered(Answered { kind, status, charge_ru, took });
        tracing::debug!(
            method = %head.method, path = head.uri.path(), status, charge_ru, ?took,
            activity_id = context.activity_id, "answered"
        );
        response
    }

    /// The URL of what was asked for, as the client reaches it.
    fn location(&self, head: &Parts, scheme: Scheme) -> String {
        let public_host = self.config.public_host.as_deref();
        let endpoint = account::endpoint(scheme, &head.uri, &head.headers, public_host);
        endpoint + head.uri.path().trim_start_matches('/')
    }

    async fn answer(
        &self,
        exchange: &mut Exchange,
        head: &Parts,
        headers: &Headers<'_>,
        scheme: Scheme,
        body: Source,
    ) -> Result<Answer, Refused> {
        let admitted = match self.admit(exchange, head, headers, scheme) {
            Ok(admitted) => admitted,
            Err(error) => {
                body.discard().await;
                return Err(error.into());
            }
        };
        let body = body.read(&head.headers).await.map_err(body_error)?;
        self.perform(&admitted, &body).await
    }

    /// Checks everything that the head of a request says.
    fn admit(
        &self,
        exchange: &mut Exchange,
        head: &Parts,
        headers: &Headers<'_>,
        scheme: Scheme,
    ) -> Result<Admitted, Error> {
        let Route { target, subject } = router::route(head.uri.path())?;
        exchange.kind = target.kind();
        let action = request::action(&head.method, &target, headers)?;
        if self.config.strict_ids {
            target.check_id()?;
        }
        let authority = self.authority(&target, &subject, head, headers)?;
        authority.check(&target, action, head)?;
        let (options, endpoint) = match target {
            // A client reads the account before it knows what the account allows.
            Target::Account | Target::Operator(_) => {
                let public_host = self.config.public_host.as_deref();
                let endpoint = account::endpoint(scheme, &head.uri, &head.headers, public_host);
                (Options::default(), endpoint)
            }
            _ => (request::options(headers, self.config.consistency)?, String::new()),
        };
        let mut options = options;
        if action == Action::Changes {
            options.changes = Some(request::changes(headers, &options)?);
        }
        if options.has_triggers() || action == Action::Execute {
            options.script_headers = headers.for_scripts();
        }
        Ok(Admitted { target, action, authority, options, endpoint })
    }

    fn authority(
        &self,
        target: &Target,
        subject: &router::Subject,
        head: &Parts,
        headers: &Headers<'_>,
    ) -> Result<Authority, Error> {
        let authorization = headers.plain(Name::Authorization);
        let is_open = match target {
            Target::Operator(_) => true,
            // Readiness probes ask without a signature, and unlike clients name no version.
            Target::Account => {
                let is_client = headers.has(Name::Version);
                authorization.is_none() && !is_client && !self.config.strict
            }
            _ => false,
        };
        if is_open {
            return Ok(Authority::Anybody);
        }
        let rules = Rules {
            keys: &self.config.keys,
            accept_test_tokens: self.config.accept_test_tokens,
            now_ms: self.db.clock().now_ms(),
        };
        let signed = Signed {
            method: head.method.as_str(),
            subject,
            authorization,
            ms_date: headers.plain(Name::MsDate),
            date: headers.plain(Name::Date),
        };
        Authority::verify(&self.db, auth::authenticate(&rules, &signed)?)
    }

    /// Does what the request asks for.
    ///
    /// A future is as large as the largest that it waits for, and it is moved more than once before it
    /// runs. So whatever waits is boxed here and below, and a point read, which waits for nothing,
    /// does not carry the room of a transaction about.
    async fn perform(&self, request: &Admitted, body: &[u8]) -> Result<Answer, Refused> {
        let Admitted { target, action, options, endpoint, .. } = request;
        if options.has_triggers() && !action.is_read() && !target.is_document() {
            return Err(Error::bad_request(
                "One of the specified inputs is invalid: triggers run with writes of documents only",
            )
            .into());
        }
        if !matches!(target, Target::Operator(_)) {
            self.db.check_open()?;
        }
        let metadata = Metadata { db: &self.db, options, action: *action, body };
        let answer = match target {
            Target::Account => {
                Answer::object(200, &account::document(endpoint, self.config.consistency))
            }
            Target::Operator(page) => {
                let (db, metrics, trust_pem) = (&*self.db, &self.metrics, self.trust_pem());
                Operator { db, metrics, trust_pem, endpoint }.page(*page)?
            }
            Target::Databases => Box::pin(metadata.databases()).await?,
            Target::Database(name) => Box::pin(metadata.database(name)).await?,
            Target::InDatabase(database, target) => {
                Box::pin(metadata.in_database(database, target)).await?
            }
            Target::Offers => metadata.offers()?,
            Target::Offer(rid) => Box::pin(metadata.offer(rid)).await?,
            Target::Transactions if action.is_read() => {
                return Box::pin(dtc::read(&self.db, options, body)).await;
            }
            Target::Transactions => return Box::pin(dtc::write(&self.db, options, body)).await,
            Target::InContainer(path, target) => {
                let container = self.container(path, target)?;
                let answer = self.in_container(request, &container, path, target, body).await;
                return match answer {
                    Ok(answer) => Ok(answer.about(&container)),
                    Err(refused) => Err(refused.about(&container)),
                };
            }
        };
        Ok(answer)
    }

    fn container(
        &self,
        path: &ContainerPath,
        target: &ContainerTarget,
    ) -> Result<Arc<Container>, Error> {
        let found = self.db.container(&path.database, &path.container);
        found.map_err(|error| match error.kind {
            // It is the owner of what is addressed that does not exist.
            Kind::NotFound if *target != ContainerTarget::Itself => Error::owner_not_found(),
            _ => error,
        })
    }

    async fn in_container(
        &self,
        request: &Admitted,
        container: &Arc<Container>,
        path: &ContainerPath,
        target: &ContainerTarget,
        body: &[u8],
    ) -> Result<Answer, Refused> {
        let Admitted { action, authority, options, .. } = request;
        let action = *action;
        authority.check_container(container, path, target, action, options)?;
        if let Some(rid) = &options.intended_container {
            self.db.check_intended(container, rid)?;
        }
        let is_metered = self.config.throttle && target.is_about_documents();
        if is_metered {
            self.db.check_rate(container, &options.scope())?;
        }
        let answer = self.answer_in(request, container, path, target, body).await;
        if is_metered {
            let (at, charge) = match &answer {
                Ok(answer) => (&answer.positions[..], answer.charge),
                Err(refused) => (refused.at(), refused.charge),
            };
            self.db.spend(container, at, charge);
        }
        answer
    }

    /// Does what a request about a container asks for, once it may.
    async fn answer_in(
        &self,
        request: &Admitted,
        container: &Arc<Container>,
        path: &ContainerPath,
        target: &ContainerTarget,
        body: &[u8],
    ) -> Result<Answer, Refused> {
        let Admitted { action, options, .. } = request;
        let action = *action;
        let (db, compute, stopping) = (&self.db, &self.compute, &self.stopping);
        let client_merges = self.config.client_merges;
        let documents = Documents { db, compute, container, options, client_merges, stopping };
        let metadata = Metadata { db: &self.db, options, action, body };
        match target {
            ContainerTarget::Itself => {
                let answer = Box::pin(metadata.container(path, container)).await?;
                Ok(Answer { is_container: action != Action::Delete, ..answer })
            }
            ContainerTarget::Documents => Box::pin(documents.all(action, body)).await,
            ContainerTarget::Document(id) => {
                let address = documents::address(container, path, id);
                match Documents::<S>::change(action, &address, body)? {
                    None => documents.read(&address),
                    Some(write) => Box::pin(documents.write(write)).await,
                }
            }
            ContainerTarget::DeletePartition => Box::pin(documents.delete_partition()).await,
            ContainerTarget::Ranges if action == Action::Execute => {
                Ok(Box::pin(metadata.recut(container)).await?)
            }
            ContainerTarget::Ranges => Ok(metadata.ranges(container)?),
            ContainerTarget::Conflicts => Ok(metadata.conflicts(container)?),
            ContainerTarget::Conflict(_) => Err(Error::not_found().into()),
            ContainerTarget::Scripts(kind) => {
                Ok(Box::pin(metadata.scripts(container, *kind)).await?)
            }
            ContainerTarget::Script(_, id) if action == Action::Execute => {
                Box::pin(documents.execute(id, body)).await
            }
            ContainerTarget::Script(kind, id) => {
                Ok(Box::pin(metadata.script(container, *kind, id)).await?)
            }
        }
    }
}

impl<S: RangeStore> Handler for Gateway<S> {
    async fn answer(&self, request: Request<Incoming>, scheme: Scheme) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        self.exchange(&head, scheme, Source::Stream(body)).await
    }

    fn connected(&self, open: bool) {
        self.metrics.connected(open);
    }
}

fn body_error(error: BodyError) -> Error {
    match error {
        BodyError::TooLarge => Error::new(Kind::TooLarge, "Request size is too large"),
        BodyError::TooSlow => {
            Error::new(Kind::Timeout, "the request's body did not arrive in time")
        }
        BodyError::Broken => Error::bad_request("the request's body is cut or wrongly framed"),
    }
}

/// Runs work to its end, or to the message of its panic.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // What a panic may leave behind is given up with the work itself.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_default()))
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let failed = catch_panic(async {
            tokio::task::yield_now().await;
            assert_eq!(7, 8, "seven");
        });
        assert!(failed.await.unwrap_err().contains("seven"));
        assert_eq!(catch_panic(async { 7 }).await, Ok(7));
    }
}
