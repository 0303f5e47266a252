//! The headers of a request, found by name.
//!
//! A request carries a dozen headers out of the half hundred that mean something to us. Looking each
//! of those up would cost more than a point read, so the headers that are there are sorted into
//! places once, and what asks for one afterwards looks at its place.

use db::{Error, Result};
use hyper::HeaderMap;
use hyper::header::HeaderValue;

macro_rules! names {
    ($($name:ident = $text:literal;)+) => {
        /// The headers that mean something to us.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($name,)+ }

        const ALL: [Name; COUNT] = [$(Name::$name),+];

        /// How many there are.
        const COUNT: usize = [$(Name::$name),+].len();

        impl Name {
            /// As it stands on the wire.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Name::$name => $text,)+ }
            }

            fn find(text: &str) -> Option<Self> {
                match text { $($text => Some(Name::$name),)+ _ => None }
            }
        }
    };
}

names! {
    ActivityId = "x-ms-activity-id";
    AutopilotSettings = "x-ms-cosmos-offer-autopilot-settings";
    Authorization = "authorization";
    BatchAtomic = "x-ms-cosmos-batch-atomic";
    BatchContinueOnError = "x-ms-cosmos-batch-continue-on-error";
    ChangeFeed = "a-im";
    ChangeFormat = "x-ms-cosmos-changefeed-wire-format-version";
    ConsistencyLevel = "x-ms-consistency-level";
    ContentType = "content-type";
    Continuation = "x-ms-continuation";
    CorrelatedActivityId = "x-ms-cosmos-correlated-activityid";
    Date = "date";
    EmitTraces = "x-ms-documentdb-query-emit-traces";
    EnableCrossPartition = "x-ms-documentdb-query-enablecrosspartition";
    EnableLowPrecision = "x-ms-documentdb-query-enable-low-precision-order-by";
    EnableScan = "x-ms-documentdb-query-enable-scan";
    EndEpk = "x-ms-end-epk";
    Explain = "x-orrery-explain";
    ExpirySeconds = "x-ms-documentdb-expiry-seconds";
    IdempotencyToken = "x-ms-cosmos-idempotency-token";
    IfMatch = "if-match";
    IfModifiedSince = "if-modified-since";
    IfNoneMatch = "if-none-match";
    IndexMetrics = "x-ms-cosmos-populateindexmetrics";
    IndexMetricsV2 = "x-ms-cosmos-populateindexmetrics-v2";
    IndexingDirective = "x-ms-indexing-directive";
    IntendedContainer = "x-ms-cosmos-intended-collection-rid";
    IsBatch = "x-ms-cosmos-is-batch-request";
    IsPlan = "x-ms-cosmos-is-query-plan-request";
    IsQuery = "x-ms-documentdb-isquery";
    IsQueryInGo = "x-ms-documentdb-query";
    IsUpsert = "x-ms-documentdb-is-upsert";
    MaxItemCount = "x-ms-max-item-count";
    MigrateToAutopilot = "x-ms-cosmos-migrate-offer-to-autopilot";
    MigrateToManual = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    MsDate = "x-ms-date";
    OfferThroughput = "x-ms-offer-throughput";
    OperationType = "x-ms-cosmos-operation-type";
    OptimisticDirect = "x-ms-cosmos-query-optimisticdirectexecute";
    Parallelize = "x-ms-documentdb-query-parallelizecrosspartitionquery";
    PartitionKey = "x-ms-documentdb-partitionkey";
    PopulateQueryMetrics = "x-ms-documentdb-populatequerymetrics";
    PopulateQuota = "x-ms-documentdb-populatequotainfo";
    PopulateStatistics = "x-ms-documentdb-populatepartitionstatistics";
    PostTriggers = "x-ms-documentdb-post-trigger-include";
    PreTriggers = "x-ms-documentdb-pre-trigger-include";
    Prefer = "prefer";
    QueryAdvice = "x-ms-cosmos-populatequeryadvice";
    RangeId = "x-ms-documentdb-partitionkeyrangeid";
    ReadConsistency = "x-ms-cosmos-read-consistency-strategy";
    ReadKeyType = "x-ms-read-key-type";
    ResourceType = "x-ms-cosmos-resource-type";
    ScriptLogging = "x-ms-documentdb-script-enable-logging";
    SerializationFormat = "x-ms-documentdb-content-serialization-format";
    SessionToken = "x-ms-session-token";
    StartEpk = "x-ms-start-epk";
    SupportedFeatures = "x-ms-cosmos-supported-query-features";
    Version = "x-ms-version";
}

/// The headers of a request.
#[derive(Debug)]
pub(crate) struct Headers<'a> {
    values: [Option<&'a HeaderValue>; COUNT],
}

impl<'a> Headers<'a> {
    /// Sorts the headers. Of a header that comes twice, the first counts.
    pub(crate) fn new(map: &'a HeaderMap) -> Self {
        let mut values = [None; COUNT];
        for (name, value) in map {
            if let Some(name) = Name::find(name.as_str()) {
                values[name as usize].get_or_insert(value);
            }
        }
        Self { values }
    }

    /// Whether the header is there, whatever it says.
    pub(crate) fn has(&self, name: Name) -> bool {
        self.values[name as usize].is_some()
    }

    /// The header's text, if it is plain ASCII: for headers that are opaque or not ours to judge.
    pub(crate) fn plain(&self, name: Name) -> Option<&'a str> {
        self.values[name as usize]?.to_str().ok()
    }

    /// What scripts may read of the request: what is said about it, not who says so.
    pub(crate) fn for_scripts(&self) -> Vec<(String, String)> {
        let secrets = [Name::Authorization, Name::Date, Name::MsDate];
        let names = ALL.iter().filter(|name| !secrets.contains(name));
        let said = names.filter_map(|name| Some((name.as_str(), self.plain(*name)?)));
        said.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    /// The header's text.
    pub(crate) fn text(&self, name: Name) -> Result<Option<&'a str>> {
        let Some(value) = self.values[name as usize] else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| {
            let name = name.as_str();
            Error::bad_request(format!("the value of the header {name} is not UTF-8"))
        })?;
        Ok(Some(text.trim()))
    }

    /// The header's text, if it says anything: SDKs send empty headers for what is not set.
    pub(crate) fn said(&self, name: Name) -> Result<Option<&'a str>> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    /// The refusal of a value.
    pub(crate) fn invalid(name: Name, value: &str) -> Error {
        let name = name.as_str();
        Error::bad_request(format!("the value of the header {name} is invalid: '{value}'"))
    }

    /// A boolean, in any letter case.
    pub(crate) fn optional_flag(&self, name: Name) -> Result<Option<bool>> {
        match self.said(name)? {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(text) => Err(Self::invalid(name, text)),
        }
    }

    /// A boolean that is false where it is absent.
    pub(crate) fn flag(&self, name: Name) -> Result<bool> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: Name) -> Result<Option<T>> {
        match self.said(name)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| Self::invalid(name, text)),
        }
    }

    /// Refuses a header that says none of the words, in any letter case.
    pub(crate) fn check_word(&self, name: Name, allowed: &[&str]) -> Result<()> {
        match self.said(name)? {
            None => Ok(()),
            Some(text) if allowed.iter().any(|word| word.eq_ignore_ascii_case(text)) => Ok(()),
            Some(text) => Err(Self::invalid(name, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(text: &str) -> Option<Option<bool>> {
        let mut map = HeaderMap::new();
        map.insert("x-ms-documentdb-isquery", text.parse().unwrap());
        Headers::new(&map).optional_flag(Name::IsQuery).ok()
    }

    #[test]
    fn booleans_come_in_any_case() {
        for text in ["True", "true", "TRUE", " true "] {
            assert_eq!(flag(text), Some(Some(true)), "{text}");
        }
        assert_eq!(flag("False"), Some(Some(false)));
        assert_eq!(flag(""), Some(None));
        assert_eq!(flag("1"), None);
    }

    #[test]
    fn names_are_found_by_their_text() {
        for name in [Name::ActivityId, Name::IsQueryInGo, Name::Version] {
            assert_eq!(Name::find(name.as_str()), Some(name));
        }
        assert_eq!(Name::find("x-ms-other"), None);
    }
}
