use proptest::prelude::*;
use query::{Limits, Options, prepare};
use std::convert::Infallible;

use super::*;

fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn point(longitude: f64, latitude: f64) -> Value {
    json(&format!(r#"{{"type":"Point","coordinates":[{longitude},{latitude}]}}"#))
}

fn polygon(ring: &str) -> Value {
    json(&format!(r#"{{"type":"Polygon","coordinates":[{ring}]}}"#))
}

/// Whether a lookup finds what stands under these cells.
fn finds(spans: &Option<Vec<Span>>, cells: &[u64]) -> bool {
    let Some(spans) = spans else { return true };
    let is_in = |cell: u64, span: &Span| match span {
        Span::Exactly(value) => *value == Value::from(cell),
        Span::Between {
            low: std::ops::Bound::Included(low),
            high: std::ops::Bound::Included(high),
        } => {
            let cell = cell as f64;
            low.as_f64().unwrap() <= cell && cell <= high.as_f64().unwrap()
        }
        other => panic!("no span of cells: {other:?}"),
    };
    cells.iter().any(|cell| spans.iter().any(|span| is_in(*cell, span)))
}

/// What is stored depends on these numbers.
#[test]
fn cells_keep_their_numbers() {
    let numbers = [
        ((0.0, 0.0), 422_212_465_065_985),
        ((13.377704, 52.516275), 1_638_447_122_444_365),
        ((-122.12, 47.66), 1_199_178_569_382_935),
        ((180.0, -17.5), 2_007_891_448_048_161),
        ((-180.0, -17.5), 2_007_891_448_048_161),
        ((0.0, 90.0), 1_548_112_371_908_609),
        ((0.0, -90.0), 3_236_962_232_172_545),
    ];
    let found = numbers.map(|((x, y), _)| ((x, y), covering(&point(x, y))[0]));
    assert_eq!(found, numbers);
    let square = polygon("[[10,50],[11,50],[11,51],[10,51],[10,50]]");
    let cells = [
        1_638_654_577_475_584,
        1_638_663_167_410_176,
        1_638_671_757_344_768,
        1_638_680_347_279_360,
        1_638_758_998_867_968,
        1_638_771_615_334_400,
        1_638_775_910_301_696,
        1_639_410_491_719_680,
        1_639_419_081_654_272,
        1_639_427_671_588_864,
        1_639_436_261_523_456,
        1_639_478_137_454_592,
        1_639_487_801_131_008,
        1_639_513_570_934_784,
        1_639_530_750_803_968,
        1_639_582_290_411_520,
    ];
    assert_eq!(covering(&square), cells);
}

#[test]
fn the_cells_inside_a_cell_are_one_run() {
    let mut cell = Cell::around(outline::direction([13.4, 52.5]));
    assert_eq!(cell.inside(), (cell.number(), cell.number()));
    while let Some(parent) = cell.parent() {
        let (first, last) = parent.inside();
        let mut next = first;
        for child in parent.children() {
            assert_eq!(child.parent(), Some(parent));
            let (child_first, child_last) = child.inside();
            assert_eq!(child_first, next);
            // Between two quarters is one number, in the middle that of the whole.
            next = child_last + 2;
        }
        assert_eq!(next, last + 2);
        assert!(parent.children().contains(&cell));
        cell = parent;
    }
    assert!(Cell { face: 5, level: 0, at: [0, 0] }.inside().1 < 1 << 52);
}

#[test]
fn some_shapes_reach_everywhere() {
    for ring in [
        // Clockwise: all but the square.
        "[[0,0],[0,1],[1,1],[1,0],[0,0]]",
        // A bow tie.
        "[[0,0],[2,2],[2,0],[0,2],[0,0]]",
        // There and back again.
        "[[0,0],[1,0],[0,0],[0,0]]",
        // The northern hemisphere, and a little less.
        "[[0,0],[90,0],[180,0],[-90,0],[0,0]]",
        "[[0,5],[90,5],[180,5],[-90,5],[0,5]]",
        // Two squares that are joined by a way which is walked twice.
        "[[0,0],[1,0],[1,1],[5,1],[5,0],[6,0],[6,2],[5,2],[5,1],[1,1],[0,1],[0,0]]",
        // Opposite places have no one way between them.
        "[[0,0],[180,0],[90,10],[0,0]]",
    ] {
        assert_eq!(covering(&polygon(ring)), [WORLD], "{ring}");
        assert_eq!(lookup(&polygon(ring), 0.0), None, "{ring}");
    }
    let line = json(r#"{"type":"LineString","coordinates":[[0,0],[180,0]]}"#);
    assert_eq!(covering(&line), [WORLD]);
    assert_eq!(lookup(&point(0.0, 0.0), 1.5e7), None);
    for none in ["1", "{}", "[1,2]", r#"{"type":"Point","coordinates":[0,91]}"#] {
        assert_eq!(covering(&json(none)), [0u64; 0], "{none}");
    }
}

/// A lookup is of use when it leaves most of the world out.
#[test]
fn cells_are_not_much_larger_than_shapes() {
    let square = polygon("[[10,50],[10.1,50],[10.1,50.1],[10,50.1],[10,50]]");
    let pacific = polygon("[[179,-1],[-179,-1],[-179,1],[179,1],[179,-1]]");
    let arctic = polygon("[[0,80],[90,80],[180,80],[-90,80],[0,80]]");
    let line = json(r#"{"type":"LineString","coordinates":[[10,50],[11,51],[12,50.5]]}"#);
    for (shape, inside, outside) in [
        (&square, point(10.05, 50.05), [point(10.2, 50.05), point(10.05, 49.9)]),
        (&pacific, point(180.0, 0.0), [point(177.0, 0.0), point(180.0, 3.0)]),
        (&arctic, point(45.0, 89.0), [point(45.0, 70.0), point(-100.0, 72.0)]),
        (&line, point(11.0, 51.0), [point(11.0, 50.5), point(12.5, 51.2)]),
    ] {
        let cells = covering(shape);
        assert!(cells.len() <= COVER_MAX && !cells.contains(&WORLD), "{shape} {cells:?}");
        let spans = lookup(shape, 0.0);
        assert!(spans.is_some() && finds(&spans, &covering(&inside)), "{shape}");
        assert!(finds(&lookup(&inside, 0.0), &cells), "{shape}");
        for outside in outside {
            assert!(!finds(&spans, &covering(&outside)), "{shape} {outside}");
            assert!(!finds(&lookup(&outside, 1_000.0), &cells), "{shape} {outside}");
        }
    }
    // A circle of a kilometre.
    let spans = lookup(&point(10.0, 50.0), 1_000.0);
    assert!(finds(&spans, &covering(&point(10.0, 50.0089))));
    assert!(!finds(&spans, &covering(&point(10.0, 50.02))));
    assert!(spans.is_some_and(|spans| spans.len() < 100));
}

// ---- the law ----

/// Places of all kinds: anywhere, around the poles, around the date line, close together, on a grid.
fn place() -> impl Strategy<Value = [f64; 2]> {
    prop_oneof![
        (-180.0..=180.0, -90.0..=90.0).prop_map(|(x, y)| [x, y]),
        (-180.0..=180.0, 85.0..=90.0f64, any::<bool>())
            .prop_map(|(x, y, north)| { [x, if north { y } else { -y }] }),
        (-1.0..=1.0, -60.0..=60.0).prop_map(|(x, y)| wrapped([180.0 + x, y])),
        (7.0..=7.01, 51.0..=51.01).prop_map(|(x, y)| [x, y]),
        (-18..=18, -9..=9).prop_map(|(x, y)| [f64::from(x) * 10.0, f64::from(y) * 10.0]),
    ]
}

fn wrapped([x, y]: [f64; 2]) -> [f64; 2] {
    let x = if x > 180.0 {
        x - 360.0
    } else if x < -180.0 {
        x + 360.0
    } else {
        x
    };
    [x, y.clamp(-90.0, 90.0)]
}

/// From a few metres to a good part of the earth.
fn size() -> impl Strategy<Value = f64> {
    (-4.5..1.7f64).prop_map(|power| 10f64.powf(power))
}

fn positions(positions: &[[f64; 2]]) -> Value {
    let pair = |position: &[f64; 2]| {
        Value::from(position.iter().map(|c| Value::from(*c)).collect::<Vec<_>>())
    };
    Value::from(positions.iter().map(pair).collect::<Vec<_>>())
}

/// A ring around a place, of random radii; some are drawn the wrong way.
fn ring() -> impl Strategy<Value = Value> {
    let radii = prop::collection::vec(0.3..1.0f64, 3..9);
    (place(), size(), radii, 0..8).prop_map(|([x, y], size, radii, way)| {
        let count = radii.len() as f64;
        let mut ring: Vec<[f64; 2]> = radii
            .iter()
            .enumerate()
            .map(|(at, radius)| {
                let angle = at as f64 / count * std::f64::consts::TAU;
                wrapped([x + size * radius * angle.cos(), y + size * radius * angle.sin()])
            })
            .collect();
        ring.push(ring[0]);
        if way == 0 {
            ring.reverse();
        }
        positions(&ring)
    })
}

/// A square of the grid: many share edges and meridians.
fn grid_square() -> impl Strategy<Value = Value> {
    (-18..18, -9..9, 1..3).prop_map(|(x, y, size)| {
        let west = f64::from(x) * 10.0;
        let south = f64::from(y) * 10.0;
        let east = (west + f64::from(size) * 10.0).min(180.0);
        let north = (south + f64::from(size) * 10.0).min(90.0);
        positions(&[[west, south], [east, south], [east, north], [west, north], [west, south]])
    })
}

fn shape() -> impl Strategy<Value = Value> {
    let of = |kind: &'static str, coordinates: Value| {
        Value::Object([("type", Value::from(kind)), ("coordinates", coordinates)].into())
    };
    let line = (place(), size(), prop::collection::vec((-1.0..1.0f64, -1.0..1.0f64), 1..5));
    let line = line.prop_map(|([x, y], size, steps)| {
        let step = |(dx, dy): &(f64, f64)| wrapped([x + size * dx, y + size * dy]);
        positions(&[vec![[x, y]], steps.iter().map(step).collect()].concat())
    });
    prop_oneof![
        2 => place().prop_map(move |[x, y]| point(x, y)),
        2 => line.prop_map(move |line| of("LineString", line)),
        3 => ring().prop_map(move |ring| of("Polygon", vec![ring].into())),
        1 => grid_square().prop_map(move |ring| of("Polygon", vec![ring].into())),
        1 => (ring(), grid_square()).prop_map(move |(one, other)| {
            of("MultiPolygon", vec![Value::from(vec![one]), Value::from(vec![other])].into())
        }),
    ]
}

fn answer(function: &str, left: &Value, right: &Value) -> Option<Value> {
    let parameters = [("@l".to_owned(), left.clone()), ("@r".to_owned(), right.clone())];
    let options = Options::new(0, 0, Limits::memory(1 << 24));
    let prepared = prepare(&format!("SELECT VALUE {function}(@l, @r)"), &parameters, &options);
    // What cannot be answered finds nothing.
    prepared.unwrap().run([] as [Result<Value, Infallible>; 0]).ok()?.pop()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_shape_is_missed(stored in shape(), wanted in shape(), more in 0.0..1_000.0f64) {
        let cells = covering(&stored);
        prop_assert!(!cells.is_empty() && cells.len() <= COVER_MAX);
        prop_assert!(finds(&lookup(&stored, 0.0), &cells));
        let distance = answer("ST_DISTANCE", &stored, &wanted).unwrap().as_f64().unwrap();
        for distance in [distance, distance + more, distance * (1.0 + more)] {
            prop_assert!(finds(&lookup(&wanted, distance), &cells), "{distance}");
        }
        let yes = Some(Value::from(true));
        let is_met = answer("ST_INTERSECTS", &stored, &wanted) == yes
            || answer("ST_WITHIN", &stored, &wanted) == yes
            || answer("ST_WITHIN", &wanted, &stored) == yes;
        prop_assert!(!is_met || finds(&lookup(&wanted, 0.0), &cells));
    }
}
