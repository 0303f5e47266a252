//! Spatial indexes: the same answers with them and without, in pages of any size, whatever happens to
//! documents and policies; and shapes in the plane.

use db::{Page, QueryText, Scope};
use storage::Embedded;
use value::Value;

use crate::support::{Documents, by_pk_with, create, delete, patch_by, upsert};

const INDEXED: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"spatialIndexes":[
    {"path":"/at/?","types":["Point","LineString","Polygon","MultiPolygon"]},
    {"path":"/places/*","types":["Point"]}]}"#;
const PLAIN: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}]}"#;

/// The ids that a query gives, fetched in pages.
fn ids(
    documents: &Documents<Embedded>,
    filter: &str,
    items_max: Option<usize>,
    insist_on_indexes: bool,
) -> Vec<String> {
    let query = QueryText {
        text: format!("SELECT VALUE c.id FROM c WHERE {filter}"),
        ..QueryText::default()
    };
    let scope = Scope { cross_partition: true, ..Scope::default() };
    let mut rows = Vec::new();
    let mut continuation = None;
    loop {
        let page = Page { items_max, continuation, insist_on_indexes, ..Page::default() };
        let answer = documents.db.query(&documents.container, &query, &scope, &page, None);
        let answer = answer.unwrap_or_else(|failure| panic!("{filter}: {failure:?}"));
        rows.extend(answer.rows.iter().map(|row| String::from_utf8_lossy(row).into_owned()));
        continuation = answer.continuation;
        if continuation.is_none() {
            return rows;
        }
    }
}

fn explained(documents: &Documents<Embedded>, filter: &str) -> Value {
    let text = format!("SELECT VALUE c.id FROM c WHERE {filter}");
    let query = QueryText { text, ..QueryText::default() };
    let scope = Scope { cross_partition: true, ..Scope::default() };
    let explained = documents.db.explain(&documents.container, &query, &scope, None);
    explained.unwrap_or_else(|failure| panic!("{filter}: {failure:?}"))
}

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.roll(1 << 20) as f64 / f64::from(1 << 20))
    }

    /// A place: anywhere, in a town, at the date line, at a pole.
    fn place(&mut self) -> (f64, f64) {
        let (x, y) = match self.roll(5) {
            0 | 1 => (self.between(7.0, 7.2), self.between(51.0, 51.2)),
            2 => (self.between(179.0, 181.0), self.between(-20.0, 20.0)),
            3 => (self.between(-180.0, 180.0), self.between(85.0, 90.0)),
            _ => (self.between(-180.0, 180.0), self.between(-90.0, 90.0)),
        };
        (if x > 180.0 { x - 360.0 } else { x }, y)
    }

    fn point(&mut self) -> String {
        let (x, y) = self.place();
        format!(r#"{{"type":"Point","coordinates":[{x},{y}]}}"#)
    }

    fn shape(&mut self) -> String {
        let (x, y) = self.place();
        let size = [0.001, 0.05, 2.0, 20.0][self.roll(4) as usize];
        let at = |dx: f64, dy: f64| {
            let x = x + dx * size;
            let x = if x > 180.0 {
                x - 360.0
            } else if x < -180.0 {
                x + 360.0
            } else {
                x
            };
            format!("[{x},{}]", (y + dy * size).clamp(-90.0, 90.0))
        };
        match self.roll(4) {
            0 => self.point(),
            1 => format!(
                r#"{{"type":"LineString","coordinates":[{},{},{}]}}"#,
                at(0.0, 0.0),
                at(1.0, 0.3),
                at(0.8, 1.0)
            ),
            _ => format!(
                r#"{{"type":"Polygon","coordinates":[[{},{},{},{}]]}}"#,
                at(-0.5, -0.5),
                at(0.6, -0.4),
                at(0.1, 0.7),
                at(-0.5, -0.5)
            ),
        }
    }

    fn document(&mut self, id: usize) -> String {
        let at = match self.roll(8) {
            0 => "null".to_owned(),
            1 => r#"{"type":"Point","coordinates":[7.1,"51"]}"#.to_owned(),
            _ => self.shape(),
        };
        let places: Vec<String> = (0..self.roll(4)).map(|_| self.point()).collect();
        format!(
            r#"{{"id":"{id}","pk":"{}","n":{},"at":{at},"places":[{}]}}"#,
            id % 7,
            self.roll(10),
            places.join(",")
        )
    }

    fn filter(&mut self) -> String {
        let (point, shape) = (self.point(), self.shape());
        let distance = [0.0, 50.0, 5_000.0, 300_000.0, 8_000_000.0][self.roll(5) as usize];
        match self.roll(7) {
            0 => format!("ST_DISTANCE(c.at, {point}) <= {distance}"),
            1 => format!("ST_DISTANCE({shape}, c.at) < {distance}"),
            2 => format!("ST_INTERSECTS(c.at, {shape})"),
            3 => format!("ST_INTERSECTS(c.at, {point}) OR ST_DISTANCE(c.at, {shape}) < {distance}"),
            4 => format!("ST_DISTANCE(c.at, {shape}) < {distance} AND c.n > 3"),
            5 => format!(
                "EXISTS(SELECT VALUE p FROM p IN c.places WHERE ST_DISTANCE(p, {point}) < {distance})"
            ),
            _ => format!("ST_DISTANCE(c.places[0], {point}) < {distance} OR c.n = 1"),
        }
    }
}

#[tokio::test]
async fn queries_answer_the_same_with_and_without_a_spatial_index() {
    let mut dice = Dice(7);
    let indexed = Documents::with_ranges(&by_pk_with(INDEXED), 3).await;
    let plain = Documents::with_ranges(&by_pk_with(PLAIN), 3).await;
    let both = [&indexed, &plain];
    for number in 0..100 {
        let body = dice.document(number);
        for documents in both {
            documents.must(&format!("[\"{}\"]", number % 7), create(&body)).await;
        }
    }
    for _ in 0..40 {
        let number = dice.roll(100) as usize;
        let key = format!("[\"{}\"]", number % 7);
        let write = dice.roll(3);
        let body = dice.document(number);
        for documents in both {
            if write == 0 {
                let _ = documents.write(&key, delete(&number.to_string())).await;
            } else {
                documents.must(&key, upsert(&body)).await;
            }
        }
    }
    indexed.verify();
    let mut found = 0;
    for _ in 0..50 {
        let filter = dice.filter();
        let mut expected = ids(&plain, &filter, None, false);
        expected.sort();
        found += expected.len();
        for (items_max, insists) in [(None, true), (Some(3), true), (None, false)] {
            let mut got = ids(&indexed, &filter, items_max, insists);
            got.sort();
            assert_eq!(got, expected, "{filter}, pages of {items_max:?}, by index {insists}");
        }
    }
    assert!(found > 300, "the queries find too little: {found}");
}

#[tokio::test]
async fn a_spatial_index_is_used_where_it_serves() {
    let documents = Documents::new(&by_pk_with(INDEXED)).await;
    for number in 0..200 {
        let (x, y) = (f64::from(number % 20), f64::from(number / 20));
        let body = format!(
            r#"{{"id":"{number}","pk":"a","at":{{"type":"Point","coordinates":[{x},{y}]}},
                "elsewhere":{{"type":"Point","coordinates":[{x},{y}]}}}}"#
        );
        documents.must(r#"["a"]"#, create(&body)).await;
    }
    let near = |path: &str| {
        format!("ST_DISTANCE(c.{path}, {{type: 'Point', coordinates: [3, 3]}}) < 20000")
    };
    let access = |filter: &str| {
        let explained = explained(&documents, filter);
        explained.get("access").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    assert!(access(&near("at")).contains("of /at/? are looked up"), "{}", access(&near("at")));
    assert!(!access(&near("elsewhere")).contains("looked up"), "{}", access(&near("elsewhere")));
    for path in ["at", "elsewhere"] {
        assert_eq!(ids(&documents, &near(path), None, false), [r#""63""#]);
    }
    let inside = "ST_WITHIN(c.at, {type: 'Polygon', coordinates: \
                  [[[2.5,2.5],[4.5,2.5],[4.5,3.5],[2.5,3.5],[2.5,2.5]]]})";
    assert!(access(inside).contains("of /at/? are looked up"), "{}", access(inside));
    assert_eq!(ids(&documents, inside, Some(1), false).len(), 2);
}

/// An index that comes and goes, with the documents that change meanwhile.
#[tokio::test]
async fn a_spatial_index_can_be_added_and_removed() {
    let mut documents = Documents::new(&by_pk_with(PLAIN)).await;
    let mut dice = Dice(11);
    for number in 0..30 {
        documents.must(&format!("[\"{}\"]", number % 7), create(&dice.document(number))).await;
    }
    let near = "ST_DISTANCE(c.at, {type: 'Point', coordinates: [7.1, 51.1]}) < 50000";
    let expected = ids(&documents, near, None, true);
    for policy in [INDEXED, PLAIN, INDEXED] {
        documents.redefine(&by_pk_with(policy)).await;
        let moved =
            r#"[{"op":"set","path":"/at","value":{"type":"Point","coordinates":[7.1,51.1]}}]"#;
        documents.must(r#"["0"]"#, patch_by("0", moved)).await;
        let pace = db::Pace { commits: 1, documents: 7 };
        while documents.db.reindex(pace).await.unwrap() {
            documents.verify();
            let mut got = ids(&documents, near, Some(3), true);
            got.retain(|id| id != r#""0""#);
            let mut expected: Vec<_> = expected.clone();
            expected.retain(|id| id != r#""0""#);
            got.sort();
            expected.sort();
            assert_eq!(got, expected);
        }
        documents.verify();
    }
    assert!(explained(&documents, near).to_text().contains("/at/?"));
}

#[tokio::test]
async fn shapes_may_lie_in_a_plane() {
    let plane = Documents::new(&by_pk_with(
        r#""geospatialConfig":{"type":"Geometry"},
           "indexingPolicy":{"includedPaths":[{"path":"/*"}],"spatialIndexes":[
             {"path":"/at/*","types":["Point"],
              "boundingBox":{"xmin":-1000,"ymin":-1000,"xmax":1000,"ymax":1000}}]}"#,
    ))
    .await;
    for number in 0..40 {
        let body = format!(
            r#"{{"id":"{number}","pk":"a","at":{{"type":"Point","coordinates":[{},{}]}}}}"#,
            number * 300,
            number * 400
        );
        plane.must(r#"["a"]"#, create(&body)).await;
    }
    let near = "ST_DISTANCE(c.at, {type: 'Point', coordinates: [300, 400]}) <= 500";
    assert_eq!(ids(&plane, near, None, false), [r#""0""#, r#""1""#, r#""2""#]);
    // A constant is measured in the plane, too, when it decides which partitions are asked.
    let constant = "c.id = '1' AND c.pk = (ST_DISTANCE({type: 'Point', coordinates: [0, 0]}, \
                    {type: 'Point', coordinates: [300, 400]}) = 500 ? 'a' : 'b')";
    assert_eq!(ids(&plane, constant, None, false), [r#""1""#]);
    let inside = "ST_WITHIN(c.at, {type: 'Polygon', coordinates: \
                  [[[200,300],[200,1300],[1000,1300],[1000,300],[200,300]]]})";
    assert_eq!(ids(&plane, inside, None, false), [r#""1""#, r#""2""#, r#""3""#]);
    let seen_if = |condition: &str| {
        let distance = "ST_DISTANCE(c.at, {type: 'Point', coordinates: [0, 0]})";
        let operations = r#"[{"op":"set","path":"/seen","value":true}]"#;
        let patch = format!(
            r#"{{"condition":"FROM c WHERE {distance} {condition}","operations":{operations}}}"#
        );
        patch_by("1", &patch)
    };
    plane.must(r#"["a"]"#, seen_if("= 500")).await;
    assert!(plane.write(r#"["a"]"#, seen_if("> 501")).await.is_err());
    plane.verify();
}
