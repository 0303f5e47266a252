//! Throughput that is enforced, where the operator wants it: who uses more than is provisioned is told
//! to come back later.
//!
//! A range has an even share of its container's throughput; containers that share the throughput of
//! their database share one meter. A request is admitted as long as there is anything left, and what
//! it cost is taken off afterwards, so that one costly request makes the next ones wait. Units that
//! are not used within a second are lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use storage::RangeStore;
use value::DatabaseRid;

use crate::charge::Charge;
use crate::container::Container;
use crate::database::Db;
use crate::offer::{self, Throughput};
use crate::scan::{self, Scope};
use crate::session::Position;
use crate::{Error, Kind, Result};

/// Counts the request units that are used.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Balance>);

#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    /// When it was last looked at; nothing as long as it was not.
    at_ms: Option<u64>,
    units: f64,
}

impl Meter {
    /// How long to wait, if there is nothing left.
    fn wait_ms(&self, now_ms: u64, per_second: f64) -> Option<u64> {
        let units = self.change(now_ms, per_second, 0.0);
        // Whole milliseconds, and at least one.
        (units <= 0.0).then(|| 1 + (-units / per_second * 1_000.0) as u64)
    }

    /// Takes units off; what is left is the result.
    fn change(&self, now_ms: u64, per_second: f64, spent: f64) -> f64 {
        let mut balance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = match balance.at_ms {
            None => per_second,
            Some(at_ms) => now_ms.saturating_sub(at_ms) as f64 / 1_000.0 * per_second,
        };
        balance.units = (balance.units + gained).min(per_second) - spent;
        balance.at_ms = Some(balance.at_ms.unwrap_or(0).max(now_ms));
        balance.units
    }
}

/// The meters of databases whose containers share their throughput.
#[derive(Debug, Default)]
pub(crate) struct SharedMeters(Mutex<HashMap<DatabaseRid, Arc<Meter>>>);

impl SharedMeters {
    fn of(&self, database: DatabaseRid) -> Arc<Meter> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.entry(database).or_default().clone()
    }
}

/// What a container may use.
enum Allowance {
    /// Each of its ranges, in units a second.
    Range(f64),
    /// All containers of its database together.
    Shared(Arc<Meter>, f64),
    /// Without an offer nothing is limited.
    Unlimited,
}

impl<S: RangeStore> Db<S> {
    /// Refuses a request about documents if the ranges that it is about have used up what they may.
    pub fn check_rate(&self, container: &Container, scope: &Scope) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let wait_ms = match self.allowance(container) {
            Allowance::Unlimited => None,
            Allowance::Shared(meter, units) => meter.wait_ms(now_ms, units),
            Allowance::Range(units) => {
                let ranges = scan::ranges_of(container, scope)?;
                ranges.iter().filter_map(|range| range.meter.wait_ms(now_ms, units)).max()
            }
        };
        match wait_ms {
            None => Ok(()),
            Some(wait_ms) => Err(Error {
                wait_ms: Some(wait_ms),
                ..Error::new(
                    Kind::TooManyRequests,
                    "Request rate is large. More Request Units may be needed, so no changes were \
                     made. Please retry this request later. Learn more: \
                     http://aka.ms/cosmosdb-error-429",
                )
            }),
        }
    }

    /// Takes off what a request cost, where it was served.
    pub fn spend(&self, container: &Container, at: &[Position], charge: Charge) {
        let now_ms = self.clock.now_ms();
        match self.allowance(container) {
            Allowance::Unlimited => {}
            Allowance::Shared(meter, units) => {
                meter.change(now_ms, units, charge.ru());
            }
            Allowance::Range(units) => {
                let is_served = |id: &str| at.iter().any(|at| at.range == id);
                let served = container.ranges.iter().filter(|range| is_served(&range.id));
                let share = charge.ru() / served.clone().count().max(1) as f64;
                for range in served {
                    range.meter.change(now_ms, units, share);
                }
            }
        }
    }

    fn allowance(&self, container: &Container) -> Allowance {
        let catalog = self.catalog.load();
        let units = |self_link: &str| {
            let (_, offer) = catalog.offer_of(self_link)?;
            offer::throughput_of(offer).map(Throughput::units)
        };
        if let Some(units) = units(&container.self_link) {
            return Allowance::Range(units / container.ranges.len() as f64);
        }
        let database = catalog.database(&container.database_id);
        match database.and_then(|database| units(database.resource.self_link())) {
            Some(units) => Allowance::Shared(self.shared_meters.of(container.database_rid), units),
            None => Allowance::Unlimited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_comes_back_with_time() {
        let meter = Meter::default();
        assert_eq!(meter.wait_ms(1_000, 400.0), None);
        // A costly request is admitted as long as anything is left.
        assert_eq!(meter.change(1_000, 400.0, 600.0), -200.0);
        assert_eq!(meter.wait_ms(1_000, 400.0), Some(501));
        assert_eq!(meter.wait_ms(1_250, 400.0), Some(251));
        assert_eq!(meter.wait_ms(1_501, 400.0), None);
        // Nothing is saved up beyond a second.
        assert_eq!(meter.change(60_000, 400.0, 0.0), 400.0);
        // A clock that goes back gives nothing.
        assert_eq!(meter.change(59_000, 400.0, 10.0), 390.0);
    }
}
