//! Queries of all kinds that an index can help with, and some that it cannot.

use db::QueryText;
use proptest::prelude::*;
use value::Value;

use crate::documents::{PARTITIONS, mixed, number, scalar, text};

/// The composite indexes of a container that has some: paths, and whether they go down.
pub(crate) const COMPOSITES: [&[(&[&str], bool)]; 7] = [
    &[(&["a"], false), (&["b"], false)],
    &[(&["t"], false), (&["n"], true)],
    &[(&["o", "x"], true), (&["s"], false), (&["id"], false)],
    &[(&["t"], false), (&["lower"], false)],
    &[(&["pk"], false), (&["n"], false)],
    &[(&["pk"], true), (&["s"], true)],
    &[(&["pk"], false), (&["t"], true), (&["a"], true)],
];

/// Where a row holds what it is sorted by: the names from the row down.
pub(crate) type Key = Vec<&'static str>;

/// A query in parts.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// What follows `SELECT` and `TOP`.
    selection: String,
    is_distinct: bool,
    /// From `FROM` to the end, limits excepted.
    rest: String,
    limit: Limit,
    /// For every `¤` of the text, in order.
    values: Vec<Value>,
    /// Whether the values stand in the text.
    is_inline: bool,
    pub(crate) keys: Vec<Key>,
    pub(crate) is_sorted_by_computed: bool,
    /// Whether each row comes of one document, so that it is written as there.
    pub(crate) is_row_wise: bool,
    /// The one partition to look at.
    pub(crate) partition: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    None,
    Top(u32),
    Window { offset: u32, limit: u32 },
}

impl Query {
    pub(crate) fn is_sorted(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(crate) fn text(&self) -> QueryText {
        self.with(self.limit)
    }

    pub(crate) fn text_without_limits(&self) -> QueryText {
        self.with(Limit::None)
    }

    fn with(&self, limit: Limit) -> QueryText {
        let distinct = if self.is_distinct { "DISTINCT " } else { "" };
        let (top, window) = match limit {
            Limit::None => (String::new(), String::new()),
            Limit::Top(count) => (format!("TOP {count} "), String::new()),
            Limit::Window { offset, limit } => {
                (String::new(), format!(" OFFSET {offset} LIMIT {limit}"))
            }
        };
        let template = format!("SELECT {distinct}{top}{} {}{window}", self.selection, self.rest);
        let mut query = QueryText::default();
        let mut values = self.values.iter().enumerate();
        for part in template.split_inclusive('¤') {
            let Some(before) = part.strip_suffix('¤') else {
                query.text.push_str(part);
                continue;
            };
            query.text.push_str(before);
            let (number, value) = values.next().expect("there is a value for every mark");
            if self.is_inline {
                query.text.push_str(&value.to_text());
            } else {
                let name = format!("@p{number}");
                query.text.push_str(&name);
                query.parameters.push((name, value.clone()));
            }
        }
        assert!(values.next().is_none(), "there is a mark for every value");
        query
    }
}

/// A condition: text with a `¤` for every value.
#[derive(Clone, Debug)]
struct Filter {
    text: String,
    values: Vec<Value>,
}

impl Filter {
    fn new(text: impl Into<String>, values: impl IntoIterator<Item = Value>) -> Self {
        Self { text: text.into(), values: values.into_iter().collect() }
    }

    fn joined(parts: Vec<Filter>, word: &str) -> Self {
        let texts: Vec<String> = parts.iter().map(|part| format!("({})", part.text)).collect();
        Self::new(texts.join(word), parts.into_iter().flat_map(|part| part.values))
    }
}

/// Places in a document, and one that no document has.
const PATHS: [&str; 17] = [
    "c.a",
    "c.b",
    "c.n",
    "c.q",
    "c.s",
    "c.t",
    "c.o",
    "c.o.x",
    "c.o.y.z",
    "c.l",
    "c.l[0]",
    "c.m[0].k",
    "c.a.k",
    "c.pk",
    "c.lower",
    "c.total",
    "c.missing",
];

const ARRAYS: [&str; 4] = ["c.l", "c.m", "c.a", "c.o.x"];

const COMPARISONS: [&str; 6] = ["=", "!=", "<", "<=", ">", ">="];

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&PATHS[..])
}

fn array() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&ARRAYS[..])
}

fn comparison() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&COMPARISONS[..])
}

/// A value that a place is likely to hold.
fn likely(place: &str) -> BoxedStrategy<Value> {
    let usual = match place {
        "c.n" | "c.q" | "c.total" => number().boxed(),
        "c.s" | "c.lower" => text().prop_map(Value::from).boxed(),
        "c.t" => prop::sample::select(vec!["red", "green", "blue"]).prop_map(Value::from).boxed(),
        "c.pk" => prop::sample::select(&PARTITIONS[..]).prop_map(Value::from).boxed(),
        _ => return scalar().boxed(),
    };
    prop_oneof![5 => usual, 1 => scalar()].boxed()
}

/// Comparisons of a place with values.
fn compared(place: BoxedStrategy<&'static str>) -> BoxedStrategy<Filter> {
    let with = |count: usize| {
        place.clone().prop_flat_map(move |place| {
            (Just(place), prop::collection::vec(likely(place), 1..=count))
        })
    };
    let marks = |count: usize| vec!["¤"; count].join(", ");
    let between = prop::sample::select(vec!["BETWEEN", "NOT BETWEEN"]);
    prop_oneof![
        4 => (with(1), comparison())
            .prop_map(|((path, value), op)| Filter::new(format!("{path} {op} ¤"), value)),
        1 => (with(1), comparison())
            .prop_map(|((path, value), op)| Filter::new(format!("¤ {op} {path}"), value)),
        2 => (with(2), between).prop_map(|((path, mut bounds), between)| {
            bounds.resize(2, bounds[0].clone());
            Filter::new(format!("{path} {between} ¤ AND ¤"), bounds)
        }),
        2 => (with(4), prop::sample::select(vec!["IN", "NOT IN"])).prop_map(
            move |((path, list), word)| {
                Filter::new(format!("{path} {word} ({})", marks(list.len())), list)
            }
        ),
        1 => (place.clone(), prop::sample::select(vec!["=", "!="]), mixed())
            .prop_map(|(path, op, value)| Filter::new(format!("{path} {op} ¤"), [value])),
    ]
    .boxed()
}

fn texts() -> BoxedStrategy<Filter> {
    let function = prop::sample::select(vec!["STARTSWITH", "STRINGEQUALS", "CONTAINS", "ENDSWITH"]);
    let ignoring_case = prop::sample::select(vec!["", ", false", ", true"]);
    let pattern = prop::sample::select(vec!["a%", "a_", "%b", "x%a", "[ab]%", "", "%", "a"]);
    let place =
        || prop_oneof![3 => prop::sample::select(vec!["c.s", "c.lower", "c.a"]), 1 => path()];
    prop_oneof![
        3 => (function, place(), text(), ignoring_case).prop_map(|(function, path, text, case)| {
            Filter::new(format!("{function}({path}, ¤{case})"), [Value::from(text)])
        }),
        1 => (place(), any::<bool>(), pattern).prop_map(|(path, is_like, pattern)| {
            let word = if is_like { "LIKE" } else { "NOT LIKE" };
            Filter::new(format!("{path} {word} ¤"), [Value::from(pattern)])
        }),
        1 => (place(), prop::sample::select(vec![0_u32, 1, 2, 256, 300]), text())
            .prop_map(|(path, n, text)| {
                Filter::new(format!("LEFT({path}, {n}) = ¤"), [Value::from(text)])
            }),
        1 => (place(), 0..2_u32, 1..3_u32, text()).prop_map(|(path, start, n, text)| {
            Filter::new(format!("SUBSTRING({path}, {start}, {n}) = ¤"), [Value::from(text)])
        }),
    ]
    .boxed()
}

fn kinds() -> BoxedStrategy<Filter> {
    const FUNCTIONS: [&str; 10] = [
        "IS_DEFINED",
        "IS_NULL",
        "IS_BOOL",
        "IS_NUMBER",
        "IS_STRING",
        "IS_ARRAY",
        "IS_OBJECT",
        "IS_PRIMITIVE",
        "IS_INTEGER",
        "NOT IS_DEFINED",
    ];
    prop_oneof![
        4 => (prop::sample::select(&FUNCTIONS[..]), path())
            .prop_map(|(function, path)| Filter::new(format!("{function}({path})"), [])),
        1 => path().prop_map(|path| Filter::new(path, [])),
        1 => path().prop_map(|path| Filter::new(format!("NOT {path}"), [])),
        1 => any::<bool>().prop_map(|is| Filter::new(if is { "true" } else { "false" }, [])),
    ]
    .boxed()
}

fn arrays() -> BoxedStrategy<Filter> {
    let element = prop::sample::select(vec!["x", "x.k", "x.v"]);
    let member = prop::sample::select(vec!["k", "v", "x"]);
    prop_oneof![
        2 => (array(), mixed())
            .prop_map(|(path, v)| Filter::new(format!("ARRAY_CONTAINS({path}, ¤)"), [v])),
        1 => (array(), member, mixed(), any::<bool>()).prop_map(|(path, name, v, partial)| {
            let text = format!("ARRAY_CONTAINS({path}, {{\"{name}\": ¤}}, {partial})");
            Filter::new(text, [v])
        }),
        1 => (array(), any::<bool>(), scalar(), scalar()).prop_map(|(path, any, v, w)| {
            let word = if any { "ANY" } else { "ALL" };
            Filter::new(format!("ARRAY_CONTAINS_{word}({path}, ¤, ¤)"), [v, w])
        }),
        2 => (array(), compared(element.clone().boxed())).prop_map(|(path, filter)| {
            let text = format!("EXISTS(SELECT VALUE x FROM x IN {path} WHERE {})", filter.text);
            Filter::new(text, filter.values)
        }),
        1 => (array(), comparison(), scalar(), comparison(), scalar()).prop_map(
            |(path, op, v, other, w)| {
                let text = format!(
                    "EXISTS(SELECT VALUE x FROM x IN {path} WHERE x.k {op} ¤ AND x.v {other} ¤)"
                );
                Filter::new(text, [v, w])
            }
        ),
        1 => array().prop_map(|path| {
            Filter::new(format!("NOT EXISTS(SELECT VALUE x FROM x IN {path})"), [])
        }),
        1 => (array(), 0..3).prop_map(|(path, n)| {
            Filter::new(format!("ARRAY_LENGTH({path}) > {n}"), [])
        }),
    ]
    .boxed()
}

fn others() -> BoxedStrategy<Filter> {
    let function = prop::sample::select(vec!["ABS", "FLOOR", "ROUND", "LOWER", "UPPER", "LENGTH"]);
    let id = prop::sample::select(vec!["d00", "d01", "d05", "d99", "d"]);
    let pk = prop::sample::select(vec!["p0", "p1", "p9"]);
    prop_oneof![
        1 => (path(), comparison(), path())
            .prop_map(|(left, op, right)| Filter::new(format!("{left} {op} {right}"), [])),
        1 => (function, path(), comparison(), scalar()).prop_map(|(function, path, op, v)| {
            Filter::new(format!("{function}({path}) {op} ¤"), [v])
        }),
        1 => (path(), comparison(), number())
            .prop_map(|(path, op, v)| Filter::new(format!("{path} + 1 {op} ¤"), [v])),
        1 => (comparison(), id)
            .prop_map(|(op, id)| Filter::new(format!("c.id {op} ¤"), [Value::from(id)])),
        1 => (comparison(), pk)
            .prop_map(|(op, pk)| Filter::new(format!("c.pk {op} ¤"), [Value::from(pk)])),
        1 => comparison()
            .prop_map(|op| Filter::new(format!("c._ts {op} ¤"), [Value::from(1_700_000_000)])),
        1 => (path(), scalar(), comparison(), scalar()).prop_map(|(path, v, op, w)| {
            Filter::new(format!("({path} ?? ¤) {op} ¤"), [v, w])
        }),
        1 => (path(), path(), scalar()).prop_map(|(condition, path, v)| {
            Filter::new(format!("({condition} ? {path} : ¤) = ¤"), [v.clone(), v])
        }),
    ]
    .boxed()
}

/// What a composite index is for: values for its first paths, anything for the next.
fn composed() -> BoxedStrategy<Filter> {
    let index = prop::sample::select(&COMPOSITES[..]);
    let parts = index.prop_flat_map(|index| (Just(index), 0..index.len())).prop_flat_map(
        |(index, values)| {
            let place = |(path, _): &(&[&str], bool)| -> &'static str {
                let place = format!("c.{}", path.join("."));
                PATHS.into_iter().find(|path| *path == place).unwrap_or("c.id")
            };
            let places: Vec<&'static str> = index.iter().map(place).collect();
            let value = |place: &&'static str| {
                let place = *place;
                let one = likely(place).prop_map(move |v| Filter::new(format!("{place} = ¤"), [v]));
                let several = (likely(place), likely(place))
                    .prop_map(move |(v, w)| Filter::new(format!("{place} IN (¤, ¤)"), [v, w]));
                prop_oneof![4 => one, 1 => several].boxed()
            };
            let mut parts: Vec<BoxedStrategy<Filter>> =
                places[..values].iter().map(value).collect();
            parts.push(compared(Just(places[values]).boxed()));
            parts
        },
    );
    parts.prop_map(|parts| Filter::joined(parts, " AND ")).boxed()
}

/// Any condition; `also` is a place that only this query has.
fn filter(also: Option<&'static str>) -> BoxedStrategy<Filter> {
    let place = match also {
        Some(also) => prop_oneof![path(), Just(also)].boxed(),
        None => path().boxed(),
    };
    let leaf = prop_oneof![
        5 => compared(place),
        3 => composed(),
        2 => texts(),
        2 => kinds(),
        2 => arrays(),
        2 => others(),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 2..4);
        let two = prop::collection::vec(inner.clone(), 2);
        prop_oneof![
            2 => two.prop_map(|parts| Filter::joined(parts, " AND ")),
            3 => some().prop_map(|parts| Filter::joined(parts, " OR ")),
            1 => inner
                .clone()
                .prop_map(|part| Filter::new(format!("NOT ({})", part.text), part.values)),
        ]
    })
    .boxed()
}

/// What a query gives before it is limited: selection, sources, order and keys.
#[derive(Clone, Debug)]
struct Shape {
    selection: String,
    is_distinct: bool,
    is_grouped: bool,
    from: &'static str,
    /// Whatever comes behind the filter.
    tail: String,
    keys: Vec<Key>,
    is_sorted_by_computed: bool,
    also: Option<&'static str>,
    /// The places that the filter is about, where it is not about any.
    about: Vec<&'static str>,
}

impl Shape {
    fn plain(selection: impl Into<String>, from: &'static str, also: Option<&'static str>) -> Self {
        Self {
            selection: selection.into(),
            is_distinct: false,
            is_grouped: false,
            from,
            tail: String::new(),
            keys: Vec::new(),
            is_sorted_by_computed: false,
            also,
            about: Vec::new(),
        }
    }
}

/// Queries that look at nothing but what the entries of one index tell.
fn told_by_entries() -> BoxedStrategy<Shape> {
    let indexes = vec![
        vec!["c.n"],
        vec!["c.s"],
        vec!["c.a"],
        vec!["c.o.x"],
        vec!["c.o.y.z"],
        vec!["c._ts"],
        vec!["c.id"],
        vec!["c.a", "c.b"],
        vec!["c.t", "c.n"],
        vec!["c.o.x", "c.s"],
        vec!["c.pk", "c.s"],
    ];
    let selected = prop::sample::subsequence(vec!["c.id", "c.pk", "c.a.k", "c.o.x"], 0..3);
    let ordered = prop::sample::select(vec!["", "", " ASC", " DESC"]);
    (prop::sample::select(indexes), selected, ordered)
        .prop_map(|(paths, more, direction)| {
            // Names like those in the document, so that keys of the order are found in the rows.
            let column = |path: &&str| format!("{path} AS {}", path.replace(['.', '_'], ""));
            let mut columns: Vec<String> = more.iter().map(column).collect();
            let fresh = paths.iter().filter(|path| !more.contains(*path));
            columns.extend(fresh.map(column));
            let mut shape = Shape::plain(columns.join(", "), "c", None);
            if let ([path], false) = (&paths[..], direction.is_empty()) {
                shape.tail = format!(" ORDER BY {path}{direction}");
                let name = match *path {
                    "c.n" => "cn",
                    "c.s" => "cs",
                    "c.a" => "ca",
                    "c.o.x" => "cox",
                    "c.o.y.z" => "coyz",
                    "c._ts" => "cts",
                    _ => "cid",
                };
                shape.keys = vec![vec![name]];
            }
            shape.about = paths;
            shape
        })
        .boxed()
}

fn row_wise() -> BoxedStrategy<Shape> {
    let shapes = vec![
        Shape::plain("*", "c", None),
        Shape::plain("VALUE c.id", "c", None),
        Shape::plain("c.id, c.a AS x, c.o.y", "c", None),
        Shape::plain("VALUE c.a", "c", None),
        Shape::plain("VALUE {\"v\": c.lower, \"w\": [c.total, c.s]}", "c", None),
        Shape::plain("c.id, (SELECT VALUE COUNT(1) FROM x IN c.l) AS n", "c", None),
        Shape::plain("c.id, ARRAY(SELECT VALUE x.k FROM x IN c.m) AS k", "c", None),
        Shape::plain("c.id, x", "c JOIN x IN c.l", Some("x")),
        Shape::plain("c.id, x.v", "c JOIN x IN c.m", Some("x.k")),
        Shape::plain("c.id, x, y", "c JOIN x IN c.l JOIN y IN c.m", Some("y.k")),
        Shape::plain(
            "VALUE x",
            "c JOIN (SELECT VALUE y FROM y IN c.l WHERE y != null) x",
            Some("x"),
        ),
    ];
    prop::sample::select(shapes).boxed()
}

fn grouped() -> BoxedStrategy<Shape> {
    let key = prop::sample::select(vec![
        "c.t",
        "c.a",
        "c.n",
        "c.s",
        "c.o.x",
        "c.l",
        "LOWER(c.s)",
        "c.lower",
        "IS_STRING(c.a)",
    ]);
    let aggregates = "COUNT(1) AS n, COUNT(c.a) AS a, SUM(c.q) AS sum, AVG(c.q) AS mean, \
                      MIN(c.a) AS low, MAX(c.b) AS high";
    let many = (key.clone(), prop::option::of(key.clone())).prop_map(move |(key, second)| {
        let second = second.filter(|second| *second != key);
        let also = second.map(|second| format!(", {second} AS second")).unwrap_or_default();
        let mut shape = Shape::plain(format!("{key} AS key{also}, {aggregates}"), "c", None);
        let also = second.map(|second| format!(", {second}")).unwrap_or_default();
        shape.tail = format!(" GROUP BY {key}{also}");
        shape
    });
    let one = prop::sample::select(vec![
        "VALUE COUNT(1)",
        "COUNT(1) AS n",
        "VALUE COUNT(c)",
        "VALUE COUNT(c.n)",
        "VALUE SUM(c.q)",
        "VALUE AVG(c.q)",
        "VALUE MIN(c.a)",
        "VALUE MAX(c.n)",
        "VALUE MIN(c.lower)",
        "VALUE {\"low\": MIN(c.s), \"high\": MAX(c.s), \"n\": COUNT(1)}",
    ]);
    let one = one.prop_map(|selection| Shape::plain(selection, "c", None));
    let extremes = prop::sample::select(vec![
        ("VALUE MIN(c.n)", "c.n"),
        ("VALUE {\"low\": MIN(c.n), \"high\": MAX(c.n)}", "c.n"),
        ("MIN(c.s) AS low, MAX(c.t) AS high", "c.s"),
        ("VALUE MAX(c.s)", "c.s"),
        ("VALUE MAX(c.t)", "c.t"),
        ("VALUE MIN(c.o.x)", "c.o.x"),
        ("VALUE MAX(c._ts)", "c._ts"),
        ("VALUE MIN(c.q)", "c.q"),
        ("VALUE MAX(c.missing)", "c.missing"),
    ]);
    let extremes = (extremes, any::<bool>()).prop_map(|((selection, path), is_about)| Shape {
        about: if is_about { vec![path] } else { Vec::new() },
        ..Shape::plain(selection, "c", None)
    });
    let elements = Just(Shape {
        tail: " GROUP BY x".to_owned(),
        ..Shape::plain("x, COUNT(1) AS n", "c JOIN x IN c.l", Some("x"))
    });
    let distinct = prop_oneof![
        key.prop_map(|key| Shape::plain(format!("VALUE {key}"), "c", None)),
        Just(Shape::plain("c.t, c.q", "c", None)),
        Just(Shape::plain("VALUE x", "c JOIN x IN c.l", Some("x"))),
    ];
    let distinct = distinct.prop_map(|shape| Shape { is_distinct: true, ..shape });
    let grouped = prop_oneof![2 => many, 2 => one, 2 => extremes, 1 => elements];
    let grouped = grouped.prop_map(|shape| Shape { is_grouped: true, ..shape });
    prop_oneof![5 => grouped, 2 => distinct].boxed()
}

/// A key to sort by, and where a whole document holds it.
const SORT_KEYS: [(&str, &[&str]); 10] = [
    ("c.a", &["a"]),
    ("c.b", &["b"]),
    ("c.n", &["n"]),
    ("c.s", &["s"]),
    ("c.o.x", &["o", "x"]),
    ("c.o.y.z", &["o", "y", "z"]),
    ("c.id", &["id"]),
    ("c.t", &["t"]),
    ("c._ts", &["_ts"]),
    ("c.missing", &["missing"]),
];

fn sorted() -> BoxedStrategy<Shape> {
    let direction = || prop::sample::select(vec!["", " ASC", " DESC"]);
    let plain = || prop::sample::select(&SORT_KEYS[..]);
    let whole = (plain(), direction()).prop_map(|((key, names), direction)| Shape {
        tail: format!(" ORDER BY {key}{direction}"),
        keys: vec![names.to_vec()],
        ..Shape::plain("*", "c", None)
    });
    let unusual = prop::sample::select(vec!["c.l[0]", "c.m[0].k", "c.lower", "c.total"]);
    let key = prop_oneof![3 => plain().prop_map(|(key, _)| key), 1 => unusual];
    let sources = prop::sample::select(vec![("c", None), ("c JOIN x IN c.l", Some("x"))]);
    let projected =
        (key.clone(), direction(), sources).prop_map(|(key, direction, (from, also))| Shape {
            tail: format!(" ORDER BY {key}{direction}"),
            keys: vec![vec!["k"]],
            is_sorted_by_computed: ["c.lower", "c.total"].contains(&key),
            ..Shape::plain(format!("c.id, {key} AS k"), from, also)
        });
    let distinct = (key, direction()).prop_map(|(key, direction)| Shape {
        is_distinct: true,
        tail: format!(" ORDER BY {key}{direction}"),
        keys: vec![vec!["k"]],
        is_sorted_by_computed: ["c.lower", "c.total"].contains(&key),
        ..Shape::plain(format!("{key} AS k"), "c", None)
    });
    let composite = (prop::sample::select(&COMPOSITES[..]), any::<bool>(), 0..8_usize).prop_map(
        |(index, is_reversed, slip)| {
            const NAMES: [&str; 3] = ["k0", "k1", "k2"];
            let mut keys: Vec<(String, bool)> = index
                .iter()
                .map(|(path, down)| (format!("c.{}", path.join(".")), *down != is_reversed))
                .collect();
            // Now and then an order that no index has.
            match slip {
                0 => keys[0].1 = !keys[0].1,
                1 => keys.reverse(),
                _ => {}
            }
            let order = |(key, down): &(String, bool)| {
                format!("{key}{}", if *down { " DESC" } else { " ASC" })
            };
            let order: Vec<String> = keys.iter().map(order).collect();
            let named = keys.iter().zip(NAMES).map(|((key, _), name)| format!("{key} AS {name}"));
            let selection = format!("c.id, {}", named.collect::<Vec<_>>().join(", "));
            Shape {
                tail: format!(" ORDER BY {}", order.join(", ")),
                keys: NAMES[..keys.len()].iter().map(|name| vec![*name]).collect(),
                is_sorted_by_computed: keys.iter().any(|(key, _)| key == "c.lower"),
                ..Shape::plain(selection, "c", None)
            }
        },
    );
    prop_oneof![2 => whole, 3 => projected, 1 => distinct, 3 => composite].boxed()
}

/// Any query.
pub(crate) fn queries() -> impl Strategy<Value = Query> {
    let shape = prop_oneof![3 => row_wise(), 2 => grouped(), 3 => sorted(), 3 => told_by_entries()];
    let filtered = shape.prop_flat_map(|shape| {
        let filter = match &shape.about[..] {
            [] => filter(shape.also),
            [only] => compared(Just(*only).boxed()),
            [first, second, ..] => {
                (compared(Just(*first).boxed()), compared(Just(*second).boxed()))
                    .prop_map(|(first, second)| Filter::joined(vec![first, second], " AND "))
                    .boxed()
            }
        };
        let filter = prop::option::weighted(0.85, filter);
        (Just(shape), filter)
    });
    let limit = prop_oneof![
        4 => Just(Limit::None),
        1 => (0..9_u32).prop_map(Limit::Top),
        1 => (0..5_u32, 0..9_u32).prop_map(|(offset, limit)| Limit::Window { offset, limit }),
    ];
    let partition = prop::option::weighted(0.3, 0..4_usize);
    (filtered, limit, any::<bool>(), partition).prop_map(
        |((shape, filter), limit, is_inline, partition)| {
            let (condition, values) = match filter {
                Some(filter) => (format!(" WHERE {}", filter.text), filter.values),
                None => (String::new(), Vec::new()),
            };
            Query {
                selection: shape.selection,
                is_distinct: shape.is_distinct,
                rest: format!("FROM {}{condition}{}", shape.from, shape.tail),
                limit,
                values,
                is_inline,
                keys: shape.keys,
                is_sorted_by_computed: shape.is_sorted_by_computed,
                is_row_wise: !shape.is_distinct && !shape.is_grouped,
                partition,
            }
        },
    )
}
