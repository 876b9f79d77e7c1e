//! The workspace: the contract of trees against every place that keeps them, paths that mean harm, and the tools.

#[path = "../support/stores.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod stores;

mod access;
mod expiry;
mod fences;
mod files;
mod hostile;
mod kit;
mod listing;
mod tools;
mod trees;

/// One `#[tokio::test]` for each kind of tree and case, named `<kind>::<case>`.
macro_rules! every_kind {
    ($($kind:ident),*: $cases:tt) => { $(every_case!($kind $cases);)* };
}

macro_rules! every_case {
    ($kind:ident { $($group:ident: $($case:ident),* $(,)?;)* }) => {
        mod $kind {
            $($(
                #[tokio::test]
                async fn $case() {
                    super::$group::$case(super::kit::Bench { open: super::kit::$kind }).await;
                }
            )*)*
        }
    };
}

every_kind!(local, remote, cluster: {
    files:
        a_file_comes_back_as_it_was_written,
        a_part_of_a_file_is_that_part,
        what_is_not_there_is_told_apart_from_what_is,
        a_path_is_a_file_or_a_folder,
        a_condition_is_checked_with_the_write,
        a_file_may_be_so_large_and_a_tree_hold_so_much,
        a_tree_has_so_many_files,
        texts_come_by_the_budget;
    listing:
        paths_come_in_the_order_of_their_bytes,
        a_listing_comes_in_pages_that_join,
        a_folder_is_listed_by_itself,
        folders_are_one_entry_each,
        ten_thousand_files_come_in_pages;
    fences:
        a_lower_fence_of_a_session_is_refused,
        fences_of_two_sessions_do_not_meet,
        the_same_tool_call_again_is_answered_from_the_record,
        a_record_lasts_for_its_call,
        of_many_who_edit_at_once_one_wins_each_time;
    trees:
        no_tree_sees_another,
        agents_share_only_what_is_global,
        a_tree_that_is_erased_is_gone_and_refuses_who_wrote_before;
    expiry:
        a_tree_nobody_uses_is_gone_and_one_in_use_stays;
    tools:
        a_model_writes_reads_edits_and_finds,
        what_cannot_be_done_is_said_so_that_it_can_be_acted_on,
        an_edit_that_lost_a_race_says_so_and_changes_nothing;
});
