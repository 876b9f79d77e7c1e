//! Reading a request's body: bounded, in time, JSON, and told apart by what is wrong with it.

use std::time::Duration;

use axum::body::Body;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;

use super::problem::Problem;

/// The largest body of a call: many images, or a book.
pub const MAX_CALL_BYTES: usize = 8 << 20;
/// The largest state that can be put.
pub const MAX_STATE_BYTES: usize = 64 << 20;
/// The largest body of everything else.
pub const MAX_SMALL_BYTES: usize = 1 << 20;
/// A body that takes longer to arrive is given up.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A body that must be there.
pub async fn json<T: DeserializeOwned>(parts: &Parts, body: Body, limit: usize) -> Result<T, Problem> {
    must_be_json(&parts.headers)?;
    let bytes = bytes(&parts.headers, body, limit).await?;
    parse(&bytes)
}

/// A body that may be left out.
pub async fn json_or_default<T: DeserializeOwned + Default>(
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<T, Problem> {
    let bytes = bytes(&parts.headers, body, limit).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    must_be_json(&parts.headers)?;
    Ok(parse::<Option<T>>(&bytes)?.unwrap_or_default())
}

/// `application/json` or any `+json`; who says nothing means JSON.
fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media_type.eq_ignore_ascii_case(b"application/json")
        || media_type.to_ascii_lowercase().ends_with(b"+json")
    {
        return Ok(());
    }
    let detail = "the body is read as JSON; send it with content-type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not JSON's media type", detail))
}

/// All of it, of any kind.
pub async fn bytes(headers: &HeaderMap, body: Body, limit: usize) -> Result<bytes::Bytes, Problem> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(_)) => {
            Err(Problem::bad_request("body-incomplete", "the body ended early; send the request again"))
        }
        Err(_) => {
            let detail =
                format!("the body did not arrive within {} s; send it faster", BODY_TIMEOUT.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", "Too slow", detail))
        }
    }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("the body may have at most {limit} bytes; send less");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        // A wrong shape may be met before the place where it stops to be JSON at all.
        let is_json =
            error.classify() == Category::Data && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        if is_json {
            Problem::unprocessable(format!("the body is JSON of another shape: {error}"))
        } else {
            Problem::bad_request("not-json", format!("the body is not JSON: {error}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use futures::stream;

    /// Its first half at once, and the rest never.
    fn half() -> Body {
        let first = stream::iter([Ok::<_, std::io::Error>("{\"input\":")]);
        Body::from_stream(first.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let began = tokio::time::Instant::now();
        let problem = bytes(&HeaderMap::new(), half(), 100).await.expect_err("half a body");
        assert_eq!((problem.status.as_u16(), problem.name), (408, "body-too-slow"));
        assert_eq!(began.elapsed().as_secs(), BODY_TIMEOUT.as_secs());
    }
}
