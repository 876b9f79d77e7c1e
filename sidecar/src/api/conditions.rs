//! The headers by which a client says what it has, and what it is about to replace.

use http::header::{HeaderName, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};

use super::problem::Problem;

/// Whether the client has this already: one of its etags, weak or not.
pub fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.trim_start_matches("W/").as_bytes() == etag.as_bytes())
}

/// A condition's one value.
pub fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(value) if values.next().is_none() => Ok(Some(value.trim())),
        _ => Err(Problem::bad_request("bad-condition", format!("send one {name}, with one version"))),
    }
}
