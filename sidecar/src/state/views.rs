//! Typed looks at a history, and the ways to make one state from another.

use super::agent_state::{AgentState, Meta};
use super::id::Slot;
use super::message::{Message, Role, ToolResult, ToolUse};

/// What a child of a conversation takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub history: bool,
    pub state: bool,
}

impl AgentState {
    pub fn by_role(&self, role: Role) -> impl DoubleEndedIterator<Item = &Message> {
        self.context.iter().filter(move |message| message.role == role)
    }

    pub fn last_of(&self, role: Role) -> Option<&Message> {
        self.by_role(role).next_back()
    }

    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolUse> {
        self.context.iter().flat_map(Message::tool_uses)
    }

    pub fn tool_outputs(&self) -> impl Iterator<Item = &ToolResult> {
        self.context.iter().flat_map(Message::tool_results)
    }

    /// A new conversation that starts where this one stands. It begins at version 0 and was never interrupted.
    pub fn fork(&self, into: &Slot, share: Share) -> Self {
        let mut fork = Self::new(into);
        fork.revision.clone_from(&self.revision);
        if share.history {
            fork.context.clone_from(&self.context);
            fork.turn_count = self.turn_count;
            fork.meta.summary.clone_from(&self.meta.summary);
        }
        if share.state {
            fork.meta = Meta { summary: fork.meta.summary, ..self.meta.clone() };
        }
        fork
    }

    /// A fork that stands below this conversation in its trace.
    pub fn child(&self, into: &Slot, share: Share, request_id: Option<String>) -> Self {
        let mut child = self.fork(into, share);
        child.meta.trace_context.clone_from(&self.meta.trace_context);
        if request_id.is_some() {
            child.meta.trace_context.request_id = request_id;
        }
        child
    }

    /// History and state gone; who it belongs to and how often it changed stay.
    pub fn clear(&mut self) {
        let fresh = Self::new(&self.slot());
        let (version, revision) = (self.version, std::mem::take(&mut self.revision));
        *self = Self { version, revision, ..fresh };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Block;
    use serde_json::{Map, json};

    fn talked() -> AgentState {
        let slot = Slot::new(Some("alice"), "s1").expect("ids");
        let mut state = AgentState::new(&slot);
        let call =
            ToolUse { id: "t1".into(), name: "refund".into(), input: json!({"order": 7}), extra: Map::new() };
        state.context = vec![
            Message::user("refund order 7"),
            Message::assistant(vec![Block::ToolUse(call.clone())]),
            Message::tool(ToolResult::new(&call, false, "done")),
            Message::assistant(vec![Block::text("Refunded.")]),
        ];
        state.turn_count = 2;
        state.version = 7;
        state.meta.state.insert("orderNumber".into(), json!(7));
        state
    }

    #[test]
    fn views_find_roles_calls_and_outputs() {
        let state = talked();
        assert_eq!(state.by_role(Role::Assistant).count(), 2);
        assert_eq!(state.last_of(Role::Assistant).map(Message::text).as_deref(), Some("Refunded."));
        assert_eq!(state.last_of(Role::System), None);
        assert_eq!(state.tool_calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["refund"]);
        assert_eq!(state.tool_outputs().map(ToolResult::text).collect::<Vec<_>>(), ["done"]);
    }

    #[test]
    fn a_fork_takes_what_it_shares_and_nothing_else() {
        let state = talked();
        let into = Slot::new(Some("alice"), "s2").expect("ids");
        let both = state.fork(&into, Share { history: true, state: true });
        assert_eq!((both.version, both.turn_count, both.context.len()), (0, 2, 4));
        assert_eq!(both.meta.state, state.meta.state);
        let neither = state.fork(&into, Share { history: false, state: false });
        assert_eq!(neither.context, vec![]);
        assert!(neither.meta.state.is_empty());
        let history = state.fork(&into, Share { history: true, state: false });
        assert_eq!((history.context.len(), history.meta.state.len()), (4, 0));
    }

    #[test]
    fn a_child_stays_in_its_parents_trace() {
        let mut state = talked();
        state.meta.trace_context.trace_id = Some("0af7651916cd43dd8448eb211c80319c".into());
        let into = Slot::new(None, "child").expect("ids");
        let child = state.child(&into, Share { history: false, state: false }, Some("r-2".into()));
        assert_eq!(child.meta.trace_context.trace_id, state.meta.trace_context.trace_id);
        assert_eq!(child.meta.trace_context.request_id.as_deref(), Some("r-2"));
    }

    #[test]
    fn clear_keeps_the_id_and_the_version() {
        let mut state = talked();
        state.clear();
        assert_eq!((state.context.len(), state.turn_count, state.version), (0, 0, 7));
        assert!(state.meta.state.is_empty());
        assert_eq!(state.session_id.as_str(), "s1");
    }
}
