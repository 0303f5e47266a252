//! The documents of the rows about many documents: the orders of a chain of stores.
//!
//! An order is about 1 KiB with seventeen indexed terms. A store is a logical partition of about a
//! hundred orders, and store 0, a wholesaler, has one order in a hundred. How many different
//! customers, campaigns and articles there are grows with the number of orders, and the wholesaler
//! has its own: so a question is about as many orders in a small set as in a large one, and times
//! can be compared.

use crate::load::Document;

/// A set of orders, told apart by their number.
#[derive(Clone, Copy)]
pub(crate) struct Orders {
    pub(crate) count: u64,
}

/// Where a question looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The store of the wholesaler, with one order in a hundred.
    Large,
    /// Any other store, with about a hundred orders.
    Small,
    /// All stores.
    Across,
}

/// The highest total, which no order reaches.
const TOTAL_MAX: f64 = 100_000.0;

/// The orders are spread over 2025, in the order of their numbers.
const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;

const STATUS: [&str; 5] = ["new", "paid", "packed", "sent", "returned"];

const WORDS: [&str; 32] = [
    "please",
    "leave",
    "parcel",
    "behind",
    "green",
    "door",
    "ring",
    "twice",
    "before",
    "noon",
    "fragile",
    "glass",
    "gift",
    "wrap",
    "blue",
    "paper",
    "call",
    "neighbour",
    "garden",
    "second",
    "floor",
    "invoice",
    "separate",
    "delivery",
    "weekend",
    "only",
    "upstairs",
    "left",
    "spare",
    "key",
    "under",
    "stone",
];

impl Orders {
    /// Partition and id of an order.
    pub(crate) fn place(self, number: u64) -> (String, String) {
        (self.store(number), format!("order-{number}"))
    }

    pub(crate) fn order(self, number: u64) -> Document {
        let (partition, id) = self.place(number);
        let pick = |salt: u64, of: u64| mix(number, salt) % of;
        let scope = if is_wholesale(number) { Scope::Large } else { Scope::Across };
        let text = format!(
            r#"{{"id":"{id}","pk":"{partition}","customer":"{}","status":"{}","total":{},"created":"{}","address":{{"city":"{}","postcode":"{}"}},"tags":["{}","{}"],"items":[{},{}],"note":"{}"}}"#,
            self.customer(scope, mix(number, 1)),
            STATUS[pick(2, 5) as usize],
            pick(3, 400_000) as f64 / 4.0,
            self.created(number),
            city(mix(number, 4)),
            self.postcode(mix(number, 5)),
            kind(mix(number, 6)),
            self.campaign(scope, mix(number, 7)),
            self.item(scope, number, 8),
            self.item(scope, number, 20),
            note(number),
        );
        Document { partition, id, text }
    }

    fn item(self, scope: Scope, number: u64, salt: u64) -> String {
        format!(
            r#"{{"sku":"{}","category":"{}","quantity":{}}}"#,
            self.sku(scope, mix(number, salt)),
            category(mix(number, salt + 1)),
            1 + mix(number, salt + 2) % 5
        )
    }

    fn store(self, number: u64) -> String {
        if is_wholesale(number) {
            self.any_store(Scope::Large, 0)
        } else {
            self.any_store(Scope::Small, mix(number, 0))
        }
    }

    /// The partition for a question.
    pub(crate) fn any_store(self, scope: Scope, any: u64) -> String {
        match scope {
            Scope::Large => "store-0".to_owned(),
            _ => format!("store-{}", 1 + any % self.share(100)),
        }
    }

    /// How many orders there are to look at, about.
    pub(crate) fn in_scope(self, scope: Scope) -> u64 {
        match scope {
            Scope::Large => self.count.div_ceil(100),
            Scope::Small => 100.min(self.count),
            Scope::Across => self.count,
        }
    }

    /// A customer has about 20 orders.
    pub(crate) fn customer(self, scope: Scope, any: u64) -> String {
        match scope {
            Scope::Large => format!("wholesale-{}", any % self.share(2_000)),
            _ => format!("customer-{}", any % self.share(20)),
        }
    }

    /// A campaign has about 30 orders.
    pub(crate) fn campaign(self, scope: Scope, any: u64) -> String {
        match scope {
            Scope::Large => format!("fair-{}", any % self.share(3_000)),
            _ => format!("campaign-{}", any % self.share(30)),
        }
    }

    /// An article is ordered about 40 times.
    pub(crate) fn sku(self, scope: Scope, any: u64) -> String {
        match scope {
            Scope::Large => format!("pallet-{}", any % self.share(2_000)),
            _ => format!("article-{}", any % self.share(20)),
        }
    }

    /// A postcode has about 20 orders.
    pub(crate) fn postcode(self, any: u64) -> String {
        format!("{:07}", any % self.share(20))
    }

    /// The time of an order, to the millisecond; later numbers are later.
    pub(crate) fn created(self, number: u64) -> String {
        let ms = YEAR_MS * number / self.count.max(1);
        let (day, rest) = (ms / 86_400_000, ms % 86_400_000);
        let (month, day) = month_and_day(day);
        let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
        format!("2025-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
    }

    /// Two totals between which about `rows` orders of a scope lie.
    pub(crate) fn totals(self, scope: Scope, rows: u64, any: u64) -> (f64, f64) {
        let width = TOTAL_MAX * rows as f64 / self.in_scope(scope).max(1) as f64;
        let low = (TOTAL_MAX - width).max(0.0) * fraction(any);
        // Quarters, so that both servers are asked for exactly the same numbers.
        let low = (low * 4.0).floor() / 4.0;
        (low, low + width)
    }

    /// How many values there are when `orders` orders share one.
    fn share(self, orders: u64) -> u64 {
        (self.count / orders).max(1)
    }
}

pub(crate) fn status(any: u64) -> &'static str {
    STATUS[(any % 5) as usize]
}

/// A quarter of all orders is of a kind.
pub(crate) fn kind(any: u64) -> String {
    format!("kind-{}", any % 4)
}

/// An eighth of all items is of a category.
pub(crate) fn category(any: u64) -> String {
    format!("category-{}", any % 8)
}

/// One of 500 cities; as strings they sort as their numbers do.
pub(crate) fn city(any: u64) -> String {
    format!("city-{:03}", any % 500)
}

/// Spreads numbers evenly; the same every time.
pub(crate) fn mix(number: u64, salt: u64) -> u64 {
    let mut mixed = number.wrapping_add(salt.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

fn is_wholesale(number: u64) -> bool {
    number.is_multiple_of(100)
}

fn fraction(any: u64) -> f64 {
    (any >> 11) as f64 / (1_u64 << 53) as f64
}

fn note(number: u64) -> String {
    let words = (0..100).map(|at| WORDS[(mix(number, 100 + at) % 32) as usize]);
    words.collect::<Vec<_>>().join(" ")
}

/// Month and day of a day of 2025, which is no leap year.
fn month_and_day(mut day: u64) -> (u64, u64) {
    for (month, days) in (1..).zip([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if day < days {
            return (month, day + 1);
        }
        day -= days;
    }
    (12, 31)
}

#[cfg(test)]
mod tests {
    use value::Value;

    use super::*;

    #[test]
    fn an_order_is_about_a_kibibyte_of_json() {
        let orders = Orders { count: 10_000 };
        for number in 0..1_000 {
            let order = orders.order(number);
            let value = Value::parse(order.text.as_bytes()).unwrap();
            assert_eq!(value.get("id").unwrap().as_str(), Some(order.id.as_str()));
            assert_eq!(value.get("pk").unwrap().as_str(), Some(order.partition.as_str()));
            assert!((900..1_150).contains(&order.text.len()), "{}", order.text);
        }
    }

    #[test]
    fn later_numbers_are_later() {
        let orders = Orders { count: 5_000 };
        assert_eq!(orders.created(0), "2025-01-01T00:00:00.000Z");
        assert_eq!(orders.created(4_999), "2025-12-31T22:14:52.800Z");
        assert!((1..5_000).all(|number| orders.created(number - 1) < orders.created(number)));
    }

    #[test]
    fn partitions_have_the_sizes_they_should() {
        let orders = Orders { count: 20_000 };
        let mut sizes = std::collections::BTreeMap::new();
        for number in 0..orders.count {
            *sizes.entry(orders.place(number).0).or_insert(0) += 1;
        }
        assert_eq!(sizes.remove("store-0"), Some(orders.in_scope(Scope::Large)));
        assert_eq!(sizes.len(), 200);
        assert!(sizes.values().all(|size| (50..160).contains(size)), "{sizes:?}");
    }
}
