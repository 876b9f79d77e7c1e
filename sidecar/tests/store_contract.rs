//! The contract of a store, against every store: each case is one test a store.

mod contract;
mod support;

use contract::{admission, expiry, history, ids, lease, log, manage};
use support::stores;

/// One `#[tokio::test]` for each store and case, named `<store>::<case>`.
macro_rules! every_store {
    ($($store:ident),*: $cases:tt) => { $(every_case!($store $cases);)* };
}

macro_rules! every_case {
    ($store:ident { $($group:ident: $($case:ident),* $(,)?;)* }) => {
        mod $store {
            $($(
                #[tokio::test]
                async fn $case() {
                    super::$group::$case(super::contract::Bench { open: super::stores::$store }).await;
                }
            )*)*
        }
    };
}

every_store!(memory, file, redis, cluster: {
    admission:
        a_first_call_creates_the_session_and_takes_the_lease,
        the_same_begin_again_is_the_same_grant,
        another_call_waits_behind_the_running_one,
        a_waiting_call_joined_again_keeps_its_place,
        a_finished_call_answers_its_reply,
        the_same_id_with_other_messages_is_a_conflict,
        a_full_queue_admits_nobody_but_those_in_it,
        reject_admits_nothing_while_a_call_runs,
        reject_waits_for_no_lease_that_ran_out,
        interrupt_marks_every_call_before_it,
        interrupt_over_an_expired_lease_keeps_the_mark,
        a_stream_asked_for_later_is_seen_by_the_holder,
        a_call_with_many_messages_keeps_their_order;
    lease:
        a_lease_that_ran_out_is_taken_and_counted,
        an_expired_holder_may_go_on_until_somebody_takes_over,
        a_journal_entry_forgives_attempts_but_not_the_total,
        events_alone_forgive_nothing,
        suspend_counts_no_attempt,
        a_call_that_is_to_be_left_is_not_granted_and_not_counted,
        suspend_twice_is_fine_and_by_a_stranger_nothing,
        the_holder_goes_on_with_the_next_call,
        without_going_on_the_next_call_is_orphaned,
        a_late_append_of_the_last_call_does_not_reach_the_next,
        the_same_append_again_is_one_entry,
        an_append_at_another_place_is_refused,
        the_same_commit_again_is_one_turn,
        a_commit_again_after_another_took_over_has_no_next,
        a_commit_of_another_version_is_refused,
        nothing_of_a_fenced_off_holder_is_written,
        renew_moves_the_lease_only_when_a_third_is_gone,
        claiming_what_is_idle_does_nothing,
        the_time_a_call_has_run_never_goes_back,
        a_parked_call_waits_for_somebody,
        a_call_with_company_is_not_parked,
        announcements_tell_those_who_wait;
    history:
        a_turn_is_input_journal_and_answer,
        a_warm_cache_is_sent_nothing_and_an_older_one_the_rest,
        a_cache_of_another_history_is_worth_nothing,
        a_recreated_session_is_never_mistaken_for_the_old_one,
        load_bounds_the_messages,
        meta_stays_where_a_commit_has_none,
        a_thousand_messages_come_back_in_order,
        a_thousand_calls_are_remembered;
    log:
        events_have_the_holders_fence,
        events_sent_again_are_logged_once,
        events_carry_the_messages_they_came_with,
        a_log_too_large_drops_its_older_half,
        events_of_a_finished_call_are_there_for_a_while;
    manage:
        interrupt_collects_marks_and_finds_only_live_calls,
        a_commit_that_has_not_seen_every_mark_is_shown_them,
        rewrite_follows_its_condition,
        rewrite_knows_its_nonce,
        rewrite_waits_for_no_call,
        a_fork_is_a_session_made_by_rewrite,
        delete_fences_off_the_run_and_remembers_its_calls,
        numbers_go_on_after_a_delete,
        a_second_delete_keeps_the_first_ones_calls,
        retry_makes_the_last_failed_call_live_again,
        retry_is_for_the_failure_that_was_seen,
        retry_is_refused_while_the_call_has_not_failed,
        retry_is_refused_where_the_history_went_on,
        status_of_every_kind,
        live_calls_are_in_order,
        sessions_are_listed_by_page,
        overdue_names_what_nobody_works_at;
    ids:
        any_id_is_as_good_as_another,
        ids_that_could_collide_do_not;
    expiry:
        a_reply_is_forgotten_after_its_time,
        events_are_forgotten_after_theirs,
        a_session_is_forgotten_whole,
        every_write_keeps_a_session,
        a_tombstone_is_forgotten_too;
});
