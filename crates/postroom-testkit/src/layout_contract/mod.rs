//! The contract of a layout: what must hold of a table that somebody else made, split by subject. Every layout runs
//! all of it on every database that has its types; what one of them cannot have is a visible skip with its reason.
//!
//! Tests speak to the table as its owner does: in SQL, by the [`Words`] of that table. A store's tests implement
//! [`LayoutHarness`], and get one named test per line of the contract from
//! [`layout_contract_tests!`](crate::layout_contract_tests).

pub mod adoption;
pub mod by_hand;
pub mod feed;
mod harness;
pub mod lost;
pub mod operations;
pub mod outcomes;
mod steps;

pub use harness::{End, LayoutHarness, Words};

/// Makes a test of every line of the contract. `$start` is an async function beside the macro's call that returns a
/// [`LayoutHarness`](crate::layout_contract::LayoutHarness) on a table that is there, empty, and not migrated.
#[macro_export]
macro_rules! layout_contract_tests {
    ($start:ident) => {
        $crate::layout_contract_tests! { $start:
            adoption {
                the_table_gets_triggers_and_nothing_else
                migrating_again_does_nothing
                rows_that_were_open_before_are_delivered
                a_migrated_table_is_ready_and_sound
                the_table_outlives_its_ledger
                rights_of_a_relay_are_enough
            }
            feed {
                what_a_producer_inserts_is_a_message
                many_rows_of_one_statement_are_each_taken_once
                what_was_rolled_back_is_not_delivered
                what_commits_late_is_delivered
                what_is_due_later_waits
                what_came_closed_is_not_delivered
                what_is_enqueued_is_a_row_of_the_owner
            }
            outcomes {
                delivered_reads_as_its_owner_reads_it
                recorded_in_the_background_it_reads_the_same
                a_failure_is_tried_again_and_counted
                a_death_is_final_and_says_why
                what_was_released_is_as_before
                a_late_word_changes_nothing
                a_repeated_settlement_happens_once
                what_a_relay_holds_is_shown_as_claimed
            }
            by_hand {
                closed_by_hand_it_is_not_delivered
                opened_by_hand_it_is_delivered_again
                opened_by_hand_a_dead_one_has_all_its_attempts
                a_change_during_an_attempt_yields_to_it
                deleted_it_is_counted_as_vanished
                a_change_of_something_else_is_none_of_ours
            }
            operations {
                a_dead_message_is_redriven
                a_waiting_message_is_cancelled
                a_replay_opens_the_row_and_says_so
                rows_of_the_owner_stay_unless_somebody_asks_for_their_end
            }
            lost {
                the_claim_of_a_dead_relay_is_rescued
                rows_restored_without_triggers_are_found
                a_key_that_comes_again_is_another_message
                a_truncated_table_starts_again
            }
        }
    };
    ($start:ident: $($subject:ident { $($name:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::layout_contract::$subject::$name(&$start().await).await;
            }
        )*)*
    };
}
