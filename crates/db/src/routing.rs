//! Finds the partitions that a query's own filter confines it to.
//!
//! A filter that fixes the partition key can only be true for documents of some logical partitions,
//! so the query needs no look at the others, and with one partition no leave to cross partitions.
//! What a filter says is derived by [`query::reach`], for plans and for the query route alike; here
//! keys become places in the hash space.

use query::{Geospatial, Reach};
use value::{EpkRange, PartitionKey, PartitionKeyDefinition, PartitionKind, Value};

/// A part of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyRange {
    /// The key, or the beginning of a hierarchical one, that all documents of the part have;
    /// nothing where the part is the whole container.
    pub(crate) key: Option<PartitionKey>,
    /// Where the part lies. Other keys of the same hash may lie there, too.
    pub(crate) epk: EpkRange,
    /// Whether the part is one logical partition.
    pub(crate) is_partition: bool,
}

/// The parts of a container that can contribute to the answer of a query, in the order of the hash
/// space. They have no document in common. Without any part the answer is that of an empty
/// container.
pub(crate) fn ranges(
    definition: &PartitionKeyDefinition,
    text: &str,
    parameters: &[(String, Value)],
    geospatial: Geospatial,
) -> Vec<KeyRange> {
    let reach = match sql::parse(text) {
        Ok(query) => query::reach(&query, parameters, definition, geospatial),
        Err(_) => Reach::All,
    };
    key_ranges(definition, &reach)
}

/// The same for partitions that are known already.
pub(crate) fn key_ranges(definition: &PartitionKeyDefinition, reach: &Reach) -> Vec<KeyRange> {
    let range = |key: &PartitionKey| {
        let (min, max) = definition.prefix_range(key);
        let is_partition =
            definition.kind != PartitionKind::MultiHash || key.0.len() == definition.paths.len();
        KeyRange { key: Some(key.clone()), epk: EpkRange { min, max }, is_partition }
    };
    match reach {
        Reach::All => {
            vec![KeyRange { key: None, epk: EpkRange::full(), is_partition: false }]
        }
        Reach::Nothing => Vec::new(),
        Reach::Keys(keys) => {
            let mut ranges: Vec<KeyRange> = keys.iter().map(range).collect();
            ranges.sort_by(|left, right| {
                (&left.epk.min, &left.key).cmp(&(&right.epk.min, &right.key))
            });
            ranges
        }
    }
}

#[cfg(test)]
mod tests {
    use value::{PartitionKind, Path};

    use super::*;

    fn definition(paths: &[&str]) -> PartitionKeyDefinition {
        PartitionKeyDefinition {
            paths: paths.iter().map(|path| Path::parse(path).unwrap()).collect(),
            kind: if paths.len() > 1 { PartitionKind::MultiHash } else { PartitionKind::Hash },
            version: 2,
            system_key: false,
        }
    }

    fn parameters() -> [(String, Value); 1] {
        [("@p".to_owned(), Value::from("x"))]
    }

    fn check(paths: &[&str], text: &str, expected: Option<&str>) {
        let ranges = ranges(&definition(paths), text, &parameters(), Geospatial::Geography);
        let key = match &ranges[..] {
            [KeyRange { key: Some(key), is_partition: true, .. }] => Some(key.to_string()),
            _ => None,
        };
        assert_eq!(key.as_deref(), expected, "{text}");
    }

    fn check_ranges(paths: &[&str], filter: &str, expected: &[&str]) {
        let text = format!("SELECT * FROM c WHERE {filter}");
        let ranges = ranges(&definition(paths), &text, &parameters(), Geospatial::Geography);
        assert!(ranges.is_sorted_by(|left, right| left.epk.max <= right.epk.min), "{filter}");
        let mut keys: Vec<String> = ranges
            .iter()
            .map(|range| {
                let key = range.key.as_ref().map_or("all".to_owned(), ToString::to_string);
                if range.is_partition || range.key.is_none() { key } else { format!("{key}…") }
            })
            .collect();
        keys.sort();
        assert_eq!(keys, expected, "{filter}");
    }

    #[test]
    fn filters_confine_queries_to_ranges() {
        check_ranges(&["/a"], "c.a IN ('x', 2, null)", &[r#"["x"]"#, "[2]", "[null]"]);
        check_ranges(&["/a"], "c.a = 1 AND c.a = 2", &[]);
        check_ranges(&["/a"], "c.a = 1 OR c.b = 2", &["all"]);
        let (levels, both) = (&["/a", "/b"][..], &["[1,2]", "[1,3]"]);
        check_ranges(levels, "c.a = 1 AND c.b IN (2, 3)", both);
        check_ranges(levels, "c.b IN (2, 3) AND c.a = 1", both);
        check_ranges(levels, "c.a = 1", &["[1]…"]);
        check_ranges(levels, "c.a IN (1, 2) AND c.n > 0", &["[1]…", "[2]…"]);
        check_ranges(levels, "c.b = 1", &["all"]);
        check_ranges(levels, "c.a = 1 OR (c.a = 1 AND c.b = 2)", &["[1]…"]);
        check_ranges(levels, "(c.a = 1 AND c.b = 2) OR c.a = 3", &["[1,2]", "[3]…"]);
    }

    #[test]
    fn equalities_fix_a_key() {
        check(&["/pk"], "SELECT * FROM c WHERE c.pk = 'a'", Some(r#"["a"]"#));
        check(&["/pk"], "SELECT * FROM c WHERE @p = c[\"pk\"] AND c.n > 1", Some(r#"["x"]"#));
        check(&["/a/b"], "SELECT * FROM root r WHERE r.a.b = 1", Some("[1]"));
        check(&["/a/b"], "SELECT * FROM c.a WHERE a.b = 1", Some("[1]"));
        // A document with an array at the path has no key.
        check(&["/pk"], "SELECT * FROM c WHERE c.pk = [1]", Some("[{}]"));
        check(
            &["/city", "/zip"],
            "SELECT * FROM r WHERE r.zip = null AND r.city = 'X'",
            Some(r#"["X",null]"#),
        );
    }

    #[test]
    fn anything_else_fixes_nothing() {
        for text in [
            "SELECT * FROM c",
            "SELECT * FROM c WHERE c.pk > 'a'",
            "SELECT * FROM c WHERE c.pk = 'a' OR c.pk = 'b'",
            "SELECT * FROM c WHERE NOT c.pk = 'a'",
            "SELECT * FROM c WHERE c.other = 'a'",
            "SELECT * FROM c WHERE d.pk = 'a'",
            "SELECT * FROM x IN c.xs WHERE x.pk = 'a'",
            "SELECT * FROM c WHERE c.pk = c.other",
            "SELECT * FROM c WHERE c.pk = @unknown",
        ] {
            check(&["/pk"], text, None);
        }
        check(&["/city", "/zip"], "SELECT * FROM r WHERE r.city = 'X'", None);
    }
}
