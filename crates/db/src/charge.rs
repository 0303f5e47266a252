//! What a request costs, in request units.
//!
//! The charge is counted by the code that does the work and is shaped after the service's
//! published table: a point read of 1 KiB costs 1 unit, a fully indexed create of a small document
//! 5 to 7. Size is interpolated in the table, every indexed term adds a little. The same request on
//! the same data always costs the same.

use std::ops::{Add, AddAssign};

/// Request units.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Charge(f64);

impl Charge {
    /// Nothing.
    pub const ZERO: Charge = Charge(0.0);
    /// The least that any request costs.
    pub const MINIMUM: Charge = Charge(1.0);
    /// What a change of metadata costs.
    pub const METADATA_WRITE: Charge = Charge(4.95);
    /// What reading metadata costs.
    pub const METADATA_READ: Charge = Charge(2.0);
    /// What a query costs before it has done anything, for each range it visits.
    pub const QUERY_BASE: Charge = Charge(2.3);

    /// What a query costs for a document of which it read no more than an index entry.
    pub(crate) const ENTRY: Charge = Charge(0.01);

    /// The units, rounded to the two decimals that the protocol carries.
    pub fn ru(self) -> f64 {
        (self.0 * 100.0).round() / 100.0
    }

    /// So many units.
    pub(crate) fn of_ru(ru: f64) -> Self {
        Self(ru)
    }

    /// A point read.
    pub fn read(size_bytes: usize) -> Self {
        Self(interpolate(&READ, size_bytes))
    }

    /// A create of a document with so many indexed terms.
    pub fn create(size_bytes: usize, terms: u32) -> Self {
        Self(interpolate(&WRITE, size_bytes) + PER_TERM * f64::from(terms))
    }

    /// A replace: the old document's terms go, the new one's come.
    pub fn replace(size_bytes: usize, terms_before: u32, terms: u32) -> Self {
        let terms = f64::from(terms_before) + f64::from(terms);
        Self(2.0 * interpolate(&WRITE, size_bytes) + PER_TERM * terms)
    }

    /// What a patch costs on top of a replace.
    pub fn patch_operations(count: usize) -> Self {
        Self(0.4 * count as f64)
    }

    /// A delete.
    pub fn delete(size_bytes: usize, terms: u32) -> Self {
        Self(interpolate(&WRITE, size_bytes) + PER_TERM * f64::from(terms))
    }

    /// Loading a document for a query or feed; cheaper than a point read, which pays for the trip.
    pub fn load(size_bytes: usize) -> Self {
        Self(0.05 * interpolate(&READ, size_bytes))
    }

    /// Handing a document out in a query or feed.
    pub fn output(size_bytes: usize) -> Self {
        Self(0.5 * size_bytes as f64 / 1024.0)
    }
}

impl Add for Charge {
    type Output = Charge;
    fn add(self, other: Charge) -> Charge {
        Charge(self.0 + other.0)
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Charge) {
        self.0 += other.0;
    }
}

impl std::iter::Sum for Charge {
    fn sum<I: Iterator<Item = Charge>>(charges: I) -> Charge {
        charges.fold(Charge::ZERO, |sum, charge| sum + charge)
    }
}

const PER_TERM: f64 = 0.2;

/// Published charges by size in KiB (server.md 8.1): reads, then fully indexed writes.
const READ: [(f64, f64); 12] = [
    (1.0, 1.0),
    (2.0, 1.04),
    (4.0, 1.14),
    (8.0, 1.33),
    (16.0, 1.67),
    (32.0, 2.19),
    (64.0, 4.76),
    (128.0, 9.95),
    (256.0, 20.28),
    (512.0, 40.95),
    (1024.0, 145.9),
    (2048.0, 291.8),
];
const WRITE: [(f64, f64); 12] = [
    (1.0, 4.95),
    (2.0, 6.29),
    (4.0, 6.67),
    (8.0, 7.04),
    (16.0, 9.52),
    (32.0, 11.23),
    (64.0, 22.67),
    (128.0, 48.19),
    (256.0, 98.29),
    (512.0, 184.57),
    (1024.0, 625.0),
    (2048.0, 1250.0),
];

fn interpolate(table: &[(f64, f64)], size_bytes: usize) -> f64 {
    let kib = size_bytes as f64 / 1024.0;
    let mut below = table[0];
    for &point in table {
        if kib <= point.0 {
            if point.0 <= below.0 {
                return point.1;
            }
            let share = (kib - below.0) / (point.0 - below.0);
            return below.1 + share * (point.1 - below.1);
        }
        below = point;
    }
    below.1 * kib / below.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_follow_the_published_table() {
        assert_eq!(Charge::read(100).ru(), 1.0);
        assert_eq!(Charge::read(1024).ru(), 1.0);
        assert_eq!(Charge::read(64 * 1024).ru(), 4.76);
        assert_eq!(Charge::read(3 * 1024).ru(), 1.09);
        assert_eq!(Charge::create(1024, 0).ru(), 4.95);
        assert_eq!(Charge::create(500, 5).ru(), 5.95);
        assert_eq!(Charge::create(2048 * 1024, 0).ru(), 1250.0);
    }

    #[test]
    fn charges_grow_with_size() {
        let mut last = Charge::ZERO;
        for size in (0..3_000_000).step_by(997) {
            let charge = Charge::read(size);
            assert!(charge >= last, "{size}");
            last = charge;
        }
    }
}
