//! Who shares one tree of files.

use crate::state::{Id, Slot};

pub use holdfast_crds::Isolation;

/// One tree of files. Two of them never share a file, whatever the ids in them say.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tree {
    /// The sessions of one user.
    User(Id),
    /// One session, and nobody else.
    Session(Slot),
    /// Everyone who talks to this agent.
    Agent,
    /// Every agent on the same Redis or volume.
    Global,
}

impl Tree {
    pub fn of(isolation: Isolation, slot: &Slot) -> Self {
        match (isolation, &slot.user) {
            (Isolation::User, Some(user)) => Self::User(user.clone()),
            // Nobody can tell one anonymous caller from another, so that they must not share.
            (Isolation::User, None) | (Isolation::Session, _) => Self::Session(slot.clone()),
            (Isolation::Agent, _) => Self::Agent,
            (Isolation::Global, _) => Self::Global,
        }
    }

    /// It goes when its session goes.
    pub const fn belongs_to_a_session(&self) -> bool {
        matches!(self, Self::Session(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(user: Option<&str>, session: &str) -> Slot {
        Slot::new(user, session).expect("a slot")
    }

    #[test]
    fn users_share_with_themselves_and_the_anonymous_with_nobody() {
        let tree = |user, session| Tree::of(Isolation::User, &slot(user, session));
        assert_eq!(tree(Some("a"), "1"), tree(Some("a"), "2"));
        assert_ne!(tree(Some("a"), "1"), tree(Some("b"), "1"));
        assert_ne!(tree(None, "1"), tree(None, "2"));
        assert_eq!(tree(None, "1"), Tree::of(Isolation::Session, &slot(None, "1")));
        assert_ne!(tree(None, "a"), tree(Some("a"), "a"));
    }

    #[test]
    fn the_other_isolations_share_as_they_say() {
        let (one, two) = (slot(Some("a"), "1"), slot(Some("a"), "2"));
        assert_ne!(Tree::of(Isolation::Session, &one), Tree::of(Isolation::Session, &two));
        assert_eq!(Tree::of(Isolation::Agent, &one), Tree::of(Isolation::Agent, &slot(None, "x")));
        assert_ne!(Tree::of(Isolation::Agent, &one), Tree::of(Isolation::Global, &one));
    }
}
