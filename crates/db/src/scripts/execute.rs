//! Runs procedures, and writes with triggers, as one transaction each.
//!
//! What runs is given as [`Work`]: it may be run more than once, because a run whose commit loses a
//! race against other writers is thrown away and made again. The scripts then see the same time and
//! the same chance, but the newest documents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::hmac;
use script::{Limits, Pace, Script, Surroundings};
use storage::{RangeStore, Snapshot, SubmitError};
use value::{PartitionKey, ScriptKind};

use super::host::ScriptHost;
use super::transaction::{Place, ScriptTransaction};
use crate::charge::Charge;
use crate::clock::Deadline;
use crate::container::Container;
use crate::database::Db;
use crate::documents::Failure;
use crate::session::{Position, Session};
use crate::{Error, Kind, Result};

/// How often a run that lost a race is made again.
const RERUNS: usize = 3;

/// The service's limit for a script.
pub(crate) const SCRIPT_MS: u64 = 5_000;
/// From here on a script is told to come to its end.
const CLOSING_MS: u64 = 4_000;

/// The execution of a procedure.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name or resource id of the procedure.
    pub procedure: String,
    /// The list of parameters, a JSON text; empty for none.
    pub parameters: String,
    /// What the script may read of the request, by name.
    pub headers: Vec<(String, String)>,
    /// Whether the client wants the log.
    pub is_logging: bool,
}

/// What a procedure gave.
#[derive(Clone, Debug)]
pub struct Called {
    /// The body of the answer, a JSON text; none when the script did not set one.
    pub body: Option<String>,
    /// What the script wrote to the log, when the client wants it; not encoded.
    pub log: Option<String>,
    /// Where it was served.
    pub at: Position,
    /// What it cost.
    pub charge: Charge,
}

/// Something to do in the transaction of a script.
pub(crate) trait Work<P: Snapshot>: Send + Sync + 'static {
    type Output: Send + 'static;

    /// Does it. After an error nothing of it is kept.
    fn run(&self, host: &mut ScriptHost<P>, surroundings: &Surroundings) -> Result<Self::Output>;
}

/// What came of a work, and where it was committed.
pub(crate) struct Done<T> {
    pub(crate) output: T,
    pub(crate) at: Position,
    pub(crate) charge: Charge,
}

impl<S: RangeStore> Db<S> {
    /// Executes a stored procedure on one logical partition.
    pub async fn execute(
        &self,
        container: &Arc<Container>,
        key: Option<&PartitionKey>,
        call: Call,
        session: Option<&Session>,
    ) -> Result<Called, Failure> {
        let source = match script::system_procedure(&call.procedure) {
            Some(source) => source.to_owned(),
            None => {
                let found = container.scripts.find(ScriptKind::Procedure, &call.procedure)?;
                found.source().to_owned()
            }
        };
        let key = match container.full_key(key)? {
            Some(key) => key,
            None if container.policies.partition_key.system_key => container.undefined_key(),
            None => {
                let told = "PartitionKey value must be supplied for this operation.";
                return Err(Error::bad_request(told).into());
            }
        };
        let place = Place::of(container, key)?;
        let done = self.run_scripts(place, session, Procedure { source, call }).await?;
        let Done { output, at, charge } = done;
        if let Some(rejection) = output.rejection {
            // As in the service, the procedure counts as done all the same.
            tracing::debug!(rejection, "a procedure's promise was rejected");
        }
        Ok(Called { body: output.body, log: output.log, at, charge })
    }

    /// Runs a work and commits what it wrote.
    pub(crate) async fn run_scripts<W: Work<S::Snapshot>>(
        &self,
        place: Place,
        session: Option<&Session>,
        work: W,
    ) -> Result<Done<W::Output>, Failure> {
        let _turn = self.executor.turn(place.container.rid, &place.partition).await?;
        let work = Arc::new(work);
        let now_ms = self.clock.now_ms();
        let seed = self.script_seed(&place, now_ms);
        let mut place = place;
        let mut lost = 0;
        while lost <= RERUNS {
            let (container, range) = (place.container.clone(), place.range.clone());
            let transaction = self.store.begin(range.storage)?;
            if let Some(session) = session {
                session.check(&container.position(&range, transaction.snapshot().lsn()))?;
            }
            let txn = ScriptTransaction::new(transaction, place.clone(), self.clock.now_s())?;
            let deadline = Arc::new(Deadline::new(self.clock.clone()));
            let waiting = Waiting::default();
            let surroundings = surroundings(&deadline, &waiting, now_ms, seed);
            let mut host = ScriptHost::new(txn, deadline, now_ms, self.signing.clone());
            let running = work.clone();
            let run = move || (running.run(&mut host, &surroundings), host);
            let (ran, host) = self.executor.run(run).await?;
            let txn = host.txn;
            let charge = Charge::MINIMUM + txn.charge;
            let read_at = container.position(&range, txn.lsn());
            let output = match ran {
                Ok(output) => output,
                Err(error) => return Err(Failure { error, at: Some(read_at), charge }),
            };
            if txn.is_read_only() {
                return Ok(Done { output, at: read_at, charge });
            }
            let (transaction, commit) = txn.into_commit();
            let submitted = range.gate.pass(|| self.store.commit_with(transaction, commit));
            let Some(submitted) = submitted else {
                // What it read is being handed over to other ranges.
                range.gate.decided().await;
                let now = self.container_now(container.rid).ok_or_else(Error::not_found)?;
                place = Place::of(&now, place.key)?;
                continue;
            };
            match submitted.await {
                Ok(committed) => {
                    let at = container.position(&range, committed.lsn);
                    return Ok(Done { output, at, charge });
                }
                Err(SubmitError::Storage(storage::Error::Conflict)) => lost += 1,
                Err(SubmitError::Refused(changed, _)) => {
                    lost += 1;
                    tracing::debug!(
                        reason = changed.0,
                        "the writes of a script came out differently"
                    );
                }
                Err(SubmitError::Storage(error)) => return Err(error.into()),
            }
        }
        Err(Error::new(
            Kind::RetryWith,
            "Conflicting request to resource has been attempted. Retry to avoid conflicts.",
        )
        .into())
    }

    /// Where the chance of a script starts: elsewhere for every execution.
    fn script_seed(&self, place: &Place, now_ms: u64) -> u64 {
        let mut context = hmac::Context::with_key(&self.signing);
        for part in [place.range.storage.0, place.range.take_script_number(), now_ms] {
            context.update(&part.to_be_bytes());
        }
        let tag = context.sign();
        let first = tag.as_ref().first_chunk().expect("a tag has 32 bytes");
        u64::from_be_bytes(*first)
    }
}

/// Whether anybody still waits for a script.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn surroundings(
    deadline: &Arc<Deadline>,
    waiting: &Waiting,
    now_ms: u64,
    seed: u64,
) -> Surroundings {
    let (deadline, is_left) = (deadline.clone(), waiting.0.clone());
    let pace = move || match deadline.spent_ms() {
        _ if is_left.load(Ordering::Relaxed) => Pace::Over,
        SCRIPT_MS.. => Pace::Over,
        CLOSING_MS.. => Pace::Closing,
        _ => Pace::OnTime,
    };
    Surroundings { pace: Arc::new(pace), now_ms: Arc::new(move || now_ms), seed }
}

struct Procedure {
    source: String,
    call: Call,
}

impl<P: Snapshot> Work<P> for Procedure {
    type Output = script::Outcome;

    fn run(&self, host: &mut ScriptHost<P>, surroundings: &Surroundings) -> Result<Self::Output> {
        let Call { procedure, parameters, headers, is_logging } = &self.call;
        let script = Script { id: procedure, source: &self.source };
        let headers = borrowed(headers);
        let procedure =
            script::Procedure { parameters, headers: &headers, is_logging: *is_logging };
        let ran = script::run_procedure(script, procedure, host, &Limits::STANDARD, surroundings);
        ran.map_err(|error| host.failure(&error))
    }
}

/// Headers in the form in which scripts are given them.
pub(crate) fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}
