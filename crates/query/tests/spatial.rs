//! Spatial functions: the cases where the earth is not a plane, and those where it is.

use query::{Geospatial, Limits, Options, prepare};
use std::convert::Infallible;
use value::Value;

fn answer(expression: &str) -> Option<Value> {
    answer_in(Geospatial::Geography, expression)
}

fn answer_in(geospatial: Geospatial, expression: &str) -> Option<Value> {
    let query = format!("SELECT VALUE {expression}");
    let options = Options { geospatial, ..Options::new(0, 0, Limits::memory(1 << 20)) };
    let prepared = prepare(&query, &[], &options).unwrap_or_else(|error| panic!("{error}"));
    let documents = std::iter::empty::<Result<Value, Infallible>>();
    prepared.run(documents).unwrap_or_else(|error| panic!("{error:?}")).pop()
}

#[track_caller]
fn check(expression: &str, expected: &str) {
    let found = answer(expression).map_or("undefined".to_owned(), |value| value.to_text());
    assert_eq!(found, expected, "{expression}");
}

#[track_caller]
fn near(expression: &str, expected: f64, tolerance: f64) {
    let found = answer(expression).and_then(|value| value.as_f64());
    let found = found.unwrap_or_else(|| panic!("{expression} has no number"));
    assert!((found - expected).abs() <= tolerance, "{expression}: {found}");
}

fn point(longitude: f64, latitude: f64) -> String {
    format!("{{type: 'Point', coordinates: [{longitude}, {latitude}]}}")
}

fn line(places: &str) -> String {
    format!("{{type: 'LineString', coordinates: [{places}]}}")
}

fn polygon(rings: &str) -> String {
    format!("{{type: 'Polygon', coordinates: [{rings}]}}")
}

const SQUARE: &str = "[[0,0],[10,0],[10,10],[0,10],[0,0]]";
const SQUARE_CLOCKWISE: &str = "[[0,0],[0,10],[10,10],[10,0],[0,0]]";

fn within(inner: &str, outer: &str) -> String {
    format!("ST_WITHIN({inner}, {outer})")
}

#[test]
fn a_boundary_is_not_within_but_intersects() {
    let square = polygon(SQUARE);
    for (longitude, latitude) in [(0.0, 5.0), (0.0, 0.0), (5.0, 0.0)] {
        let place = point(longitude, latitude);
        check(&within(&place, &square), "false");
        check(&format!("ST_INTERSECTS({place}, {square})"), "true");
        check(&format!("ST_DISTANCE({place}, {square})"), "0");
    }
    // A great circle between two places of one parallel bends towards the pole.
    check(&within(&point(5.0, 10.02), &square), "true");
    check(&within(&point(5.0, 10.2), &square), "false");
}

#[test]
fn a_clockwise_ring_encloses_the_rest_of_the_earth() {
    let rest = polygon(SQUARE_CLOCKWISE);
    check(&within(&point(5.0, 5.0), &rest), "false");
    check(&within(&point(-120.0, 40.0), &rest), "true");
    check(&within(&point(-175.0, -5.0), &rest), "true");
    check(&format!("ST_AREA({rest}) > 5e14"), "true");
}

#[test]
fn holes_are_out_whichever_way_they_are_drawn() {
    for hole in ["[[4,4],[4,6],[6,6],[6,4],[4,4]]", "[[4,4],[6,4],[6,6],[4,6],[4,4]]"] {
        let ring = polygon(&format!("{SQUARE},{hole}"));
        check(&within(&point(5.0, 5.0), &ring), "false");
        check(&within(&point(2.0, 2.0), &ring), "true");
        let around = polygon("[[3,3],[7,3],[7,7],[3,7],[3,3]]");
        check(&within(&around, &ring), "false");
        check(&format!("ST_AREA({ring}) < ST_AREA({})", polygon(SQUARE)), "true");
    }
}

#[test]
fn the_antimeridian_and_the_poles_are_no_borders() {
    let pacific = polygon("[[170,-10],[-170,-10],[-170,10],[170,10],[170,-10]]");
    check(&within(&point(180.0, 0.0), &pacific), "true");
    check(&within(&point(-175.0, 3.0), &pacific), "true");
    check(&within(&point(0.0, 0.0), &pacific), "false");
    let arctic = polygon("[[0,80],[90,80],[180,80],[-90,80],[0,80]]");
    check(&within(&point(45.0, 89.0), &arctic), "true");
    check(&within(&point(0.0, 90.0), &arctic), "true");
    check(&within(&point(45.0, 70.0), &arctic), "false");
}

#[test]
fn lines_and_polygons_lie_within() {
    let square = polygon(SQUARE);
    check(&within(&line("[1,1],[9,9]"), &square), "true");
    check(&within(&line("[1,1],[11,1]"), &square), "false");
    check(&within(&line("[0,1],[0,9]"), &square), "false");
    check(&within(&square, &square), "true");
    check(&within(&polygon("[[0,0],[5,0],[5,5],[0,5],[0,0]]"), &square), "true");
    check(&within(&polygon("[[5,5],[15,5],[15,15],[5,15],[5,5]]"), &square), "false");
    // Both ends lie in the horseshoe, the way between them does not.
    let horseshoe = polygon("[[0,0],[10,0],[10,10],[7,10],[7,3],[3,3],[3,10],[0,10],[0,0]]");
    check(&within(&line("[1,8],[9,8]"), &horseshoe), "false");
}

#[test]
fn distances_go_to_the_nearest_point() {
    let square = polygon(SQUARE);
    // A degree of the equator's longitude, to the end of the square.
    near(&format!("ST_DISTANCE({}, {square})", point(11.0, 0.0)), 111_319.490_8, 1e-3);
    // Straight down onto the middle of an edge that lies on the equator.
    near(&format!("ST_DISTANCE({}, {square})", point(5.0, -1.0)), 110_574.388_6, 1e-3);
    near(
        &format!("ST_DISTANCE({}, {})", line("[3,-2],[7,-2]"), line("[4,-1],[6,-1]")),
        110_500.0,
        200.0,
    );
    let apart = format!("ST_DISTANCE({square}, {})", polygon("[[12,0],[13,0],[13,1],[12,0]]"));
    near(&apart, 2.0 * 111_319.490_8, 1e-3);
    check(&format!("ST_DISTANCE({}, {square})", line("[-5,5],[15,5]")), "0");
}

#[test]
fn what_is_no_geometry_is_told() {
    check("ST_ISVALID(42)", "false");
    check("ST_ISVALID({type: 'Point', coordinates: [1]})", "false");
    check("ST_ISVALID({type: 'Circle', coordinates: [1, 2]})", "false");
    check("ST_ISVALID({type: 'Point', coordinates: [1, 2, 300]})", "true");
    check("ST_ISVALID({type: 'Point', coordinates: ['1', 2]})", "false");
    check(
        "ST_ISVALIDDETAILED({type: 'Point', coordinates: [200, 2]})",
        r#"{"valid":false,"reason":"Longitude values must be between -180 and 180 degrees."}"#,
    );
    check(
        &format!("ST_DISTANCE({}, {})", point(0.0, 0.0), polygon("[[0,0],[1,0],[0,0]]")),
        "undefined",
    );
    check("ST_AREA('x')", "undefined");
}

/// Edges on a common meridian lie in one plane, so that only rounding errors would tell on which
/// side of one the other lies. They once decided that shapes far apart crossed.
#[test]
fn shapes_on_one_meridian_meet_only_where_they_do() {
    for longitude in [-173, -101, -30, 7, 30, 77, 121, 179] {
        let (west, east) = (longitude, longitude + 1);
        let square = |south: i32| {
            let north = south + 1;
            polygon(&format!(
                "[[{west},{south}],[{east},{south}],[{east},{north}],[{west},{north}],[{west},{south}]]"
            ))
        };
        for south in [-70, -3, 0, 41] {
            let (one, other) = (square(south), square(south + 2));
            check(&format!("ST_INTERSECTS({one}, {other})"), "false");
            near(&format!("ST_DISTANCE({one}, {other})"), 111_000.0, 700.0);
            check(&format!("ST_INTERSECTS({one}, {})", square(south + 1)), "true");
        }
    }
}

/// A few metres are as round as the rest of the earth.
#[test]
fn small_shapes_are_told_apart() {
    let shed = polygon(
        "[[7.00000,51.00000],[7.00004,51.00000],[7.00004,51.00003],[7.00000,51.00003],[7.00000,51.00000]]",
    );
    check(&within(&point(7.00002, 51.00001), &shed), "true");
    check(&within(&point(7.00002, 51.000_015), &shed), "true");
    check(&within(&point(7.000_041, 51.00001), &shed), "false");
    check(&within(&point(7.0, 51.000_015), &shed), "false");
    check(&format!("ST_INTERSECTS({}, {shed})", point(7.0, 51.000_015)), "true");
    check(&within(&line("[7.00001,51.00001],[7.00003,51.00002]"), &shed), "true");
    check(&within(&line("[7.00001,51.00001],[7.00005,51.00002]"), &shed), "false");
}

// ---- the plane ----

#[track_caller]
fn check_plane(expression: &str, expected: &str) {
    let found = answer_in(Geospatial::Geometry, expression);
    let found = found.map_or("undefined".to_owned(), |value| value.to_text());
    assert_eq!(found, expected, "{expression}");
}

#[test]
fn distances_in_the_plane_are_those_of_pythagoras() {
    let square = polygon(SQUARE);
    let horseshoe = polygon("[[0,0],[10,0],[10,10],[7,10],[7,3],[3,3],[3,10],[0,10],[0,0]]");
    for (left, right, distance) in [
        (point(0.0, 0.0), point(3.0, 4.0), "5"),
        (point(1e6, -1e6), point(1e6, 1e6), "2000000"),
        (point(1.0, 1.0), point(1.0, 1.0), "0"),
        (point(5.0, 12.0), square.clone(), "2"),
        (point(13.0, 14.0), square.clone(), "5"),
        (point(5.0, 5.0), square.clone(), "0"),
        (point(5.0, 8.0), horseshoe.clone(), "2"),
        (line("[0,12],[20,12]"), square.clone(), "2"),
        (line("[12,-5],[12,20]"), line("[15,3],[16,3],[17,9]"), "3"),
        (line("[-5,5],[15,5]"), square.clone(), "0"),
        (polygon("[[4,4],[6,4],[6,6],[4,6],[4,4]]"), horseshoe, "1"),
        (polygon("[[13,14],[14,14],[14,15],[13,14]]"), square, "5"),
    ] {
        check_plane(&format!("ST_DISTANCE({left}, {right})"), distance);
        check_plane(&format!("ST_DISTANCE({right}, {left})"), distance);
    }
}

#[test]
fn what_lies_within_and_what_meets_in_the_plane() {
    // The way a ring is drawn does not matter here.
    for square in [polygon(SQUARE), polygon(SQUARE_CLOCKWISE)] {
        for (inner, is_within, is_met) in [
            (point(5.0, 5.0), "true", "true"),
            (point(5.0, 10.0), "false", "true"),
            (point(0.0, 0.0), "false", "true"),
            // No edge bends here.
            (point(5.0, 10.02), "false", "false"),
            (point(500.0, 5.0), "false", "false"),
            (line("[1,1],[9,9]"), "true", "true"),
            (line("[0,0],[10,10]"), "true", "true"),
            (line("[0,1],[0,9]"), "false", "true"),
            (line("[1,1],[11,1]"), "false", "true"),
            (line("[11,1],[11,9]"), "false", "false"),
            (line("[-5,5],[15,5]"), "false", "true"),
            (polygon("[[0,0],[5,0],[5,5],[0,5],[0,0]]"), "true", "true"),
            (polygon("[[5,5],[15,5],[15,15],[5,15],[5,5]]"), "false", "true"),
            (polygon("[[-5,-5],[15,-5],[15,15],[-5,15],[-5,-5]]"), "false", "true"),
            (polygon("[[10,0],[20,0],[20,10],[10,10],[10,0]]"), "false", "true"),
            (polygon("[[11,0],[20,0],[20,10],[11,10],[11,0]]"), "false", "false"),
        ] {
            check_plane(&within(&inner, &square), is_within);
            check_plane(&format!("ST_INTERSECTS({inner}, {square})"), is_met);
            check_plane(&format!("ST_INTERSECTS({square}, {inner})"), is_met);
        }
    }
    let ring = polygon(&format!("{SQUARE},[[4,4],[6,4],[6,6],[4,6],[4,4]]"));
    check_plane(&within(&point(5.0, 5.0), &ring), "false");
    check_plane(&format!("ST_INTERSECTS({}, {ring})", point(5.0, 5.0)), "false");
    check_plane(&within(&point(2.0, 5.0), &ring), "true");
    // A point of a slanted edge, in decimals that binary cannot hold.
    let slanted = polygon("[[0.1,0.1],[0.7,0.1],[0.7,0.7],[0.1,0.1]]");
    for place in [0.2, 0.3, 0.4, 0.5, 0.6] {
        check_plane(&within(&point(place, place), &slanted), "false");
        check_plane(&format!("ST_INTERSECTS({}, {slanted})", point(place, place)), "true");
    }
}

#[test]
fn areas_and_validity_in_the_plane() {
    check_plane(&format!("ST_AREA({})", polygon(SQUARE)), "100");
    check_plane(&format!("ST_AREA({})", polygon(SQUARE_CLOCKWISE)), "100");
    let ring = polygon(&format!("{SQUARE},[[4,4],[6,4],[6,6],[4,6],[4,4]]"));
    check_plane(&format!("ST_AREA({ring})"), "96");
    let two = "{type: 'MultiPolygon', coordinates: [[[[0,0],[4,0],[0,3],[0,0]]], \
               [[[1000,0],[1002,0],[1002,2],[1000,2],[1000,0]]]]}";
    check_plane(&format!("ST_AREA({two})"), "10");
    check_plane(&format!("ST_AREA({})", point(1.0, 1.0)), "0");
    check_plane(&format!("ST_ISVALID({})", point(1000.0, -1000.0)), "true");
    check_plane(&format!("ST_ISVALID({})", polygon("[[0,0],[1,0],[0,0]]")), "false");
    check_plane(
        "ST_ISVALIDDETAILED({type: 'Point', coordinates: [1]})",
        r#"{"valid":false,"reason":"A position must have two coordinates."}"#,
    );
    check_plane("ST_ISVALID(42)", "false");
    check_plane("ST_DISTANCE('x', {type: 'Point', coordinates: [1, 2]})", "undefined");
}
