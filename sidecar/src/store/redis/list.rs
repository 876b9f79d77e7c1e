//! A user's sessions, latest change first, a page at a time.
//!
//! The index knows when a session last changed, its head which version it has and whether it is still there. A script
//! may only touch the keys it was given, so the heads are read in a second round trip.

use redis::Value;

use super::RedisStore;
use super::decode::{Answer, SessionRecord};
use super::keys::Key;
use super::script::Invocation;
use crate::state::{Id, Slot};
use crate::store::contract::{Millis, SessionPage, SessionRow};
use crate::store::error::StoreError;

/// How many rows of the index are looked at in one go, at least.
const STRETCH: usize = 64;

impl RedisStore {
    pub(super) async fn page(
        &self,
        user: &Id,
        limit: usize,
        after: Option<(Millis, Id)>,
    ) -> Result<SessionPage, StoreError> {
        let up_to = after.as_ref().map_or_else(|| "+inf".to_owned(), |(updated, _)| updated.to_string());
        let mut rows: Vec<SessionRow> = Vec::new();
        let mut skip = 0;
        // One row more than asked for tells whether there is a next page.
        while rows.len() <= limit {
            let stretch = (limit + 1 - rows.len()).max(STRETCH);
            let (now, indexed) = self.stretch(user, &up_to, skip, stretch).await?;
            skip += indexed.len();
            let last = indexed.len() < stretch;
            let later = |(updated, session): &(Millis, Id)| {
                after.as_ref().is_none_or(|(at, id)| (updated, session) < (at, id))
            };
            let wanted: Vec<_> = indexed.into_iter().filter(later).collect();
            rows.extend(self.heads(user, now, wanted).await?);
            if last {
                break;
            }
        }
        let next = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| next).map(SessionRow::cursor);
        Ok(SessionPage { sessions: rows, next })
    }

    async fn stretch(
        &self,
        user: &Id,
        up_to: &str,
        skip: usize,
        limit: usize,
    ) -> Result<(Millis, Vec<(Millis, Id)>), StoreError> {
        let key = self.names.sessions(user);
        let keys = vec![(Key::Sessions.kind(), key.clone())];
        let invocation = Invocation::with_keys(&self.scripts.list, keys)
            .arg("upTo", up_to)
            .arg("skip", skip)
            .arg("limit", limit);
        let mut answer = Answer::of(self.run(invocation).await?)?;
        let now = answer.number("a time")?;
        let mut entries = answer.list("sessions")?;
        let mut indexed = Vec::new();
        while !entries.is_empty() {
            let session = Id::new("session", entries.text("a session")?)
                .map_err(|_| StoreError::Corrupt(format!("{key} has an entry that is no session")))?;
            indexed.push((entries.number("a time")?, session));
        }
        Ok((now, indexed))
    }

    /// The rows of those that are still there.
    async fn heads(
        &self,
        user: &Id,
        now: Millis,
        wanted: Vec<(Millis, Id)>,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let Some((_, first)) = wanted.first() else { return Ok(Vec::new()) };
        let head = |session: &Id| {
            let slot = Slot { user: Some(user.clone()), session: session.clone() };
            self.names.slot(&slot).key(Key::Head, None).unwrap_or_default()
        };
        let route = head(first);
        let mut read = redis::pipe();
        for (_, session) in &wanted {
            read.cmd("HGET").arg(head(session)).arg("s");
        }
        let heads = self.link.send_all(&route, &read).await?;
        let mut rows = Vec::new();
        for ((updated, session), head) in wanted.into_iter().zip(heads) {
            let Value::BulkString(bytes) = head else { continue };
            let session_there = SessionRecord::read(&bytes)?;
            let (version, expires) = (session_there.head.version, session_there.expires);
            if expires > now {
                rows.push(SessionRow { session, updated, version });
            }
        }
        Ok(rows)
    }
}
