//! Browsers: which pages may call the server, and which headers they may see.
//!
//! A browser asks before it sends a request with headers of its own (the preflight), without any
//! authorization, and shows a page only those headers of an answer that the server exposes.

use bytes::Bytes;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use hyper::{HeaderMap, Method, Response, StatusCode};

use crate::config::Origins;

/// The answer to a preflight, if the request is one.
pub(crate) fn preflight(
    origins: &Origins,
    method: &Method,
    headers: &HeaderMap,
) -> Option<Response<Bytes>> {
    if method != Method::OPTIONS {
        return None;
    }
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) && allowed(origins, headers).is_some() {
        let out = response.headers_mut();
        let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    }
    Some(response)
}

/// Lets a page see an answer, if it may.
pub(crate) fn expose(origins: &Origins, asked: &HeaderMap, answer: &mut HeaderMap) {
    let Some(origin) = allowed(origins, asked) else { return };
    let mut names: Vec<&str> = answer
        .keys()
        .map(hyper::header::HeaderName::as_str)
        .filter(|name| name.starts_with("x-ms-") || matches!(*name, "etag" | "lsn" | "date"))
        .collect();
    names.sort_unstable();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.insert(VARY, HeaderValue::from_static("origin"));
}

/// What the answer says about the page's origin, if the page may call us.
fn allowed(origins: &Origins, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    match origins {
        Origins::None => None,
        Origins::Any => Some(HeaderValue::from_static("*")),
        Origins::Only(list) => {
            let listed = list.iter().any(|known| {
                origin.as_bytes().eq_ignore_ascii_case(known.trim_end_matches('/').as_bytes())
            });
            listed.then(|| origin.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(origin: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static(origin));
        headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("x-ms-date"));
        headers
    }

    fn origin_allowed(origins: &Origins, origin: &'static str) -> Option<String> {
        let asked = asked(origin);
        let mut response = preflight(origins, &Method::OPTIONS, &asked).unwrap();
        expose(origins, &asked, response.headers_mut());
        let headers = response.headers();
        let origin = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN)?;
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_HEADERS], "x-ms-date");
        Some(origin.to_str().unwrap().to_owned())
    }

    #[test]
    fn only_listed_pages_may_call() {
        let only = Origins::Only(vec!["https://a.test/".into()]);
        assert_eq!(origin_allowed(&Origins::None, "https://a.test"), None);
        assert_eq!(origin_allowed(&Origins::Any, "https://a.test").unwrap(), "*");
        assert_eq!(origin_allowed(&only, "https://a.test").unwrap(), "https://a.test");
        assert_eq!(origin_allowed(&only, "https://b.test"), None);
    }

    #[test]
    fn other_methods_are_no_preflight() {
        assert!(preflight(&Origins::Any, &Method::GET, &asked("https://a.test")).is_none());
    }

    #[test]
    fn answers_expose_what_pages_need() {
        let mut answer = HeaderMap::new();
        for name in ["x-ms-request-charge", "etag", "server"] {
            answer.insert(name, HeaderValue::from_static("1"));
        }
        expose(&Origins::Any, &asked("https://a.test"), &mut answer);
        assert_eq!(answer[ACCESS_CONTROL_EXPOSE_HEADERS], "etag, x-ms-request-charge");
    }
}
