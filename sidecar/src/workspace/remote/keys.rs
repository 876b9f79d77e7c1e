//! The names of a tree's keys.

use crate::state::Slot;
use crate::store::redis::{Script, encode, slot_name};
use crate::workspace::tree::Tree;

pub(super) struct TreeKeys {
    stem: String,
}

impl TreeKeys {
    /// The hash tag is all that tells one tree from another, so that a tree lives in one slot of a cluster and two of
    /// them, as a rule, in two.
    pub(super) fn new(prefix: &str, tree: &Tree) -> Self {
        let tag = match tree {
            Tree::Agent => format!("{prefix}/a"),
            Tree::User(user) => format!("{prefix}/u.{}", encode(user)),
            Tree::Session(slot) => format!("{prefix}/s.{}", slot_name(slot)),
            Tree::Global => "/global".to_owned(),
        };
        Self { stem: format!("hf:{{{tag}}}") }
    }

    pub(super) fn tree(&self) -> String {
        format!("{}:tree", self.stem)
    }

    /// What a script's signature asks for. Without a writer, that key is left out: it is always the last.
    pub(super) fn of(&self, script: &Script, writer: Option<&Slot>) -> Vec<(&'static str, String)> {
        let key = |name: &&'static str| {
            let kind = kind(name)?;
            match (*name, writer) {
                ("writer", None) => None,
                ("writer", Some(slot)) => Some((kind, format!("{}:writer:{}", self.stem, slot_name(slot)))),
                (name, _) => Some((kind, format!("{}:{name}", self.stem))),
            }
        };
        script.keys.iter().filter_map(key).collect()
    }
}

/// What Redis' `TYPE` must say of it.
pub(super) fn kind(name: &str) -> Option<&'static str> {
    match name {
        "tree" | "about" | "data" | "writer" => Some("hash"),
        "names" => Some("zset"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Id;

    #[test]
    fn no_two_trees_share_a_key_and_each_lives_in_one_slot() {
        let user = |id: &str| Tree::User(Id::new("user", id).expect("an id"));
        let session = |user, session| Tree::Session(Slot::new(user, session).expect("a slot"));
        let trees = [
            Tree::Agent,
            Tree::Global,
            user("a"),
            user("a}b"),
            user("../b"),
            user("*"),
            user("~"),
            session(None, "a"),
            session(Some("~"), "a"),
            session(Some("a"), "a"),
            session(Some("a"), "a/b"),
            session(Some("a/a"), "b"),
        ];
        let keys =
            |prefix: &str| trees.iter().map(|tree| TreeKeys::new(prefix, tree).tree()).collect::<Vec<_>>();
        let (one, two) = (keys("ns.agent"), keys("ns.agent2"));
        let all: std::collections::BTreeSet<_> = one.iter().chain(&two).collect();
        // Only the tree of all agents is in both.
        assert_eq!(all.len(), 2 * trees.len() - 1);
        for key in all {
            assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key}");
        }
    }
}
