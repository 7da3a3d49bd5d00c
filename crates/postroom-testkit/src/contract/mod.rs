//! The contract of a store, split by subject. Every store runs all of it: what one of them
//! cannot have is a visible skip with its reason.
//!
//! A store's tests implement [`Harness`], and get one named test per line of the contract from
//! [`contract_tests!`](crate::contract_tests).

pub mod admin;
pub mod attempts;
pub mod by_hand;
pub mod claimers;
pub mod content;
pub mod dispatch;
pub mod enqueue;
pub mod fencing;
pub mod given_up;
mod harness;
pub mod heartbeat;
pub mod identity;
pub mod inspect;
pub mod intake;
pub mod locked;
pub mod marked;
pub mod operate;
mod plain_row;
pub mod plain_rows;
pub mod prune;
pub mod remember;
pub mod replay;
pub mod rescue;
pub mod settle;
pub(crate) mod steps;
pub mod take;
pub mod upkeep;

pub use harness::{Commit, Harness, Save};
pub use plain_row::PlainRow;

/// Makes a test of every line of the contract. `$start` is an async function beside the macro's
/// call that returns a [`Harness`](crate::contract::Harness) on an empty outbox.
#[macro_export]
macro_rules! contract_tests {
    ($start:ident) => {
        $crate::contract_tests! { $start:
            remember {
                a_remembered_event_is_not_delivered_again
                a_remembered_event_among_others_is_left_out
                an_event_is_forgotten_after_its_time
                an_event_is_remembered_without_history
                a_replay_is_delivered_though_its_event_is_remembered
                a_remembered_event_that_is_opened_by_hand_is_delivered
            }
            enqueue {
                a_message_is_stored_whole
                a_message_with_nothing_set_has_the_defaults
                fault_40_a_duplicate_has_the_first_id_and_changes_nothing
                fault_40_of_racing_duplicates_one_is_new
                another_integration_copy_or_stream_is_another_message
                an_invalid_message_is_refused_and_not_written
                ids_and_sequence_numbers_grow
                a_payload_of_any_json_type_passes_through
            }
            intake {
                many_messages_are_accepted_at_once_in_their_order
                accepted_messages_are_stored_whole
                a_duplicate_is_answered_with_the_first_id
                a_duplicate_within_the_batch_is_answered_with_the_first_id
                an_invalid_message_refuses_the_whole_batch_and_is_named
                a_checkpoint_moves_with_its_messages
                a_checkpoint_that_stands_elsewhere_leaves_no_message
                a_refused_batch_leaves_the_checkpoint
                an_empty_batch_moves_its_checkpoint
                a_checkpoint_that_no_store_could_keep_is_refused
                of_racing_accepts_from_one_checkpoint_one_wins
            }
            plain_rows {
                a_row_with_the_required_columns_is_delivered
                a_row_with_every_known_column_is_read_whole
                a_due_time_in_another_zone_is_the_same_instant
                a_due_time_long_ago_is_due
                fault_41_max_attempts_below_one_is_refused
                fault_41_a_due_time_that_is_no_moment_is_refused
                negative_attempts_are_refused
                the_status_claimed_is_refused
                what_is_no_json_is_refused
                the_same_event_twice_is_refused
                headers_that_are_no_object_come_with_a_fault
                dead_and_sent_rows_are_not_taken
                a_row_with_an_unknown_status_is_left_alone
                a_number_that_is_taken_loses_no_message
            }
            take {
                a_lane_goes_by_due_time
                the_same_due_time_goes_by_number
                a_taken_message_is_the_stored_one
                a_taken_message_is_shown_as_claimed
                what_is_due_later_stays
                failed_and_due_is_taken_again
                what_is_held_is_not_taken_again
                an_unknown_integration_is_never_taken
                quotas_and_the_row_limit_hold
                the_byte_limit_ends_a_batch
                a_single_message_may_exceed_the_byte_limit
                a_payload_over_the_limit_comes_with_a_fault
                a_lane_of_large_older_messages_delays_no_other
            }
            content {
                fault_48_a_payload_that_cannot_become_text_is_a_fault_of_its_row
                fault_48_a_payload_that_grows_is_read_within_its_limit
                fault_48_rows_that_grow_together_are_taken_in_several_batches
                fault_48_headers_over_their_limit_come_with_a_fault
                headers_that_are_null_are_none
            }
            claimers {
                two_claimers_never_overlap
                fault_08_a_rescue_racing_a_completion_leaves_sent_as_sent
                fault_12_a_low_number_that_commits_late_is_delivered
                a_new_message_wakes_an_idle_relay
            }
            given_up {
                fault_50_a_take_that_is_given_up_half_way_locks_and_loses_nothing
                fault_50_a_settlement_that_is_given_up_half_way_can_be_said_again
            }
            settle {
                sent_is_recorded
                without_history_sent_messages_leave
                failed_is_recorded
                the_last_error_stays_after_success
                dead_is_recorded
                dead_without_an_attempt_counts_none
                released_is_untouched
                postponed_is_due_later_and_else_untouched
                postponed_messages_go_by_their_delays
                a_batch_is_settled_in_parts
                fault_05_a_claim_that_holds_something_is_not_removed
                several_batches_are_settled_at_once
                a_death_is_announced_with_it
                a_refused_announcement_undoes_its_settlement
                an_error_text_is_clipped
            }
            locked {
                fault_49_what_is_not_locked_is_settled
                fault_49_a_locked_dispatch_is_settled_later
                fault_49_reconciling_passes_over_what_is_locked
            }
            fencing {
                fault_07_a_late_completion_changes_nothing
                a_late_word_on_a_settled_message_changes_nothing
                a_late_death_is_not_announced
                an_unknown_token_settles_nothing
                fault_06_a_repeated_settlement_happens_once
                a_death_is_announced_beside_a_late_word_on_the_same_message
                a_settlement_that_is_late_in_part_counts_in_part
            }
            heartbeat {
                a_heartbeat_keeps_claims
                one_heartbeat_keeps_every_claim_of_its_relay
                a_lost_claim_is_reported
                claims_end_when_the_heartbeat_ends
                claims_for_a_queue_count_no_rescue
                what_nobody_rescued_is_held_again
                a_claim_that_its_relay_does_not_know_is_given_up
                a_claim_that_is_given_up_counts_no_attempt
                a_claim_just_taken_is_not_given_up
                a_relay_that_leaves_frees_its_claims_at_once
                the_claims_of_two_relays_are_independent
                nothing_is_taken_without_a_living_relay
                relays_are_listed
                expired_relays_are_forgotten
            }
            rescue {
                a_living_claim_is_left_alone
                a_rescued_message_is_untouched
                rescued_messages_come_in_claims_of_their_own
                fault_25_claims_are_halved_until_a_message_is_alone
                messages_that_go_alone_hold_up_no_others
                the_byte_limit_ends_a_claim_of_rescued_messages
                fault_52_a_claim_that_the_caller_holds_is_left_to_it
                a_rescued_message_keeps_its_due_time
                fault_25_lost_alone_counts_as_an_attempt
                a_known_failure_clears_the_count
                a_released_rescue_is_still_one
                a_rescue_stops_at_its_limit
                only_what_is_unsettled_is_rescued
                what_left_when_it_was_sent_is_not_rescued
                empty_claims_in_front_are_passed
            }
            dispatch {
                the_first_dispatch_costs_no_write
                a_word_by_number_needs_no_claim
                a_failed_dispatch_is_over
                a_dispatch_whose_job_is_gone_is_over
                a_dead_dispatch_is_over
                a_stale_word_changes_nothing
                a_repeated_word_happens_once
                several_numbers_are_settled_at_once
                a_death_by_number_is_announced
                without_history_a_dispatched_message_leaves
                a_release_by_its_claim_keeps_the_number
                a_postponed_message_keeps_its_number_unless_its_dispatch_is_over
                a_dispatched_claim_that_is_lost_is_no_rescue
                a_rescued_message_that_is_dispatched_is_no_suspect
                a_claim_ends_when_its_messages_were_settled_elsewhere
                what_is_closed_is_not_dispatched
                a_word_on_a_cancelled_message_changes_nothing
                set_back_to_pending_it_keeps_its_number
                set_back_after_it_was_sent_it_has_a_number_of_its_own
                a_delivery_that_is_made_again_has_a_number_of_its_own
            }
            marked {
                what_a_worker_marked_is_read_and_settled
                the_error_of_a_failed_message_is_read
                an_attempt_that_its_worker_counted_is_counted_once
                a_failed_message_is_reopened_before_its_next_dispatch
                a_message_is_reopened_by_its_claim_alone
            }
            by_hand {
                set_back_to_pending_it_is_delivered_again
                set_back_while_its_first_batch_is_under_way_it_is_delivered_again
                sent_elsewhere_it_is_delivered_there
                attempts_set_to_the_end_of_their_type_stay_there
                marked_sent_or_dead_it_is_not_delivered
                given_an_unknown_status_it_is_left_alone
                another_due_time_is_followed
                a_failed_message_can_be_brought_forward
                a_dead_message_stays_dead_whatever_its_due_time
                deleted_it_is_gone_and_its_lane_goes_on
                deleted_after_a_rescue_it_is_gone
                deleted_during_an_attempt_it_is_gone_afterwards
                a_change_during_an_attempt_yields_to_it
                closed_during_an_attempt_that_was_released_it_stays_closed
                closed_during_an_attempt_that_was_lost_it_stays_closed
                a_due_time_set_during_an_attempt_is_followed_after_it
                sent_elsewhere_during_an_attempt_it_goes_there_after_it
                a_change_by_hand_ends_being_alone
                a_row_inserted_dead_can_be_set_to_pending
                fault_47_a_stale_row_saved_over_a_sent_one_is_delivered_again
                fault_47_a_stale_row_of_an_earlier_failure_is_followed
                fault_47_stale_rows_saved_one_after_another_are_each_followed
                fault_47_a_stale_row_saved_during_an_attempt_yields_to_it
            }
            identity {
                fault_45_an_attempt_under_way_marks_no_new_message
                fault_45_an_attempt_under_way_deletes_no_new_message
                fault_45_an_attempt_under_way_leaves_an_unknown_status_alone
                fault_45_old_deliveries_hide_no_new_message
                fault_45_a_stale_job_settles_no_new_message
                fault_45_an_old_claim_that_expires_concerns_no_new_message
                fault_45_attempts_of_an_old_message_are_not_a_new_ones
                fault_45_an_operator_changes_no_new_message_by_an_old_key
                fault_46_numbers_left_behind_lose_no_message
            }
            upkeep {
                pruning_keeps_what_is_open_or_young
                what_was_set_to_sent_by_hand_is_pruned_by_its_age
                the_delivery_of_a_dead_message_that_was_deleted_is_pruned
                such_deliveries_are_looked_for_round_after_round
                pruning_stops_at_its_limit
                a_pruned_event_can_be_enqueued_again
                the_backlog_counts_by_integration
                the_backlog_follows_claims_and_rescues
                a_failed_attempt_does_not_shorten_the_lag
                the_backlog_follows_changes_by_hand
                messages_without_a_delivery_get_one
                deliveries_without_a_message_go
                deliveries_under_a_claim_that_is_gone_are_freed
                deliveries_follow_what_no_trigger_saw
                what_does_not_agree_is_reported
                a_migrated_outbox_is_ready
            }
            admin {
                an_unknown_id_is_not_found
                a_list_is_newest_first_and_in_pages
                a_list_is_filtered_by_status_and_integration
                a_list_is_filtered_by_what_a_message_says
                a_list_is_filtered_by_time
                filters_are_joined_and_paged_in_every_status
                counts_cover_every_status
                integrations_with_waiting_messages_are_named
                a_claim_is_found_by_its_worker
                the_clock_goes_forward
            }
            inspect {
                a_message_is_found_by_the_beginning_of_its_id
                a_list_is_filtered_by_a_part_of_the_error
                errors_are_grouped_by_integration_and_text
                new_messages_are_counted_by_integration
                what_is_new_and_what_is_due_next_can_be_followed
            }
            attempts {
                every_failed_attempt_is_kept
                a_success_and_a_release_leave_no_trace
                a_death_without_an_attempt_has_none
                a_late_failure_leaves_no_trace
                a_repeated_settlement_keeps_one
                a_response_is_kept_with_the_latest_attempt
                lost_alone_is_an_attempt
                only_the_latest_are_kept
                attempts_go_with_their_message
                attempts_of_a_message_that_was_deleted_are_swept
                without_history_attempts_leave_with_their_message
            }
            operate {
                fault_43_a_redrive_said_twice_requeues_once
                fault_43_of_racing_redrives_each_message_is_requeued_by_one
                a_redriven_message_has_all_its_attempts_again
                only_dead_messages_are_redriven
                waiting_messages_are_cancelled
                a_claimed_message_is_not_cancelled
                a_released_message_is_taken_from_its_relay
                a_release_leaves_the_rest_of_the_batch_alone
                a_release_follows_what_was_changed_by_hand
                actions_are_on_record_newest_first
                a_message_that_is_gone_is_left_alone
            }
            replay {
                a_replay_is_a_new_row_that_names_the_first
                replays_count_their_copies
                a_replay_with_a_fresh_id_is_another_event
                a_replay_keeps_the_headers
                only_sent_messages_are_replayed
                racing_replays_make_a_row_each
            }
            prune {
                old_messages_are_pruned_on_record
                dead_messages_are_pruned_with_all_they_have
                open_messages_are_not_pruned
            }
        }
    };
    ($start:ident: $($subject:ident { $($name:ident)* })*) => {
        $(mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let outbox = super::$start().await;
                    $crate::contract::$subject::$name(&outbox).await;
                }
            )*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// A line of the contract that no store runs would be a promise nobody keeps.
    #[test]
    fn every_line_of_the_contract_is_run() {
        let listed = include_str!("mod.rs");
        for subject in [
            include_str!("enqueue.rs"),
            include_str!("intake.rs"),
            include_str!("plain_rows.rs"),
            include_str!("take.rs"),
            include_str!("content.rs"),
            include_str!("claimers.rs"),
            include_str!("settle.rs"),
            include_str!("locked.rs"),
            include_str!("fencing.rs"),
            include_str!("heartbeat.rs"),
            include_str!("rescue.rs"),
            include_str!("dispatch.rs"),
            include_str!("marked.rs"),
            include_str!("by_hand.rs"),
            include_str!("identity.rs"),
            include_str!("upkeep.rs"),
            include_str!("admin.rs"),
            include_str!("inspect.rs"),
            include_str!("attempts.rs"),
            include_str!("operate.rs"),
            include_str!("replay.rs"),
            include_str!("prune.rs"),
        ] {
            for line in subject.lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
                let name = rest.split('(').next().expect("a name");
                let is_listed = listed.lines().any(|line| line.trim() == name);
                assert!(is_listed, "{name} is not in contract_tests!");
            }
        }
    }
}
