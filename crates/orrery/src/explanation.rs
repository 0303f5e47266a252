//! Shows a person how a query would be answered.

use std::fmt::Write;

use value::Value;

/// What each rule of the service's advice means. The server tells the ids. The rules are about the
/// text of a query; where only the service gains by following one, its meaning says so.
const ADVICE: [(&str, &str); 10] = [
    (
        "QA1000",
        "the service answers EXISTS over the elements faster than ARRAY_CONTAINS with a partial \
         match",
    ),
    (
        "QA1001",
        "DISTINCT over a JOIN compares every row that the join makes; EXISTS, or DISTINCT inside \
         of the joined subquery, makes fewer",
    ),
    (
        "QA1002",
        "CONTAINS has to look at every string; where the beginning is known, STARTSWITH reads \
         only that part of an index",
    ),
    (
        "QA1003",
        "STARTSWITH and StringEquals that ignore case look at every string; an indexed computed \
         property in one case can be compared exactly",
    ),
    (
        "QA1004",
        "ENDSWITH that ignores case looks at every string; an indexed computed property with the \
         text in one case and reversed can be asked by STARTSWITH",
    ),
    (
        "QA1005",
        "GROUP BY an expression works it out for every document; the service recommends a \
         computed property",
    ),
    (
        "QA1006",
        "UPPER and LOWER are worked out for every document before they are compared; a computed \
         property in one case can be indexed",
    ),
    (
        "QA1007",
        "the service uses no index for comparisons with GetCurrentDateTime; with \
         GetCurrentDateTimeStatic it does",
    ),
    (
        "QA1008",
        "the service uses no index for comparisons with GetCurrentTicks; with \
         GetCurrentTicksStatic it does",
    ),
    (
        "QA1009",
        "the service uses no index for comparisons with GetCurrentTimestamp; with \
         GetCurrentTimestampStatic it does",
    ),
];

/// The explanation as text; `None` if the answer is not one.
pub(crate) fn text(explanation: &Value) -> Option<String> {
    let line = |name: &str| explanation.get(name).and_then(Value::as_str);
    let access = line("access")?;
    let mut out = String::new();
    write_entry(&mut out, "access", &[access]);
    for name in ["condition", "order", "pages"] {
        write_entry(&mut out, name, line(name).as_slice());
    }
    let number = |name: &str| explanation.get(name).and_then(Value::as_i64);
    if let Some((documents, ranges)) = number("storedDocuments").zip(number("ranges")) {
        let stored = format!("{} in {}", count(documents, "document"), count(ranges, "range"));
        write_entry(&mut out, "scope", &[&stored]);
    }
    let mut used = list(explanation, "usedIndexes");
    let composites = |name: &str| -> Vec<String> {
        list(explanation, name).iter().map(|paths| format!("({paths})")).collect()
    };
    let used_composites = composites("usedCompositeIndexes");
    used.extend(used_composites.iter().map(String::as_str));
    write_entry(&mut out, "indexed", &used);
    write_entry(&mut out, "unindexed", &list(explanation, "potentialIndexes"));
    let potential = composites("potentialCompositeIndexes");
    write_entry(&mut out, "would help", &potential.iter().map(String::as_str).collect::<Vec<_>>());
    let advice = list(explanation, "advice");
    let advice: Vec<String> = advice.into_iter().map(advised).collect();
    write_entry(&mut out, "advice", &advice.iter().map(String::as_str).collect::<Vec<_>>());
    Some(out)
}

/// Writes a name and what belongs to it, one below the other; nothing where there is nothing.
fn write_entry(out: &mut String, name: &str, lines: &[&str]) {
    for (at, line) in lines.iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(out, "{name:<10}  {line}").expect("writing to a string cannot fail");
    }
}

fn list<'e>(explanation: &'e Value, name: &str) -> Vec<&'e str> {
    let list = explanation.get(name).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).collect()
}

fn advised(id: &str) -> String {
    match ADVICE.iter().find(|(known, _)| *known == id) {
        Some((_, meaning)) => format!("{id}: {meaning}"),
        None => id.to_owned(),
    }
}

/// A number of things: `1 range`, `2 ranges`.
pub(crate) fn count(number: impl Into<i128>, thing: &str) -> String {
    let number: i128 = number.into();
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(explanation: &str, expected: Option<&str>) {
        assert_eq!(text(&Value::parse(explanation.as_bytes()).unwrap()).as_deref(), expected);
    }

    #[test]
    fn explanations_read_well() {
        check(
            r#"{"access":"all 3 documents of the scope are read","condition":"anything",
                "order":"none asked for","pages":"each page reads on where the last one ended",
                "storedDocuments":3,"ranges":1,"usedIndexes":[],"usedCompositeIndexes":[],
                "potentialIndexes":["/a/?","/b/?"],"advice":["QA1005","QA9999"]}"#,
            Some(
                "access      all 3 documents of the scope are read\n\
                 condition   anything\n\
                 order       none asked for\n\
                 pages       each page reads on where the last one ended\n\
                 scope       3 documents in 1 range\n\
                 unindexed   /a/?\n            /b/?\n\
                 advice      QA1005: GROUP BY an expression works it out for every document; \
                 the service recommends a computed property\n            QA9999\n",
            ),
        );
        check(
            r#"{"access":"x","usedIndexes":["/a/?"],"usedCompositeIndexes":["/a ASC, /b DESC"],
                "potentialCompositeIndexes":["/a ASC, /c ASC"]}"#,
            Some(
                "access      x\nindexed     /a/?\n            (/a ASC, /b DESC)\n\
                 would help  (/a ASC, /c ASC)\n",
            ),
        );
    }

    #[test]
    fn rows_are_no_explanation() {
        check(r#"{"_rid":"x","Documents":[],"_count":0}"#, None);
        check("[]", None);
    }

    #[test]
    fn every_rule_has_its_meaning() {
        for (at, (id, meaning)) in ADVICE.iter().enumerate() {
            assert_eq!(*id, format!("QA{}", 1000 + at));
            assert!(!meaning.is_empty());
        }
    }
}
