//! Throughput: what a database or container is provisioned with.
//!
//! Offers are stored, checked and echoed as the service does; they decide how many ranges a container
//! gets, at first and when they are raised, and what `meter` lets it use.

use std::sync::Arc;

use storage::RangeStore;
use value::{ContainerRid, Object, OfferRid, Value};

use crate::catalog::Catalog;
use crate::database::Db;
use crate::meta::{Change, MetaKind, Settings};
use crate::resource::{Resource, Stamp};
use crate::{Error, Result};

/// The throughput of a database or container, in request units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Throughput {
    Manual(i64),
    /// Scales between a tenth of the maximum and the maximum.
    Autoscale {
        max: i64,
        increment_percent: Option<i64>,
    },
}

/// A change between the two forms that the client asks for by a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Migrate {
    ToAutoscale,
    ToManual,
}

const MANUAL_MIN: i64 = 400;
const AUTOSCALE_MIN: i64 = 1_000;
const MAX: i64 = 1_000_000;
/// More ranges than the service's highest throughput asks for are not made of throughput.
const RANGES_MAX: i64 = 100;

/// How many request units one range serves: a container has one for every started so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeThroughput(i64);

impl RangeThroughput {
    /// What can be chosen. A container of the least throughput has four ranges at most.
    pub const BOUNDS: std::ops::RangeInclusive<i64> = 100..=MAX;

    /// Ranges that serve so many units each, if that can be chosen.
    pub fn new(units: i64) -> Option<Self> {
        Self::BOUNDS.contains(&units).then_some(Self(units))
    }
}

impl Default for RangeThroughput {
    /// What a range of the service serves.
    fn default() -> Self {
        Self(10_000)
    }
}

impl Throughput {
    /// What a container gets that asks for nothing.
    pub(crate) const DEFAULT: Throughput = Throughput::Manual(MANUAL_MIN);

    /// The throughput, if the service would take it.
    pub(crate) fn checked(self) -> Result<Self> {
        let (value, min, step) = match self {
            Throughput::Manual(value) => (value, MANUAL_MIN, 100),
            Throughput::Autoscale { max, .. } => (max, AUTOSCALE_MIN, 1_000),
        };
        if value < 0 {
            return Err(Error::bad_request(format!(
                "Requested throughput {value} is less than required minimum throughput {min}"
            )));
        }
        if value < min || value > MAX || value % step != 0 {
            let what = match self {
                Throughput::Manual(_) => "throughput",
                Throughput::Autoscale { .. } => "autoscale maximum throughput",
            };
            return Err(Error::bad_request(format!(
                "The offer should have valid {what} values between {min} and {MAX} inclusive in \
                 increments of {step}. The value sent was {value}."
            )));
        }
        if let Throughput::Autoscale { increment_percent: Some(percent), .. } = self
            && !(0..=100).contains(&percent)
        {
            return Err(Error::bad_request(format!(
                "the increment percent of autoscale throughput must be between 0 and 100, not \
                 {percent}"
            )));
        }
        Ok(self)
    }

    /// How many ranges a container of this throughput is cut into.
    pub(crate) fn range_count(self, each: RangeThroughput) -> usize {
        let value = match self {
            Throughput::Manual(value) => value,
            Throughput::Autoscale { max, .. } => max,
        };
        // One for every started so many units.
        let count = (value.clamp(1, MAX) + each.0 - 1) / each.0;
        usize::try_from(count.min(RANGES_MAX)).expect("is in bounds")
    }

    /// The content of an offer.
    fn content(self, highest_ever: i64) -> Object {
        let current = match self {
            Throughput::Manual(value) => value,
            Throughput::Autoscale { max, .. } => max / 10,
        };
        let mut content = Object::from([
            ("offerThroughput", Value::from(current)),
            ("offerIsRUPerMinuteThroughputEnabled", Value::from(false)),
            (
                "offerMinimumThroughputParameters",
                Value::Object(Object::from([
                    ("maxThroughputEverProvisioned", Value::from(highest_ever)),
                    ("maxConsumedStorageEverInKB", Value::from(0)),
                ])),
            ),
        ]);
        if let Throughput::Autoscale { max, increment_percent } = self {
            let policy = Object::from([(
                "throughputPolicy",
                Value::Object(Object::from([(
                    "incrementPercent",
                    Value::from(increment_percent.unwrap_or(0)),
                )])),
            )]);
            content.insert(
                "offerAutopilotSettings",
                Value::Object(Object::from([
                    ("maxThroughput", Value::from(max)),
                    ("autoUpgradePolicy", Value::Object(policy)),
                ])),
            );
        }
        content
    }

    /// The units a second that may be used.
    pub(crate) fn units(self) -> f64 {
        self.value() as f64
    }

    fn value(self) -> i64 {
        match self {
            Throughput::Manual(value) => value,
            Throughput::Autoscale { max, .. } => max,
        }
    }

    /// Adds the offer of a new database or container.
    pub(crate) fn create(
        self,
        next: &mut Settings,
        catalog: &mut Catalog,
        change: &mut Change,
        owner: &Resource,
        stamp: &Stamp,
    ) {
        next.last_offer = (next.last_offer + 1) & 0xFF_FFFF;
        let rid = OfferRid(next.last_offer);
        let offer = build(rid, owner.self_link(), &owner.rid, self.content(self.value()), stamp);
        change.put_object(MetaKind::Offer, &offer.rid, &offer.body);
        catalog.offers.insert(rid, Arc::new(offer));
    }

    /// Reads the throughput from the content of an offer that a client sends.
    fn of_content(content: &Object, migrate: Option<Migrate>) -> Result<Self> {
        let settings = content.get("offerAutopilotSettings").filter(|value| !value.is_null());
        let manual = || {
            let value = content.get("offerThroughput").and_then(Value::as_i64);
            value.map(Throughput::Manual).ok_or_else(|| {
                Error::bad_request("the offer's content needs 'offerThroughput', a whole number")
            })
        };
        match (settings, migrate) {
            (_, Some(Migrate::ToManual)) => Ok(manual().unwrap_or(Throughput::DEFAULT)),
            (None, Some(Migrate::ToAutoscale)) => {
                let Throughput::Manual(value) = manual()? else { unreachable!("is manual") };
                let max = ((value + 999) / 1_000 * 1_000).max(AUTOSCALE_MIN);
                Ok(Throughput::Autoscale { max, increment_percent: None })
            }
            (None, None) => manual(),
            (Some(settings), _) => {
                let max = settings.get("maxThroughput").and_then(Value::as_i64);
                let max = max.ok_or_else(|| {
                    Error::bad_request("autoscale settings need 'maxThroughput', a whole number")
                })?;
                let percent = settings
                    .get("autoUpgradePolicy")
                    .and_then(|policy| policy.get("throughputPolicy"))
                    .and_then(|policy| policy.get("incrementPercent"))
                    .and_then(Value::as_i64);
                Ok(Throughput::Autoscale { max, increment_percent: percent })
            }
        }
    }
}

impl<S: RangeStore> Db<S> {
    /// All offers.
    pub fn offers(&self) -> Vec<Resource> {
        self.catalog.load().offers.values().map(|offer| self.shown(offer)).collect()
    }

    /// The offer of a resource id.
    pub fn offer(&self, rid: &str) -> Result<Resource> {
        let rid = OfferRid::parse(rid).map_err(|_| Error::not_found())?;
        let catalog = self.catalog.load();
        catalog.offers.get(&rid).map(|offer| self.shown(offer)).ok_or_else(Error::not_found)
    }

    /// Whether ranges have still to be split for an offer.
    pub fn is_pending(&self, offer: &Resource) -> bool {
        let rid = offer.body.get("offerResourceId").and_then(Value::as_str);
        let rid = rid.and_then(|rid| ContainerRid::parse(rid).ok());
        let container = rid.and_then(|rid| self.container_now(rid));
        container.is_some_and(|container| self.is_scaling(&container))
    }

    /// An offer as clients see it: it tells whether the server is still at work on it.
    fn shown(&self, offer: &Resource) -> Resource {
        let mut shown = offer.clone();
        if self.is_pending(offer) {
            let mut body = Object::clone(&shown.body);
            let content = body.get("content").and_then(Value::as_object).cloned();
            let mut content = content.unwrap_or_default();
            content.insert("isOfferReplacePending", true);
            body.insert("content", Value::Object(content));
            shown.body = body.into();
        }
        shown
    }

    /// Changes the throughput of a database or container.
    pub async fn replace_offer(
        &self,
        rid: &str,
        body: &Object,
        if_match: Option<&str>,
        migrate: Option<Migrate>,
    ) -> Result<Resource> {
        let rid = OfferRid::parse(rid).map_err(|_| Error::not_found())?;
        let content = body.get("content").and_then(Value::as_object);
        let content = content.ok_or_else(|| {
            Error::bad_request("the offer needs 'content', an object with its throughput")
        })?;
        let throughput = Throughput::of_content(content, migrate)?.checked()?;
        let settings = self.lock_settings().await;
        let mut catalog = Catalog::clone(&self.catalog.load());
        let current = catalog.offers.get(&rid).cloned().ok_or_else(Error::not_found)?;
        current.check_match(if_match)?;
        for fixed in ["resource", "offerResourceId", "id"] {
            if body.get(fixed).is_some_and(|sent| Some(sent) != current.body.get(fixed)) {
                return Err(Error::bad_request(format!("'{fixed}' of an offer cannot be changed")));
            }
        }
        let text = |name: &str| {
            current.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut next = settings.clone();
        let stamp = self.stamp(&mut next);
        let highest = highest_ever(&current).max(throughput.value());
        let offer = build(
            rid,
            &text("resource"),
            &text("offerResourceId"),
            throughput.content(highest),
            &stamp,
        );
        let mut change = Change::default();
        change.put_object(MetaKind::Offer, &offer.rid, &offer.body);
        catalog.offers.insert(rid, Arc::new(offer.clone()));
        self.publish(settings, next, catalog, change).await?;
        Ok(offer)
    }

    /// The least throughput that this offer can be set to.
    pub fn minimum_throughput(&self, offer: &Resource) -> i64 {
        let content = offer.body.get("content").and_then(Value::as_object);
        let autoscale = content.is_some_and(|content| content.contains("offerAutopilotSettings"));
        let highest = highest_ever(offer);
        if autoscale { AUTOSCALE_MIN.max(highest / 10) } else { MANUAL_MIN.max(highest / 100) }
    }
}

/// Removes the offer of a database or container that goes.
pub(crate) fn remove(catalog: &mut Catalog, change: &mut Change, self_link: &str) {
    if let Some((rid, offer)) = catalog.offer_of(self_link) {
        change.delete(MetaKind::Offer, &offer.rid);
        catalog.offers.remove(&rid);
    }
}

/// The throughput that an offer gives.
pub(crate) fn throughput_of(offer: &Resource) -> Option<Throughput> {
    let content = offer.body.get("content").and_then(Value::as_object)?;
    Throughput::of_content(content, None).ok()
}

fn highest_ever(offer: &Resource) -> i64 {
    let content = offer.body.get("content");
    let parameters = content.and_then(|content| content.get("offerMinimumThroughputParameters"));
    let highest = parameters.and_then(|p| p.get("maxThroughputEverProvisioned"));
    highest.and_then(Value::as_i64).unwrap_or(0)
}

fn build(
    rid: OfferRid,
    resource: &str,
    resource_rid: &str,
    content: Object,
    stamp: &Stamp,
) -> Resource {
    let rid = rid.to_string();
    let user = Object::from([
        ("resource", Value::from(resource)),
        ("offerType", Value::from("Invalid")),
        ("offerResourceId", Value::from(resource_rid)),
        ("offerVersion", Value::from("V2")),
        ("content", Value::Object(content)),
        ("id", Value::from(rid.as_str())),
    ]);
    let self_link = format!("offers/{rid}/");
    Resource::build(user, rid, self_link, &[], stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_checked_as_the_service_does() {
        let autoscale = |max| Throughput::Autoscale { max, increment_percent: Some(0) };
        for good in [Throughput::Manual(400), Throughput::Manual(1_000_000), autoscale(1_000)] {
            assert_eq!(good.checked(), Ok(good));
        }
        for bad in [
            Throughput::Manual(300),
            Throughput::Manual(450),
            Throughput::Manual(1_000_100),
            autoscale(900),
            autoscale(1_500),
        ] {
            let error = bad.checked().unwrap_err();
            assert!(error.message.contains("inclusive in increments of"), "{error}");
        }
        let error = autoscale(-200).checked().unwrap_err();
        assert!(error.message.contains("less than required minimum throughput 1000"), "{error}");
    }

    #[test]
    fn a_range_for_every_started_ten_thousand() {
        let each = RangeThroughput::default();
        for (value, ranges) in
            [(400, 1), (10_000, 1), (10_100, 2), (30_000, 3), (25_100, 3), (MAX, 100)]
        {
            assert_eq!(Throughput::Manual(value).range_count(each), ranges, "{value}");
        }
        let autoscale = Throughput::Autoscale { max: 11_000, increment_percent: None };
        assert_eq!(autoscale.range_count(each), 2);
        let small = RangeThroughput::new(100).unwrap();
        for (value, ranges) in [(400, 4), (500, 5), (MAX, 100)] {
            assert_eq!(Throughput::Manual(value).range_count(small), ranges, "{value}");
        }
        assert_eq!(RangeThroughput::new(99), None);
        assert_eq!(RangeThroughput::new(MAX + 1), None);
    }
}
