//! Who is asking: the signature of a request.
//!
//! A client signs verb, resource type, resource link and date with an account key. SDKs differ in
//! how they spell the link (decoded, still encoded, or the lower-cased resource id alone) and in how
//! they encode the header, so a signature is good if it fits any of the spellings that the path
//! allows. Every comparison takes the same time whether it succeeds or not.
//!
//! What the caller may do with which resource is decided later, when both are known. Resource tokens
//! are only recognised here; the database made them and verifies them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use db::{Error, Kind, Result};
use percent_encoding::percent_decode_str;
use value::Value;

use crate::keys::Keys;
use crate::router::Subject;

/// Who is asking, as far as the request alone tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Caller {
    /// Signed with a key that may do everything.
    Owner,
    /// Signed with a key that may only read.
    Reader,
    /// Holds a resource token, not verified yet: the part after `sig=`.
    Bearer(String),
    /// Holds an AAD token: documents, but no control operations.
    Directory,
}

/// What the signature covers, and the authorization itself.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The HTTP method as sent.
    pub method: &'a str,
    /// What is addressed.
    pub subject: &'a Subject,
    /// `authorization`.
    pub authorization: Option<&'a str>,
    /// `x-ms-date`.
    pub ms_date: Option<&'a str>,
    /// `date`, used where `x-ms-date` is absent.
    pub date: Option<&'a str>,
}

/// The rules of the account.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The keys that may sign.
    pub keys: &'a Keys,
    /// Whether the emulator's test tokens are accepted.
    pub accept_test_tokens: bool,
    /// The time.
    pub now_ms: u64,
}

/// How far a client's clock may be from ours, either way.
const SKEW_MS_MAX: u64 = 15 * 60 * 1_000;

/// Longer headers are refused before they are looked at; resource tokens are a few hundred bytes,
/// AAD tokens a few thousand.
const AUTHORIZATION_BYTES_MAX: usize = 16 * 1024;

/// Finds out who is asking.
pub fn authenticate(rules: &Rules<'_>, signed: &Signed<'_>) -> Result<Caller> {
    let Some(header) = signed.authorization else {
        return Err(Error::new(
            Kind::AuthorizationMissing,
            "Required Header authorization is missing. Ensure a valid Authorization token is passed.",
        ));
    };
    match Credential::parse(header)? {
        Credential::Signature(signature) => check_signature(rules, signed, &signature),
        Credential::ResourceToken(token) => Ok(Caller::Bearer(token)),
        Credential::Aad(token) => check_test_token(rules, &token),
    }
}

/// The three forms of the authorization header.
#[derive(Debug, PartialEq)]
enum Credential {
    Signature(Vec<u8>),
    ResourceToken(String),
    Aad(String),
}

impl Credential {
    fn parse(header: &str) -> Result<Self> {
        let malformed = |what: &str| {
            Error::new(
                Kind::AuthorizationMalformed,
                format!(
                    "The authorization header is malformed: {what}. \
                     Expected type={{master|resource|aad}}&ver=1.0&sig={{…}}, URL-encoded"
                ),
            )
        };
        if header.len() > AUTHORIZATION_BYTES_MAX {
            return Err(malformed("too long"));
        }
        // Neither base64 nor a JWT contains a percent sign, so text without one decodes to itself.
        let text = percent_decode_str(header.trim())
            .decode_utf8()
            .map_err(|_| malformed("not UTF-8 after URL-decoding"))?;
        let mut parts = text.splitn(3, '&');
        let mut part = |name: &str| {
            parts.next().and_then(|part| {
                let (key, value) = part.split_once('=')?;
                key.eq_ignore_ascii_case(name).then_some(value)
            })
        };
        let kind = part("type").ok_or_else(|| malformed("it has no type"))?;
        let version = part("ver").ok_or_else(|| malformed("it has no version"))?;
        let signature = part("sig").ok_or_else(|| malformed("it has no signature"))?;
        if version != "1.0" && version != "1" {
            return Err(malformed("its version is not 1.0"));
        }
        match kind.to_ascii_lowercase().as_str() {
            "master" => {
                let signature = STANDARD
                    .decode(signature)
                    .map_err(|_| malformed("its signature is not base64"))?;
                Ok(Credential::Signature(signature))
            }
            "resource" => Ok(Credential::ResourceToken(signature.to_owned())),
            "aad" => Ok(Credential::Aad(signature.to_owned())),
            _ => Err(malformed("its type is unknown")),
        }
    }
}

fn check_signature(rules: &Rules<'_>, signed: &Signed<'_>, signature: &[u8]) -> Result<Caller> {
    let payloads = payloads(signed);
    let fits = |key: &crate::keys::Key| {
        payloads.iter().any(|payload| key.signed(payload.as_bytes(), signature))
    };
    let caller = if rules.keys.read_write().any(fits) {
        Caller::Owner
    } else if rules.keys.read_only().any(fits) {
        Caller::Reader
    } else {
        let payload = payloads.first().map_or("", String::as_str);
        return Err(Error::new(
            Kind::Unauthorized,
            format!(
                "The input authorization token can't serve the request. The wrong key is being \
                 used or the expected payload is not built as per the protocol. For more info: \
                 https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to \
                 sign: '{payload}'"
            ),
        ));
    };
    check_date(rules, signed)?;
    Ok(caller)
}

/// Every text that a client may have signed, the usual one first.
fn payloads(signed: &Signed<'_>) -> Vec<String> {
    let verb = signed.method.to_ascii_lowercase();
    let kind = signed.subject.resource_type;
    let ms_date = signed.ms_date.unwrap_or("").to_lowercase();
    let date = signed.date.unwrap_or("").to_lowercase();
    // With `x-ms-date` the last line is empty, also where something on the way added a `date`.
    let mut dates = Vec::with_capacity(2);
    if !ms_date.is_empty() {
        dates.push((ms_date.as_str(), ""));
    }
    if ms_date.is_empty() || !date.is_empty() {
        dates.push((ms_date.as_str(), date.as_str()));
    }
    let mut payloads = Vec::with_capacity(4);
    for (ms_date, date) in dates {
        for link in signed.subject.links() {
            payloads.push(format!("{verb}\n{kind}\n{link}\n{ms_date}\n{date}\n"));
        }
    }
    payloads
}

fn check_date(rules: &Rules<'_>, signed: &Signed<'_>) -> Result<()> {
    let Some(text) = signed.ms_date.filter(|date| !date.is_empty()).or(signed.date) else {
        return Err(Error::new(
            Kind::Unauthorized,
            "The request has no date: pass x-ms-date or date in RFC 1123 form.",
        ));
    };
    let signed_ms = parse_date_ms(text).ok_or_else(|| {
        Error::new(
            Kind::Unauthorized,
            format!(
                "The input date header is invalid format. Please pass in RFC 1123 style date \
                 format: '{text}'"
            ),
        )
    })?;
    if rules.now_ms.abs_diff(signed_ms) > SKEW_MS_MAX {
        return Err(Error::new(
            Kind::Forbidden,
            format!(
                "The authorization token is not valid at the current time. Please create another \
                 token and retry (token start time: {}, token expiry time: {}, current server \
                 time: {}).",
                format_date(signed_ms),
                format_date(signed_ms.saturating_add(SKEW_MS_MAX)),
                format_date(rules.now_ms),
            ),
        ));
    }
    Ok(())
}

/// Reads an RFC 1123 date in any letter case; `UTC` is as good as `GMT`.
pub(crate) fn parse_date_ms(text: &str) -> Option<u64> {
    let mut words = Vec::new();
    for word in text.split_ascii_whitespace().take(7) {
        words.push(capitalised(word));
    }
    let zone = words.last_mut()?;
    if zone.eq_ignore_ascii_case("gmt") || zone.eq_ignore_ascii_case("utc") {
        *zone = "GMT".to_owned();
    }
    let time = httpdate::parse_http_date(&words.join(" ")).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters.map(|c| c.to_ascii_lowercase())).collect()
}

/// Writes an RFC 1123 date. The format ends with the year 9999, and so do we.
pub(crate) fn format_date(ms: u64) -> String {
    const YEAR_9999_MS: u64 = 253_402_300_799_000;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.min(YEAR_9999_MS));
    httpdate::fmt_http_date(time)
}

/// Accepts the emulator's test tokens: an unsigned JWT whose third part is the key itself.
fn check_test_token(rules: &Rules<'_>, token: &str) -> Result<Caller> {
    let refuse = |why: &str| {
        Error::new(Kind::Unauthorized, format!("The AAD token cannot be accepted: {why}"))
    };
    if !rules.accept_test_tokens {
        return Err(refuse("AAD authentication is not enabled on this server"));
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(proof), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(refuse("it is not a JWT"));
    };
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok();
    let proof = decode(proof).ok_or_else(|| refuse("its signature is not base64url"))?;
    if !rules.keys.read_write().any(|key| key.is(&proof)) {
        return Err(refuse("its signature is wrong"));
    }
    let claims = decode(claims)
        .and_then(|claims| Value::parse(&claims).ok())
        .ok_or_else(|| refuse("its claims are not JSON"))?;
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
    let now = rules.now_ms as f64 / 1_000.0;
    match (seconds("nbf"), seconds("exp")) {
        (Some(from), _) if now < from => Err(refuse("it is not valid yet")),
        (_, Some(until)) if now >= until => Err(refuse("it has expired")),
        (_, None) => Err(refuse("it has no expiry")),
        _ => Ok(Caller::Directory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{EMULATOR_KEY, Key};
    use crate::router::route;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
    const NOW_MS: u64 = 1_493_254_272_000;
    const REFERENCE_KEY: &str =
        "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";

    fn ask(keys: &Keys, method: &str, path: &str, authorization: &str) -> Result<Caller> {
        ask_at(keys, method, path, authorization, NOW_MS)
    }

    fn ask_at(
        keys: &Keys,
        method: &str,
        path: &str,
        authorization: &str,
        now_ms: u64,
    ) -> Result<Caller> {
        let route = route(path).unwrap();
        let signed = Signed {
            method,
            subject: &route.subject,
            authorization: Some(authorization),
            ms_date: Some(DATE),
            date: None,
        };
        authenticate(&Rules { keys, accept_test_tokens: true, now_ms }, &signed)
    }

    fn keys() -> Keys {
        Keys::single(Key::parse(EMULATOR_KEY).unwrap())
    }

    fn master(signature: &str) -> String {
        let plain = format!("type=master&ver=1.0&sig={signature}");
        utf8_percent_encode(&plain, NON_ALPHANUMERIC).to_string()
    }

    #[test]
    fn golden_vectors_are_accepted() {
        let reference = Keys::single(Key::parse(REFERENCE_KEY).unwrap());
        let signature = master("c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=");
        assert_eq!(ask(&reference, "GET", "/dbs/ToDoList", &signature).unwrap(), Caller::Owner);
        for (method, path, signature) in [
            ("GET", "/", "gFB1bRB/PLJTG3bCgMuoVgNzOyFvZAamzEtLuSITjRc="),
            ("GET", "/dbs", "Bk4MqbjRdQImb4Rqp5pmqv1/OhkMQU93qlTmk/SzVRQ="),
            ("POST", "/dbs/", "CHjhNtQltyEuPdWLf2/f+hSkSlYg+7UuFlwMyv8L7mI="),
            ("GET", "/dbs/ToDoList/colls/Items", "FiUZeVDIAuovEy4sy25x1XQMXJ1EAGf0q/7v5jjpB0o="),
            (
                "POST",
                "//dbs/ToDoList/colls/Items/docs/",
                "xsGOVdJuhdfCMSf88b/z4eUsnekTR9zZqIIh8juDTYo=",
            ),
            (
                "GET",
                "/dbs/ToDoList/colls/Items/docs/a%20b",
                "cfOpPMFu9uy8BH5LRp0DC+h9MWHFmDWcw2Tu2TKMH2o=",
            ),
        ] {
            let caller = ask(&keys(), method, path, &master(signature));
            assert_eq!(caller.unwrap(), Caller::Owner, "{method} {path}");
            let plain = format!("type=master&ver=1.0&sig={signature}");
            assert_eq!(ask(&keys(), method, path, &plain).unwrap(), Caller::Owner, "plain");
            let lower = master(signature).replace("%3D", "%3d").replace("%2F", "%2f");
            assert_eq!(ask(&keys(), method, path, &lower).unwrap(), Caller::Owner, "lower hex");
            let wrong = ask(&keys(), "DELETE", path, &master(signature)).unwrap_err();
            assert_eq!(wrong.kind, Kind::Unauthorized, "another verb");
        }
    }

    #[test]
    fn the_encoded_path_and_the_lower_cased_rid_may_be_signed() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let date = DATE.to_lowercase();
        for (path, kind, link) in [
            ("/dbs/a%20b", "dbs", "dbs/a%20b"),
            ("/dbs/a%20b", "dbs", "dbs/a b"),
            ("/dbs/tLRRAA==/colls/tLRRAKmCwMI=", "colls", "tlrrakmcwmi="),
            ("/dbs/tLRRAA==/colls/tLRRAKmCwMI=/docs", "docs", "tlrrakmcwmi="),
            ("/dbs/tLRRAA%3D%3D/colls/tLRRAKmCwMI%3D/pkranges", "pkranges", "tlrrakmcwmi="),
            ("/offers/Xl9v", "offers", "xl9v"),
        ] {
            let signature = key.sign(format!("get\n{kind}\n{link}\n{date}\n\n").as_bytes());
            let caller = ask(&keys(), "GET", path, &master(&signature));
            assert_eq!(caller.unwrap(), Caller::Owner, "{path} as {link}");
        }
    }

    #[test]
    fn a_name_that_is_no_rid_may_not_stand_alone() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let payload = format!("get\ndbs\nname\n{}\n\n", DATE.to_lowercase());
        let signature = key.sign(payload.as_bytes());
        assert!(ask(&keys(), "GET", "/dbs/Name", &master(&signature)).is_err());
    }

    #[test]
    fn keys_have_their_rights() {
        let other = "b3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXk=";
        let mut keys = keys();
        keys.primary_read_only = Some(Key::parse(other).unwrap());
        let payload = format!("get\ndbs\n\n{}\n\n", DATE.to_lowercase());
        let signature = Key::parse(other).unwrap().sign(payload.as_bytes());
        assert_eq!(ask(&keys, "GET", "/dbs", &master(&signature)).unwrap(), Caller::Reader);
        keys.secondary = Some(Key::parse(other).unwrap());
        assert_eq!(ask(&keys, "GET", "/dbs", &master(&signature)).unwrap(), Caller::Owner);
    }

    #[test]
    fn a_wrong_signature_is_told_what_to_sign() {
        let error = ask(&keys(), "GET", "/dbs/X", &master("AAAA")).unwrap_err();
        assert_eq!(error.kind, Kind::Unauthorized);
        let payload = "'get\ndbs\ndbs/X\nthu, 27 apr 2017 00:51:12 gmt\n\n'";
        assert!(error.message.contains(payload), "{}", error.message);
    }

    #[test]
    fn the_date_must_be_near() {
        let signature = master("Bk4MqbjRdQImb4Rqp5pmqv1/OhkMQU93qlTmk/SzVRQ=");
        for (offset_ms, fits) in
            [(0, true), (899_000, true), (-899_000, true), (901_000, false), (-901_000, false)]
        {
            let now_ms = NOW_MS.checked_add_signed(offset_ms).unwrap();
            let result = ask_at(&keys(), "GET", "/dbs", &signature, now_ms);
            match result {
                Ok(_) => assert!(fits, "{offset_ms}"),
                Err(error) => {
                    assert!(!fits, "{offset_ms}");
                    assert_eq!(error.kind, Kind::Forbidden);
                    assert!(error.message.contains(DATE));
                }
            }
        }
    }

    #[test]
    fn a_plain_date_header_may_be_signed_instead() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let payload = format!("get\ndbs\n\n\n{}\n", DATE.to_lowercase());
        let authorization = master(&key.sign(payload.as_bytes()));
        let route = route("/dbs").unwrap();
        let signed = Signed {
            method: "GET",
            subject: &route.subject,
            authorization: Some(&authorization),
            ms_date: None,
            date: Some(DATE),
        };
        let keys = keys();
        let rules = Rules { keys: &keys, accept_test_tokens: false, now_ms: NOW_MS };
        assert_eq!(authenticate(&rules, &signed).unwrap(), Caller::Owner);
        let undated = Signed { date: None, ..signed };
        assert_eq!(authenticate(&rules, &undated).unwrap_err().kind, Kind::Unauthorized);
    }

    #[test]
    fn malformed_headers_are_refused() {
        for header in [
            "",
            "type=master",
            "type=master&ver=1.0",
            "type=master&ver=2.0&sig=AAAA",
            "type=master&ver=1.0&sig=***",
            "type=sas&ver=1.0&sig=AAAA",
            "ver=1.0&type=master&sig=AAAA",
            "%ff%fe",
            "Bearer abc",
            "type%3dmaster%26ver%3d1.0%26sig%3d%",
        ] {
            let error = ask(&keys(), "GET", "/dbs", header).unwrap_err();
            assert_eq!(error.kind, Kind::AuthorizationMalformed, "{header}");
        }
        let long = "a".repeat(AUTHORIZATION_BYTES_MAX + 1);
        assert!(ask(&keys(), "GET", "/dbs", &long).is_err());
    }

    #[test]
    fn resource_tokens_are_passed_on_decoded() {
        let caller = ask(&keys(), "GET", "/dbs", "type%3Dresource%26ver%3D1%26sig%3Da%3D%3Bb%3B");
        assert_eq!(caller.unwrap(), Caller::Bearer("a=;b;".into()));
    }

    #[test]
    fn test_tokens_need_the_key_and_a_time() {
        let token = |claims: &str, key: &str| {
            let parts = ["{}", claims, key].map(|part| URL_SAFE_NO_PAD.encode(part));
            format!("type=aad&ver=1.0&sig={}", parts.join("."))
        };
        let now = NOW_MS / 1_000;
        let valid = format!("{{\"nbf\":{},\"exp\":{}}}", now - 1, now + 60);
        let expired = format!("{{\"nbf\":1,\"exp\":{now}}}");
        let early = format!("{{\"nbf\":{},\"exp\":{}}}", now + 5, now + 60);
        let ask = |header: &str| ask(&keys(), "GET", "/dbs", header);
        assert_eq!(ask(&token(&valid, EMULATOR_KEY)).unwrap(), Caller::Directory);
        for header in [
            token(&valid, "another key"),
            token(&expired, EMULATOR_KEY),
            token(&early, EMULATOR_KEY),
            token("{}", EMULATOR_KEY),
            token("not json", EMULATOR_KEY),
            "type=aad&ver=1.0&sig=abc".to_owned(),
        ] {
            assert_eq!(ask(&header).unwrap_err().kind, Kind::Unauthorized, "{header}");
        }
    }

    #[test]
    fn dates_are_read_in_any_case() {
        for text in [DATE, "thu, 27 apr 2017 00:51:12 gmt", "Thu, 27 Apr 2017 00:51:12 UTC"] {
            assert_eq!(parse_date_ms(text), Some(NOW_MS), "{text}");
        }
        for text in ["", "yesterday", "27 Apr 2017", "2017-04-27T00:51:12Z"] {
            assert_eq!(parse_date_ms(text), None, "{text}");
        }
        assert_eq!(format_date(NOW_MS), DATE);
        format_date(u64::MAX);
    }
}
