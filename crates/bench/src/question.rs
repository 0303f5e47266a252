//! Questions about orders, in the words of both servers.
//!
//! A [`Question`] is asked with many different arguments, and each server gets the same ones in the
//! same order. PostgreSQL gets a prepared statement; its table has the partition in `pk` and the
//! order in `body`.

use std::fmt::Write;

use bytes::Bytes;

use crate::orders::{self, Orders, Scope, mix};

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Reads one order by partition and id.
    Point,
    Equality,
    Range,
    /// The latest ten orders before a moment.
    Latest,
    Contains,
    Join,
    Count,
    /// Over a path without an index.
    Filter,
    /// Over a path without an index.
    Sum,
}

/// A shape in a scope, with its texts.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) shape: Shape,
    pub(crate) scope: Scope,
    /// In the query language of Orrery.
    pub(crate) text: String,
    /// In PostgreSQL's.
    pub(crate) sql: String,
}

pub(crate) enum Argument {
    Text(String),
    Number(f64),
}

/// A question with its arguments.
pub(crate) struct Asked {
    pub(crate) partition: Option<String>,
    pub(crate) arguments: Vec<Argument>,
}

/// How many orders a range holds, about.
const RANGE_ROWS: u64 = 50;

impl Question {
    /// What the indexes are for: every shape in every scope.
    pub(crate) fn indexed() -> Vec<Self> {
        let shapes = [Shape::Equality, Shape::Range, Shape::Latest, Shape::Contains, Shape::Join];
        let scopes = [Scope::Small, Scope::Large, Scope::Across];
        let pairs = shapes.into_iter().flat_map(|shape| scopes.map(|scope| (shape, scope)));
        pairs.map(|(shape, scope)| Self::new(shape, scope, "orders")).collect()
    }

    /// A question about the orders in a table of PostgreSQL.
    pub(crate) fn new(shape: Shape, scope: Scope, table: &str) -> Self {
        // In a store, one status or category is enough to name a part of its orders.
        let (field, of_item) = match scope {
            Scope::Small => ("status", "category"),
            _ => ("customer", "sku"),
        };
        let text = text(shape, field, of_item);
        let mut sql = format!("SELECT {}", sql(shape, table, field, of_item));
        if scope != Scope::Across {
            let _ = write!(sql, " AND pk = ${}", arguments(shape) + 1);
        }
        if shape == Shape::Latest {
            sql.push_str(" ORDER BY body->>'created' DESC LIMIT 10");
        }
        Self { shape, scope, text, sql }
    }

    /// The arguments of one of many times; the same for the same number.
    pub(crate) fn asked(&self, orders: Orders, time: u64) -> Asked {
        let any = |salt: u64| mix(time, 1_000 + salt);
        let order = any(0) % orders.count.max(1);
        let partition = match (self.shape, self.scope) {
            (Shape::Point, _) => Some(orders.place(order).0),
            (_, Scope::Across) => None,
            (_, scope) => Some(orders.any_store(scope, any(1))),
        };
        let is_small = self.scope == Scope::Small;
        let text = match self.shape {
            Shape::Point => orders.place(order).1,
            Shape::Equality if is_small => orders::status(any(2)).to_owned(),
            Shape::Equality => orders.customer(self.scope, any(2)),
            Shape::Range => {
                let (low, high) = orders.totals(self.scope, RANGE_ROWS, any(2));
                let arguments = vec![Argument::Number(low), Argument::Number(high)];
                return Asked { partition, arguments };
            }
            Shape::Latest => orders.created(order),
            Shape::Contains if is_small => orders::kind(any(2)),
            Shape::Contains => orders.campaign(self.scope, any(2)),
            Shape::Join if is_small => orders::category(any(2)),
            Shape::Join => orders.sku(self.scope, any(2)),
            Shape::Count => return Asked { partition, arguments: Vec::new() },
            Shape::Filter => orders.postcode(any(2)),
            Shape::Sum => orders::city(any(2)),
        };
        Asked { partition, arguments: vec![Argument::Text(text)] }
    }

    /// For the table of results.
    pub(crate) fn name(&self) -> String {
        let shape = match self.shape {
            Shape::Point => return "point read".to_owned(),
            Shape::Equality => "equality",
            Shape::Range => "range",
            Shape::Latest => "ORDER BY, TOP 10",
            Shape::Contains => "array contains",
            Shape::Join => "JOIN over an array, filtered",
            Shape::Count => "COUNT(1)",
            Shape::Filter => "filter",
            Shape::Sum => "filtered sum",
        };
        let scope = match (self.shape, self.scope) {
            (Shape::Filter | Shape::Sum, _) => ", path without index",
            (_, Scope::Small) => " in a partition of 100",
            (_, Scope::Large) => " in a partition of 1 %",
            (_, Scope::Across) => " across partitions",
        };
        format!("{shape}{scope}")
    }

    /// Whether the order of the rows is part of the answer.
    pub(crate) fn is_ordered(&self) -> bool {
        self.shape == Shape::Latest
    }
}

/// How many arguments a shape has, beside the partition.
fn arguments(shape: Shape) -> usize {
    match shape {
        Shape::Range => 2,
        Shape::Count => 0,
        _ => 1,
    }
}

/// The question for Orrery; for a point read, none.
fn text(shape: Shape, field: &str, of_item: &str) -> String {
    match shape {
        Shape::Point => String::new(),
        Shape::Equality => format!("SELECT * FROM c WHERE c.{field} = @a"),
        Shape::Range => "SELECT * FROM c WHERE c.total >= @a AND c.total < @b".to_owned(),
        Shape::Latest => {
            "SELECT TOP 10 * FROM c WHERE c.created < @a ORDER BY c.created DESC".to_owned()
        }
        Shape::Contains => "SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, @a)".to_owned(),
        Shape::Join => format!(
            "SELECT c.id, i.{of_item}, i.quantity FROM c JOIN i IN c.items \
             WHERE i.{of_item} = @a AND i.quantity >= 3"
        ),
        Shape::Count => "SELECT VALUE COUNT(1) FROM c".to_owned(),
        Shape::Filter => "SELECT * FROM c WHERE c.address.postcode = @a".to_owned(),
        Shape::Sum => "SELECT VALUE SUM(c.total) FROM c WHERE c.address.city < @a".to_owned(),
    }
}

/// The question for PostgreSQL, from after `SELECT` to the end of the condition.
fn sql(shape: Shape, table: &str, field: &str, of_item: &str) -> String {
    match shape {
        Shape::Point => format!("body FROM {table} WHERE id = $1"),
        Shape::Equality => format!("body FROM {table} WHERE body->>'{field}' = $1"),
        Shape::Range => format!(
            "body FROM {table} WHERE (body->>'total')::float8 >= $1::float8 \
             AND (body->>'total')::float8 < $2::float8"
        ),
        Shape::Latest => format!("body FROM {table} WHERE body->>'created' < $1"),
        Shape::Contains => {
            format!("body FROM {table} WHERE body->'tags' @> jsonb_build_array($1::text)")
        }
        // The index knows which orders have such an item, and the items are looked at again.
        Shape::Join => format!(
            "body->>'id', i->>'{of_item}', i->'quantity' \
             FROM {table}, jsonb_array_elements(body->'items') i \
             WHERE body->'items' @> jsonb_build_array(jsonb_build_object('{of_item}', $1::text)) \
             AND i->>'{of_item}' = $1 AND (i->>'quantity')::int >= 3"
        ),
        Shape::Count => format!("count(*) FROM {table} WHERE true"),
        Shape::Filter => format!("body FROM {table} WHERE body->'address'->>'postcode' = $1"),
        Shape::Sum => format!(
            "sum((body->>'total')::float8) FROM {table} WHERE body->'address'->>'city' < $1"
        ),
    }
}

impl Asked {
    /// The body of a query of Orrery: its text and parameters `@a`, `@b`.
    pub(crate) fn body(&self, text: &str) -> Bytes {
        let parameters = self.arguments.iter().zip(["a", "b"]).map(|(argument, name)| {
            let value = match argument {
                Argument::Text(text) => format!("\"{text}\""),
                Argument::Number(number) => number.to_string(),
            };
            format!(r#"{{"name":"@{name}","value":{value}}}"#)
        });
        let parameters: Vec<String> = parameters.collect();
        let parameters = parameters.join(",");
        Bytes::from(format!(r#"{{"query":"{text}","parameters":[{parameters}]}}"#))
    }

    /// What a prepared statement of PostgreSQL is given, the partition last.
    pub(crate) fn values(&self) -> Vec<String> {
        let arguments = self.arguments.iter().map(|argument| match argument {
            Argument::Text(text) => text.clone(),
            Argument::Number(number) => number.to_string(),
        });
        arguments.chain(self.partition.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_are_asked_the_same() {
        let orders = Orders { count: 10_000 };
        for question in Question::indexed() {
            let asked = question.asked(orders, 7);
            let body = value::Value::parse(&asked.body(&question.text)).unwrap();
            let parameters = body.get("parameters").unwrap().as_array().unwrap().len();
            let in_partition = usize::from(question.scope != Scope::Across);
            assert_eq!(asked.values().len(), parameters + in_partition, "{}", question.name());
            let last = format!("${}", asked.values().len());
            let beyond = format!("${}", asked.values().len() + 1);
            assert!(question.sql.contains(&last) && !question.sql.contains(&beyond));
        }
    }
}
