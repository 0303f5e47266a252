//! Spatial functions: the cases where the earth is not a plane.

use query::{Limits, Options, prepare};
use std::convert::Infallible;
use value::Value;

fn answer(expression: &str) -> Option<Value> {
    let query = format!("SELECT VALUE {expression}");
    let options = Options::new(0, 0, Limits::memory(1 << 20));
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
