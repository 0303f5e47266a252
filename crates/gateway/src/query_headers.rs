//! What the answer to a query says about how it was found: metrics, indexes, advice.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use db::{FeedPage, IndexUse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use value::{Object, Value};

use crate::request::{IndexMetrics, Options};
use crate::response::QueryHeaders;

/// The headers that the request asked for.
pub(crate) fn query_headers(options: &Options, feed: &FeedPage, took_ms: f64) -> QueryHeaders {
    let index_use = feed.index_use.as_ref();
    QueryHeaders {
        metrics: options.query_metrics.then(|| metrics(feed, took_ms)),
        index_utilization: options
            .index_metrics
            .zip(index_use)
            .map(|(encoding, index_use)| index_utilization(index_use, encoding)),
        advice: options.query_advice.then(|| advice(&feed.advice)),
        // A missing header would send .NET back to the start of the query.
        requires_distribution: options.optimistic_direct.then_some(false),
    }
}

/// Figures as the service writes them. No semicolon at the end: the JavaScript SDK would take it for
/// a broken figure. What is not measured is not there.
fn metrics(feed: &FeedPage, took_ms: f64) -> String {
    let bytes: usize = feed.rows.iter().map(Bytes::len).sum();
    let ratio = match feed.loaded_documents {
        0 => 1.0,
        loaded => (feed.rows.len() as f64 / loaded as f64).min(1.0),
    };
    format!(
        "totalExecutionTimeInMs={took_ms:.2};retrievedDocumentCount={};retrievedDocumentSize={};\
         outputDocumentCount={};outputDocumentSize={bytes};indexUtilizationRatio={ratio:.2}",
        feed.loaded_documents,
        feed.loaded_bytes,
        feed.rows.len(),
    )
}

/// The rules that fit the query, for SDKs that know their texts.
fn advice(ids: &[&'static str]) -> String {
    let rule = |id: &&'static str| {
        let parameters = Value::Array(Vec::new());
        Value::Object(Object::from([("Id", Value::from(*id)), ("Params", parameters)]))
    };
    let rules = Value::Array(ids.iter().map(rule).collect());
    utf8_percent_encode(&rules.to_text(), NON_ALPHANUMERIC).to_string()
}

/// The indexes of a query in the encoding that the client reads.
fn index_utilization(index_use: &IndexUse, encoding: IndexMetrics) -> String {
    match encoding {
        IndexMetrics::Base64 => STANDARD.encode(flat(index_use).to_text()),
        IndexMetrics::UrlEncoded => {
            utf8_percent_encode(&nested(index_use).to_text(), NON_ALPHANUMERIC).to_string()
        }
    }
}

/// The older form: four lists.
fn flat(index_use: &IndexUse) -> Value {
    let single = |spec: &String| {
        Value::Object(Object::from([
            ("FilterExpression", Value::from("")),
            ("IndexSpec", Value::from(spec.as_str())),
            ("FilterPreciseSet", Value::from(true)),
            ("IndexPreciseSet", Value::from(true)),
            ("IndexImpactScore", Value::from("High")),
        ]))
    };
    let composite = |specs: &Vec<String>| {
        Value::Object(Object::from([
            ("IndexSpecs", texts(specs)),
            ("IndexPreciseSet", Value::from(true)),
            ("IndexImpactScore", Value::from("High")),
        ]))
    };
    let composites = |specs: &[Vec<String>]| Value::Array(specs.iter().map(composite).collect());
    Value::Object(Object::from([
        ("UtilizedSingleIndexes", Value::Array(index_use.used.iter().map(single).collect())),
        ("PotentialSingleIndexes", Value::Array(index_use.potential.iter().map(single).collect())),
        ("UtilizedCompositeIndexes", composites(&index_use.used_composites)),
        ("PotentialCompositeIndexes", composites(&index_use.potential_composites)),
    ]))
}

/// The newer form: what is used, and what would be.
fn nested(index_use: &IndexUse) -> Value {
    let single = |spec: &String| {
        Value::Object(Object::from([
            ("IndexSpec", Value::from(spec.as_str())),
            ("IndexImpactScore", Value::from("High")),
        ]))
    };
    let composite = |specs: &Vec<String>| {
        Value::Object(Object::from([
            ("IndexSpecs", texts(specs)),
            ("IndexImpactScore", Value::from("High")),
        ]))
    };
    let both = |single_specs: &[String], composite_specs: &[Vec<String>]| {
        Value::Object(Object::from([
            ("SingleIndexes", Value::Array(single_specs.iter().map(single).collect())),
            ("CompositeIndexes", Value::Array(composite_specs.iter().map(composite).collect())),
        ]))
    };
    Value::Object(Object::from([
        ("Utilized", both(&index_use.used, &index_use.used_composites)),
        ("Potential", both(&index_use.potential, &index_use.potential_composites)),
    ]))
}

fn texts(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(text.as_str())).collect())
}
