//! The contract of a sink. Every sink runs all of it against the real server: what a protocol
//! cannot have is a visible skip with its reason.
//!
//! A sink's tests implement [`SinkHarness`], and get one named test per line of the contract from
//! [`sink_contract_tests!`](crate::sink_contract_tests).

pub mod content;
mod delivery;
pub mod faults;
mod harness;

pub use delivery::{Delivery, deliver, deliver_all, message};
pub use harness::{Received, SinkHarness};

/// Makes a test of every line of the contract. `$start` is an async function beside the macro's
/// call that returns a [`SinkHarness`](crate::sink_contract::SinkHarness) with a destination of
/// its own, to which nothing has been delivered.
#[macro_export]
macro_rules! sink_contract_tests {
    ($start:ident) => {
        $crate::sink_contract_tests! { $start:
            content {
                what_is_delivered_is_read_back
                what_is_known_about_a_message_arrives_with_it
                a_batch_arrives_whole
                a_batch_fails_in_its_bad_message_only
                an_oversized_message_is_final
                a_second_delivery_is_recognisable
                an_event_id_of_another_stream_or_integration_arrives
                a_second_copy_arrives
                a_replay_arrives_and_says_so
                the_destination_can_be_probed
            }
            faults {
                a_probe_says_when_the_destination_is_gone
                a_server_that_is_down_leads_to_a_retry_and_is_found_again
                a_server_that_says_nothing_leads_to_a_retry
                a_request_cut_off_leads_to_a_retry
                an_answer_that_is_lost_leads_to_a_retry
                a_delivery_that_is_dropped_has_reported_only_what_is_true
                connections_are_used_again
                a_lost_connection_is_made_again_in_the_background
            }
        }
    };
    ($start:ident: $($subject:ident { $($name:ident)* })*) => {
        $(mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    use $crate::sink_contract::SinkHarness as _;
                    let harness = super::$start().await;
                    if let Some(reason) = harness.missing() {
                        return harness.skip(stringify!($name), reason);
                    }
                    $crate::sink_contract::$subject::$name(&harness).await;
                }
            )*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// A line of the contract that no sink runs would be a promise nobody keeps.
    #[test]
    fn every_line_of_the_contract_is_run() {
        let listed = include_str!("mod.rs");
        for subject in [include_str!("content.rs"), include_str!("faults.rs")] {
            for line in subject.lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
                let name =
                    rest.split('(').next().expect("a name").split('<').next().expect("a name");
                let is_listed = listed.lines().any(|line| line.trim() == name);
                assert!(is_listed, "{name} is not in sink_contract_tests!");
            }
        }
    }
}
