//! Whose session a request is about: the three forms of an address, the headers that may carry the ids instead, and the
//! user the caller has proved to be.
//!
//! The router has matched the path's shape; the ids are cut from it here, undecoded, because an id may contain `/`.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::App;
use super::problem::Problem;
use crate::state::{CallId, Id, Slot};
use crate::workspace::{FileError, FilePath};

pub const USER_HEADER: &str = "holdfast-user";
pub const SESSION_HEADER: &str = "holdfast-session";

/// The session of those who name none.
const DEFAULT_SESSION: &str = "default";

/// What may stand in a path segment as it is.
const IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The session in a request's path, headers and credentials.
pub struct Address(pub Slot);

/// A call of that session.
pub struct CallAddress {
    pub slot: Slot,
    pub call: CallId,
}

/// A file of that session.
pub struct FileAddress {
    pub slot: Slot,
    pub path: FilePath,
}

/// A user, where no session is named.
pub struct UserAddress(pub Id);

impl FromRequestParts<App> for Address {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let named = Named::in_path(parts.uri.path());
        let user = user(app, &named, &parts.headers)?;
        let session = id("session", named.session, SESSION_HEADER, &parts.headers)?;
        let session = match session {
            Some(session) => session,
            None => Id::new("session", DEFAULT_SESSION)?,
        };
        Ok(Self(Slot { user, session }))
    }
}

impl FromRequestParts<App> for CallAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Address(slot) = Address::from_request_parts(parts, app).await?;
        let call = Named::in_path(parts.uri.path()).call.ok_or_else(Problem::no_route)?;
        Ok(Self { slot, call: Id::new("call", decode("the call's path segment", call)?)? })
    }
}

impl FromRequestParts<App> for FileAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Address(slot) = Address::from_request_parts(parts, app).await?;
        let path = Named::in_path(parts.uri.path()).file.ok_or_else(Problem::no_route)?;
        let path = FilePath::new(&decode("the file's path", path)?).map_err(FileError::from)?;
        Ok(Self { slot, path })
    }
}

impl FromRequestParts<App> for UserAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let named = Named::in_path(parts.uri.path());
        user(app, &named, &parts.headers)?.map(Self).ok_or_else(|| {
            Problem::bad_request(
                "no-user",
                "sessions are listed by user; name one as in /v1/users/{user}/sessions",
            )
        })
    }
}

/// The caller's proven user, or the one it names where it may.
fn user(app: &App, named: &Named<'_>, headers: &HeaderMap) -> Result<Option<Id>, Problem> {
    let proven = app.auth().user(headers)?;
    let claimed = if app.auth().takes_user_from(USER_HEADER) {
        // The gateway's header, not the caller's: it is the proof itself.
        id("user", named.user, USER_HEADER, &HeaderMap::new())?
    } else {
        id("user", named.user, USER_HEADER, headers)?
    };
    match (proven, claimed) {
        (Some(proven), Some(claimed)) if proven != claimed => Err(Problem::forbidden(
            "this path names another user than the one you are; leave the user out of it",
        )),
        (Some(proven), _) => Ok(Some(proven)),
        (None, claimed) => Ok(claimed),
    }
}

/// The undecoded ids in a path.
#[derive(Debug, Default, PartialEq)]
struct Named<'a> {
    user: Option<&'a str>,
    session: Option<&'a str>,
    call: Option<&'a str>,
    /// With its slashes.
    file: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn in_path(path: &'a str) -> Self {
        let mut rest = path.strip_prefix("/v1/").unwrap_or_default();
        let user = next_after("users", &mut rest);
        let session = next_after("sessions", &mut rest);
        let call = next_after("calls", &mut rest);
        let file = rest.strip_prefix("files/").filter(|_| call.is_none());
        Self { user, session, call, file }
    }
}

/// The segment after `word`, if that comes first; then the rest is what comes behind it.
fn next_after<'a>(word: &str, rest: &mut &'a str) -> Option<&'a str> {
    let behind = rest.strip_prefix(word)?.strip_prefix('/')?;
    let (segment, others) = behind.split_once('/').unwrap_or((behind, ""));
    *rest = others;
    Some(segment)
}

fn id(
    what: &'static str,
    segment: Option<&str>,
    header: &'static str,
    headers: &HeaderMap,
) -> Result<Option<Id>, Problem> {
    let mut values = headers.get_all(header).iter();
    let given = values.next();
    if values.next().is_some() {
        let detail = format!("the header {header} is there more than once; send one");
        return Err(Problem::bad_request("ambiguous-address", detail));
    }
    let given = match given {
        Some(value) => Some(value.to_str().map_err(|_| {
            Problem::bad_request("bad-id", format!("the header {header} must be percent-encoded ASCII"))
        })?),
        None => None,
    };
    let named = match (segment, given) {
        (Some(segment), Some(given)) if segment != given => {
            let detail =
                format!("the {what} stands in the path and in the header {header}; keep one of them");
            return Err(Problem::bad_request("ambiguous-address", detail));
        }
        (Some(segment), _) => (segment, "the path"),
        (None, Some(given)) => (given, header),
        (None, None) => return Ok(None),
    };
    let (encoded, place) = named;
    Ok(Some(Id::new(what, decode(place, encoded)?)?))
}

/// Strict: what is not an encoding is a mistake, and never an id that looks like one.
fn decode(place: &str, encoded: &str) -> Result<String, Problem> {
    if !encoded.contains('%') {
        return Ok(encoded.to_owned());
    }
    let mut rest = encoded.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let digits = rest.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        if !digits {
            let detail =
                format!("a % in {place} is not followed by two hex digits; write %25 for a percent sign");
            return Err(Problem::bad_request("bad-encoding", detail));
        }
        rest = &rest[at + 3..];
    }
    let decoded = percent_decode_str(encoded).decode_utf8();
    decoded.map(String::from).map_err(|_| {
        Problem::bad_request(
            "bad-encoding",
            format!("{place} does not decode to UTF-8; encode the id's UTF-8 bytes"),
        )
    })
}

/// An id as it stands in a path.
pub fn encode(id: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(id, IN_A_SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_from_the_path_by_their_place() {
        let named = Named::in_path("/v1/users/calls/sessions/users/calls/sessions/events");
        let expected =
            Named { user: Some("calls"), session: Some("users"), call: Some("sessions"), file: None };
        assert_eq!(named, expected);
        assert_eq!(Named::in_path("/v1/calls"), Named::default());
        assert_eq!(Named::in_path("/v1/calls/c1/retry").call, Some("c1"));
        assert_eq!(Named::in_path("/v1/sessions/a%2Fb/state").session, Some("a%2Fb"));
        let file = Named::in_path("/v1/users/u/sessions/s/files/sessions/x//files/a%2F");
        assert_eq!((file.session, file.file), (Some("s"), Some("sessions/x//files/a%2F")));
        assert_eq!(Named::in_path("/v1/files/users/u").file, Some("users/u"));
        assert_eq!(Named::in_path("/v1/files").file, None);
    }

    #[test]
    fn every_id_survives_being_encoded() {
        for id in ["a/b", "..", "a\nb", "100%", "😀", "%41", " ", "?#[]"] {
            let encoded = encode(id).to_string();
            assert!(!encoded.contains(['/', '?', '#', '\n', ' ']), "{encoded}");
            assert_eq!(decode("the path", &encoded).expect("decodes"), id);
        }
    }

    #[test]
    fn what_is_not_an_encoding_is_refused() {
        for wrong in ["%", "a%4", "%zz", "100%", "%ff", "%C3%28"] {
            assert_eq!(decode("the path", wrong).expect_err(wrong).name, "bad-encoding");
        }
    }
}
