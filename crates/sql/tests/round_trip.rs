//! Any tree that the parser can build prints to a text that parses to the same tree.

use proptest::prelude::*;
use sql::{
    BinaryOperator, Collection, Count, Direction, Expr, ExprKind, Item, Order, OrderBy, Page,
    Query, Selection, Source, Span, Step, SubqueryKind, UnaryOperator,
};
use value::Number;

const BINARY: [BinaryOperator; 18] = [
    BinaryOperator::Add,
    BinaryOperator::Subtract,
    BinaryOperator::Multiply,
    BinaryOperator::Divide,
    BinaryOperator::Modulo,
    BinaryOperator::BitAnd,
    BinaryOperator::BitOr,
    BinaryOperator::BitXor,
    BinaryOperator::ShiftLeft,
    BinaryOperator::ShiftRight,
    BinaryOperator::ShiftRightUnsigned,
    BinaryOperator::Concat,
    BinaryOperator::Equal,
    BinaryOperator::NotEqual,
    BinaryOperator::Less,
    BinaryOperator::LessOrEqual,
    BinaryOperator::Greater,
    BinaryOperator::GreaterOrEqual,
];

const UNARY: [UnaryOperator; 4] =
    [UnaryOperator::Minus, UnaryOperator::Plus, UnaryOperator::BitNot, UnaryOperator::Not];

const SUBQUERY: [SubqueryKind; 6] = [
    SubqueryKind::Scalar,
    SubqueryKind::Exists,
    SubqueryKind::Array,
    SubqueryKind::All,
    SubqueryKind::First,
    SubqueryKind::Last,
];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["c", "_a1", "count", "all", "first", "rank", "let", "Infinity"])
        .prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = Number> {
    let finite = any::<f64>().prop_filter("literals are finite", |number| number.is_finite());
    prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        finite.prop_map(Number::from),
        (-5i64..5).prop_map(Number::from),
    ]
}

fn leaf() -> impl Strategy<Value = Expr> + Clone {
    prop_oneof![
        Just(ExprKind::Undefined),
        Just(ExprKind::Null),
        any::<bool>().prop_map(ExprKind::Bool),
        number().prop_map(ExprKind::Number),
        any::<String>().prop_map(ExprKind::String),
        name().prop_map(|name| ExprKind::Parameter(format!("@{name}"))),
        name().prop_map(ExprKind::Identifier),
    ]
    .prop_map(Expr::new)
}

fn expr() -> impl Strategy<Value = Expr> + Clone {
    leaf().prop_recursive(5, 48, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let list = prop::collection::vec(inner.clone(), 0..4);
        let some = prop::collection::vec(inner.clone(), 1..4);
        let chain = prop::collection::vec(inner.clone(), 2..20);
        prop_oneof![
            (boxed.clone(), name()).prop_map(|(object, name)| ExprKind::Member(object, name)),
            (boxed.clone(), boxed.clone()).prop_map(|(object, at)| ExprKind::Index(object, at)),
            list.clone().prop_map(ExprKind::Array),
            prop::collection::vec((any::<String>(), inner.clone()), 0..3)
                .prop_map(ExprKind::Object),
            (prop::sample::select(&UNARY[..]), boxed.clone())
                .prop_map(|(operator, operand)| ExprKind::Unary(operator, operand)),
            (prop::sample::select(&BINARY[..]), boxed.clone(), boxed.clone())
                .prop_map(|(operator, left, right)| ExprKind::Binary(operator, left, right)),
            chain
                .clone()
                .prop_filter("chains are flat", |terms| !matches!(terms[0].kind, ExprKind::And(_)))
                .prop_map(ExprKind::And),
            chain
                .prop_filter("chains are flat", |terms| !matches!(terms[0].kind, ExprKind::Or(_)))
                .prop_map(ExprKind::Or),
            (boxed.clone(), boxed.clone())
                .prop_map(|(left, right)| ExprKind::Coalesce(left, right)),
            (boxed.clone(), boxed.clone(), boxed.clone())
                .prop_map(|(condition, yes, no)| ExprKind::Conditional(condition, yes, no)),
            (boxed.clone(), boxed.clone(), boxed.clone(), any::<bool>()).prop_map(
                |(value, low, high, negated)| ExprKind::Between { value, low, high, negated }
            ),
            (boxed.clone(), some, any::<bool>()).prop_map(|(value, list, negated)| ExprKind::In {
                value,
                list,
                negated
            }),
            (boxed.clone(), boxed.clone(), any::<Option<String>>(), any::<bool>()).prop_map(
                |(value, pattern, escape, negated)| ExprKind::Like {
                    value,
                    pattern,
                    escape,
                    negated
                }
            ),
            (name(), list.clone()).prop_map(|(name, arguments)| ExprKind::Call {
                name,
                name_span: Span::default(),
                arguments
            }),
            (name(), list).prop_map(|(name, arguments)| ExprKind::Udf { name, arguments }),
            (name(), boxed.clone(), boxed.clone()).prop_map(|(name, value, body)| ExprKind::Let {
                name,
                value,
                body
            }),
            (prop::sample::select(&SUBQUERY[..]), query(inner))
                .prop_map(|(kind, query)| ExprKind::Subquery(kind, Box::new(query))),
        ]
        .prop_map(Expr::new)
    })
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        any::<u32>().prop_map(|count| Count::Number(Number::from(count), Span::default())),
        name().prop_map(|name| Count::Parameter(format!("@{name}"), Span::default())),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let step = prop_oneof![
        name().prop_map(Step::Name),
        any::<String>().prop_map(Step::Quoted),
        any::<u64>().prop_map(Step::Offset),
    ];
    (any::<bool>(), name(), any::<bool>(), name(), prop::collection::vec(step, 0..3)).prop_map(
        |(iterates, alias, named, root, steps)| Source {
            iterates,
            alias: (iterates || named).then_some(alias),
            collection: Collection::Path { root, steps },
            span: Span::default(),
        },
    )
}

fn query(expr: impl Strategy<Value = Expr> + Clone + 'static) -> impl Strategy<Value = Query> {
    let item =
        (expr.clone(), any::<Option<String>>()).prop_map(|(expr, alias)| Item { expr, alias });
    let selection = prop_oneof![
        Just(Selection::Star(Span::default())),
        expr.clone().prop_map(Selection::Value),
        prop::collection::vec(item, 1..4).prop_map(Selection::List),
    ];
    let direction = prop_oneof![
        Just(None),
        Just(Some(Direction::Ascending)),
        Just(Some(Direction::Descending))
    ];
    let key = (expr.clone(), direction).prop_map(|(expr, direction)| Order { expr, direction });
    let order_by = prop::collection::vec(key, 1..3).prop_map(|keys| OrderBy {
        rank: false,
        keys,
        span: Span::default(),
    });
    let page = (count(), count()).prop_map(|(offset, limit)| Page {
        offset,
        limit,
        span: Span::default(),
    });
    (
        any::<bool>(),
        prop::option::of(count()),
        selection,
        prop::collection::vec(source(), 0..3),
        prop::option::of(expr.clone()),
        prop::collection::vec(expr, 0..3),
        prop::option::of(order_by),
        prop::option::of(page),
    )
        .prop_map(|(distinct, top, selection, from, filter, group_by, order_by, page)| Query {
            distinct,
            top,
            selection,
            from,
            filter,
            group_by,
            order_by,
            page,
            span: Span::default(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_printed_query_parses_to_itself(tree in query(expr())) {
        let text = tree.to_string();
        let parsed = sql::parse(&text);
        prop_assert_eq!(parsed.as_ref(), Ok(&tree), "{}", text);
        prop_assert_eq!(parsed.map(|tree| tree.to_string()), Ok(text));
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = sql::parse(&text);
        let _ = sql::parse_condition(&text);
    }

    #[test]
    fn no_sequence_of_words_panics(words in prop::collection::vec(
        prop::sample::select(vec![
            "SELECT", "VALUE", "*", "FROM", "c", "JOIN", "IN", "WHERE", "(", ")", "[", "]", "{",
            "}", ".", ",", ":", "?", "??", "NOT", "-", "1", "'x'", "@p", "BETWEEN", "AND", "LIKE",
            "ESCAPE", "GROUP BY", "ORDER BY", "RANK", "OFFSET", "LIMIT", "TOP", "LET", "=", "udf",
            "ARRAY", "EXISTS", "ALL", "LEFT", "é", "\\", "\"",
        ]), 0..40))
    {
        if let Ok(tree) = sql::parse(&words.join(" ")) {
            prop_assert_eq!(sql::parse(&tree.to_string()), Ok(tree));
        }
    }
}
