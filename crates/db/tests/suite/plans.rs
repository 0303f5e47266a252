//! Query plans as clients get them: the form, the ranges, and what clients cannot do.

use db::{Error, Features, Kind, PlanRequest, QueryText};
use storage::Embedded;
use value::Value;

use crate::support::{BY_PK, Documents, json, key};

const BY_LEVELS: &str =
    r#"{"partitionKey":{"paths":["/tenant","/user"],"kind":"MultiHash","version":2}}"#;

struct Asked<'a> {
    documents: &'a Documents<Embedded>,
    features: &'a str,
    key: Option<&'a str>,
    client_merges: bool,
}

impl Asked<'_> {
    fn plan(&self, text: &str) -> Result<Value, Error> {
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let Documents { db, container, .. } = self.documents;
        let (features, key) = (Features::parse(self.features), self.key.map(key));
        let request = PlanRequest { features, key, client_merges: self.client_merges };
        db.query_plan(container, &query, &request)
    }

    fn ranges(&self, text: &str) -> Vec<(String, String, bool)> {
        let plan = self.plan(text).unwrap();
        let ranges = plan.get("queryRanges").and_then(Value::as_array).unwrap();
        let range = |range: &Value| {
            let bound = |name: &str| range.get(name).and_then(Value::as_str).unwrap().to_owned();
            assert_eq!(range.get("isMinInclusive"), Some(&Value::from(true)));
            let inclusive = range.get("isMaxInclusive").and_then(Value::as_bool).unwrap();
            (bound("min"), bound("max"), inclusive)
        };
        ranges.iter().map(range).collect()
    }

    fn text(&self, text: &str) -> String {
        let plan = self.plan(text).unwrap();
        let info = plan.get("queryInfo").unwrap();
        info.get("rewrittenQuery").and_then(Value::as_str).unwrap().to_owned()
    }
}

const ALL: &str = "Aggregate, Distinct, GroupBy, MultipleOrderBy, MultipleAggregates, \
     OffsetAndLimit, OrderBy, Top, NonValueAggregate, DCount";
const FEW: &str = "MultipleOrderBy,OffsetAndLimit,OrderBy,Top,";

fn point(epk: &str) -> (String, String, bool) {
    (epk.to_owned(), epk.to_owned(), true)
}

fn full() -> (String, String, bool) {
    (String::new(), "FF".to_owned(), false)
}

#[tokio::test]
async fn a_plan_has_the_form_that_clients_read() {
    let documents = &Documents::with_ranges(BY_PK, 3).await;
    let asked = Asked { documents, features: ALL, key: None, client_merges: false };
    let plan = asked.plan("SELECT TOP 3 c.team, AVG(c.age) FROM c GROUP BY c.team").unwrap();
    let expected = r#"{"partitionedQueryExecutionInfoVersion":2,"queryInfo":{
        "distinctType":"None","top":3,"offset":null,"limit":null,"orderBy":[],
        "orderByExpressions":[],"groupByExpressions":["c.team"],"groupByAliases":["team","$1"],
        "aggregates":[],"groupByAliasToAggregateType":{"team":null,"$1":"Average"},
        "rewrittenQuery":"SELECT [{\"item\": c.team}] AS groupByItems, {\"team\": c.team, \"$1\": {\"item\": {\"sum\": SUM(c.age), \"count\": COUNT(c.age)}}} AS payload\nFROM c\nGROUP BY c.team",
        "hasSelectValue":false,"dCountInfo":null,"hasNonStreamingOrderBy":false},
        "queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}]}"#;
    assert_eq!(plan, json(expected));
    let plan = asked.plan("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c)").unwrap();
    let info = plan.get("queryInfo").unwrap();
    assert_eq!(info.get("dCountInfo"), Some(&json(r#"{"dCountAlias":""}"#)));
    assert_eq!(info.get("rewrittenQuery"), Some(&json(r#""SELECT DISTINCT VALUE c.n\nFROM c""#)));
}

#[tokio::test]
async fn ranges_are_where_the_keys_hash_to() {
    let documents = &Documents::with_ranges(BY_PK, 3).await;
    let asked = Asked { documents, features: ALL, key: None, client_merges: false };
    let aa = point("05033626483AE80D00E44FBD35362B19");
    let redmond = point("22E342F38A486A088463DFF7838A5963");
    assert_eq!(asked.ranges("SELECT * FROM c WHERE c.n = 1"), [full()]);
    assert_eq!(asked.ranges("SELECT * FROM c WHERE c.pk = 'aa'"), std::slice::from_ref(&aa));
    let both = "SELECT * FROM c WHERE c.pk IN ('redmond', 'aa', 'aa')";
    assert_eq!(asked.ranges(both), [aa, redmond.clone()]);
    assert_eq!(asked.ranges("SELECT * FROM c WHERE false"), [point("")]);
    assert_eq!(asked.ranges("SELECT 1"), [point("")]);
    let pinned = Asked { key: Some(r#"["redmond"]"#), ..asked };
    assert_eq!(pinned.ranges("SELECT * FROM c"), [redmond]);
    assert_eq!(pinned.text("SELECT * FROM c OFFSET 1 LIMIT 2"), "");
    let wrong = Asked { key: Some(r#"["a","b"]"#), ..pinned };
    assert_eq!(wrong.plan("SELECT * FROM c").unwrap_err().kind, Kind::PartitionKeyMismatch);

    let documents = &Documents::with_ranges(BY_LEVELS, 3).await;
    let asked = Asked { documents, features: ALL, key: None, client_merges: false };
    let (tenant, user) = ("0DAE0B8467B011E957BC0B8B0DEB5ACA", "236A5BE3329A7AD57D4B998E8602BD7B");
    let prefix = (tenant.to_owned(), format!("{tenant}FF"), false);
    let filter = "SELECT * FROM c WHERE c.tenant = 'tenant1'";
    assert_eq!(asked.ranges(filter), std::slice::from_ref(&prefix));
    let whole = asked.ranges(&format!("{filter} AND c.user = 'user1'"));
    assert_eq!(whole, [point(&format!("{tenant}{user}"))]);
    let confined = Asked { key: Some(r#"["tenant1"]"#), ..asked };
    assert_eq!(confined.ranges("SELECT * FROM c"), [prefix]);
    assert_eq!(
        confined.text("SELECT * FROM c OFFSET 1 LIMIT 2"),
        "SELECT *\nFROM c\nOFFSET 0 LIMIT 3"
    );
    let empty = Asked { key: Some("[]"), ..confined };
    assert_eq!(empty.ranges("SELECT * FROM c"), [full()]);
}

#[tokio::test]
async fn what_a_client_cannot_do_is_refused_by_name_or_left_to_the_server() {
    let count = "SELECT VALUE COUNT(1) FROM c";
    let documents = &Documents::with_ranges(BY_PK, 3).await;
    let few = Asked { documents, features: FEW, key: None, client_merges: false };
    let error = few.plan(count).unwrap_err();
    assert_eq!(error.kind, Kind::BadRequest);
    assert!(error.message.contains("Query contained Aggregate, which"), "{error}");
    let error = few.plan("SELECT c.a, MIN(c.b), MAX(c.b) FROM c GROUP BY c.a").unwrap_err();
    for name in ["GroupBy", "NonValueAggregate", "MultipleAggregates"] {
        assert!(error.message.contains(&format!("Query contained {name}, which")), "{error}");
    }
    // One logical partition is in one range, which can answer for itself.
    let pinned = "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'aa'";
    assert_eq!(few.text(pinned), "");
    assert_eq!(few.ranges(pinned).len(), 1);
    assert!(few.plan("SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('aa', 'bb')").is_err());
    let inner = "SELECT * FROM (SELECT DISTINCT VALUE c.n FROM c)";
    let all = Asked { features: ALL, ..few };
    assert!(all.plan(inner).unwrap_err().message.contains("cannot be divided"));

    // So can the only range there is, if it is asked once.
    let documents = &Documents::new(BY_PK).await;
    let few = Asked { documents, features: "", key: None, client_merges: false };
    assert_eq!(few.text(count), "");
    assert_eq!(few.ranges("SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('aa', 'bb')"), [full()]);
    assert_eq!(few.text(inner), "");
    // Not where all merging is left to clients: then one range is as good as several.
    let alone = Asked { client_merges: true, ..few };
    assert!(alone.plan(count).unwrap_err().message.contains("Aggregate"));
    assert!(alone.plan("SELECT c.n, COUNT(1) FROM c GROUP BY c.n").is_err());
    assert!(alone.plan(pinned).unwrap_err().message.contains("Aggregate"));
    assert_eq!(Asked { key: Some(r#"["aa"]"#), ..alone }.text(count), "");
    assert_eq!(alone.text("SELECT * FROM c"), "");
    // A client that can merge gets the real plan also there.
    let all = Asked { features: ALL, ..few };
    assert_eq!(all.text(count), "SELECT VALUE [{\"item\": COUNT(1)}]\nFROM c");
    assert_eq!(all.ranges("SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('aa', 'bb')").len(), 2);
    for refused in [
        "SELECT COUNT(1) + 1 FROM c",
        "SELECT * FROM c ORDER BY c.a, c.b",
        "SELECT * FROM c ORDER BY RANK FullTextScore(c.text, 'swim')",
        "SELECT d FROM c",
    ] {
        assert_eq!(all.plan(refused).unwrap_err().kind, Kind::BadRequest, "{refused}");
    }
}
