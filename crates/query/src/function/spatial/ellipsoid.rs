//! Lengths and areas on the ellipsoid of WGS 84.

use super::geometry::{Edge, edges};
use super::sphere::{Arc, Vector, turned};
use std::f64::consts::PI;

const EQUATOR: f64 = 6_378_137.0;
const FLATTENING: f64 = 1.0 / 298.257_223_563;
const POLE: f64 = EQUATOR * (1.0 - FLATTENING);
const ECCENTRICITY_SQUARED: f64 = FLATTENING * (2.0 - FLATTENING);

/// How many rounds the inverse problem gets before the points count as nearly opposite.
const ROUNDS_MAX: usize = 100;

/// Edges are cut into pieces of at most this angle before their area is taken.
const PIECE_MAX: f64 = 0.01;

/// The direction from the centre of the earth to a longitude and latitude, in degrees.
pub(super) fn direction(longitude: f64, latitude: f64) -> Vector {
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    let from_axis = latitude.cos();
    Vector {
        x: from_axis * longitude.cos(),
        y: from_axis * longitude.sin(),
        z: (1.0 - ECCENTRICITY_SQUARED) * latitude.sin(),
    }
    .unit()
}

fn longitude(place: Vector) -> f64 {
    place.y.atan2(place.x)
}

fn latitude(place: Vector) -> f64 {
    place.z.atan2((1.0 - ECCENTRICITY_SQUARED) * place.x.hypot(place.y))
}

/// The length of the shortest way between two places, in metres.
pub(super) fn distance(start: Vector, end: Vector) -> f64 {
    if start == end {
        return 0.0;
    }
    inverse(start, end).unwrap_or_else(|| distance_of_opposites(start, end))
}

/// The inverse problem by Vincenty's series, good to a tenth of a millimetre. Between nearly
/// opposite places it does not converge.
fn inverse(start: Vector, end: Vector) -> Option<f64> {
    let reduced = |place: Vector| ((1.0 - FLATTENING) * latitude(place).tan()).atan();
    let apart = turned(longitude(end) - longitude(start));
    let (sin1, cos1) = reduced(start).sin_cos();
    let (sin2, cos2) = reduced(end).sin_cos();
    let mut lambda = apart;
    for _ in 0..ROUNDS_MAX {
        let (sin_lambda, cos_lambda) = lambda.sin_cos();
        let sin_sigma = (cos2 * sin_lambda).hypot(cos1 * sin2 - sin1 * cos2 * cos_lambda);
        if sin_sigma == 0.0 {
            return Some(0.0);
        }
        let cos_sigma = sin1 * sin2 + cos1 * cos2 * cos_lambda;
        let sigma = sin_sigma.atan2(cos_sigma);
        let sin_alpha = cos1 * cos2 * sin_lambda / sin_sigma;
        let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
        // Along the equator there is no middle to measure from.
        let cos_middle = match cos2_alpha > 1e-15 {
            true => cos_sigma - 2.0 * sin1 * sin2 / cos2_alpha,
            false => 0.0,
        };
        let c = FLATTENING / 16.0 * cos2_alpha * (4.0 + FLATTENING * (4.0 - 3.0 * cos2_alpha));
        let middle = 2.0 * cos_middle * cos_middle - 1.0;
        let previous = lambda;
        lambda = apart
            + (1.0 - c)
                * FLATTENING
                * sin_alpha
                * (sigma + c * sin_sigma * (cos_middle + c * cos_sigma * middle));
        if lambda.abs() > PI {
            return None;
        }
        if (lambda - previous).abs() < 1e-14 {
            return Some(arc_length(sigma, cos2_alpha, cos_middle));
        }
    }
    None
}

fn arc_length(sigma: f64, cos2_alpha: f64, cos_middle: f64) -> f64 {
    let (sin_sigma, cos_sigma) = sigma.sin_cos();
    let u = cos2_alpha * (EQUATOR * EQUATOR - POLE * POLE) / (POLE * POLE);
    let a = 1.0 + u / 16_384.0 * (4_096.0 + u * (-768.0 + u * (320.0 - 175.0 * u)));
    let b = u / 1_024.0 * (256.0 + u * (-128.0 + u * (74.0 - 47.0 * u)));
    let middle = 2.0 * cos_middle * cos_middle - 1.0;
    let correction = b
        * sin_sigma
        * (cos_middle
            + b / 4.0
                * (cos_sigma * middle
                    - b / 6.0
                        * cos_middle
                        * (4.0 * sin_sigma * sin_sigma - 3.0)
                        * (4.0 * cos_middle * cos_middle - 3.0)));
    POLE * a * (sigma - correction)
}

/// The distance of nearly opposite places. Every way between them crosses the great circle half-way,
/// so the distance is the least sum of two ways that meet on it, and those converge.
fn distance_of_opposites(start: Vector, end: Vector) -> f64 {
    let axis = (start - end).unit();
    let first = axis.any_normal();
    let second = axis.cross(first);
    let by_way_of = |angle: f64| {
        let middle = first * angle.cos() + second * angle.sin();
        let ways = inverse(start, middle).zip(inverse(middle, end));
        ways.map_or(f64::INFINITY, |(there, onwards)| there + onwards)
    };
    const SAMPLES: u32 = 72;
    let step = 2.0 * PI / f64::from(SAMPLES);
    let sampled = (0..SAMPLES).map(|sample| f64::from(sample) * step);
    let best = sampled.min_by(|left, right| by_way_of(*left).total_cmp(&by_way_of(*right)));
    let best = best.unwrap_or(0.0);
    by_way_of(least(best - step, best + step, by_way_of))
}

/// The distance from a place to the nearest of an arc, in metres.
pub(super) fn distance_to_arc(place: Vector, arc: Arc) -> f64 {
    if arc.start == arc.end {
        return distance(place, arc.start);
    }
    let length = |fraction: f64| distance(place, arc.at(fraction));
    let inner = length(least(0.0, 1.0, length));
    inner.min(length(0.0)).min(length(1.0))
}

/// Where a function with one valley is least, by golden section.
fn least(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let mut left = high - RATIO * (high - low);
    let mut right = low + RATIO * (high - low);
    let (mut at_left, mut at_right) = (function(left), function(right));
    for _ in 0..60 {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - RATIO * (high - low);
            at_left = function(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + RATIO * (high - low);
            at_right = function(right);
        }
    }
    (low + high) / 2.0
}

// ---- areas ----

/// Proportional to the area between the equator and a latitude.
fn zone(sin_latitude: f64) -> f64 {
    let e = ECCENTRICITY_SQUARED.sqrt();
    let s = sin_latitude;
    (1.0 - ECCENTRICITY_SQUARED) * (s / (1.0 - ECCENTRICITY_SQUARED * s * s) + (e * s).atanh() / e)
}

/// The latitude on the sphere of equal area.
fn authalic(place: Vector) -> f64 {
    (zone(latitude(place).sin()) / zone(1.0)).clamp(-1.0, 1.0).asin()
}

/// The area of the whole ellipsoid, in square metres.
pub(super) fn area_of_earth() -> f64 {
    2.0 * PI * EQUATOR * EQUATOR * zone(1.0)
}

/// The area on the left of a ring, in square metres.
pub(super) fn area(ring: &[Vector]) -> f64 {
    let mut below = 0.0;
    let mut turns = 0.0;
    for arc in edges::<Arc>(ring) {
        let pieces = (arc.start.angle(arc.end) / PIECE_MAX).ceil().max(1.0);
        let mut start = arc.start;
        for piece in 1..=(pieces as usize) {
            let end = arc.at(piece as f64 / pieces);
            let apart = turned(longitude(end) - longitude(start));
            below += excess(apart, authalic(start), authalic(end));
            turns += apart;
            start = end;
        }
    }
    // A ring around a pole goes once around the axis; what lies between it and the equator is then
    // missing from a hemisphere instead of being the area itself.
    let around_pole = turns.abs() > PI;
    let sphere = 4.0 * PI;
    let area = (if around_pole { 2.0 * PI } else { 0.0 }) - below;
    area.rem_euclid(sphere) / sphere * area_of_earth()
}

/// The area between a piece of a great circle and the equator, on the unit sphere.
fn excess(apart: f64, latitude1: f64, latitude2: f64) -> f64 {
    let (t1, t2) = ((latitude1 / 2.0).tan(), (latitude2 / 2.0).tan());
    2.0 * ((apart / 2.0).tan() * (t1 + t2)).atan2(1.0 + t1 * t2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: (f64, f64), end: (f64, f64), metres: f64) {
        let found = distance(direction(start.0, start.1), direction(end.0, end.1));
        assert!((found - metres).abs() < 2e-3, "{found}");
    }

    /// Known geodesics: a degree at the equator, a degree of the meridian, the quarter of the
    /// meridian, half of the meridian for opposite places.
    #[test]
    fn distances_are_geodesics() {
        check((0.0, 0.0), (1.0, 0.0), 111_319.490_8);
        check((0.0, 0.0), (0.0, 1.0), 110_574.388_6);
        check((0.0, 0.0), (0.0, 90.0), 10_001_965.729_3);
        check((10.0, 0.0), (-170.0, 0.0), 20_003_931.458_6);
        check((0.0, 90.0), (50.0, -90.0), 20_003_931.458_6);
        check((10.0, 20.0), (-170.0, -20.0), 20_003_931.458_6);
    }

    /// Close to the place opposite, the answer must join the one at it without a step.
    #[test]
    fn nearly_opposite_places_have_a_distance() {
        let opposite = distance(direction(0.0, 0.0), direction(180.0, 0.0));
        let near = distance(direction(0.0, 0.0), direction(179.9, 0.05));
        assert!(near < opposite && near > opposite - 20_000.0, "{near} {opposite}");
    }

    #[test]
    fn areas_are_those_of_the_service() {
        let ring = |places: &[(f64, f64)]| -> Vec<Vector> {
            places.iter().map(|place| direction(place.0, place.1)).collect()
        };
        let sample = ring(&[(31.8, -5.0), (32.0, -5.0), (32.0, -4.7), (31.8, -4.7), (31.8, -5.0)]);
        assert!((area(&sample) / 735_970_283.05 - 1.0).abs() < 1e-9);
        let reversed: Vec<Vector> = sample.iter().rev().copied().collect();
        let complement = area(&reversed);
        assert!((complement + area(&sample) - area_of_earth()).abs() < 1.0);
        // An eighth of the earth, with the pole on its edge; and the cap around the pole.
        let eighth = ring(&[(0.0, 0.0), (90.0, 0.0), (0.0, 90.0), (0.0, 0.0)]);
        assert!((area(&eighth) * 8.0 / area_of_earth() - 1.0).abs() < 1e-6);
        let half = ring(&[(0.0, 0.0), (90.0, 0.0), (180.0, 0.0), (-90.0, 0.0), (0.0, 0.0)]);
        assert!((area(&half) * 2.0 / area_of_earth() - 1.0).abs() < 1e-9);
    }
}
