//! Making, changing, deleting, listing and looking at groups.

use super::client::{assert_status, create, create_of_all, from_start, of_stream, settings};
use super::server::Server;
use postroom_eventlog::proto::persistent_subscriptions::all_options::{AllOption, FilterOption};
use postroom_eventlog::proto::persistent_subscriptions::list_req::options::ListOption;
use postroom_eventlog::proto::persistent_subscriptions::list_req::stream_option::StreamOption;
use postroom_eventlog::proto::persistent_subscriptions::{
    AllOptions, CreateReq, ListReq, Settings, create_req, list_req,
};
use postroom_eventlog::proto::shared::filter_options::{Expression, Filter};
use postroom_eventlog::proto::shared::stream_options::RevisionOption;
use postroom_eventlog::proto::shared::{Empty, FilterOptions, Position};
use tonic::Code;

#[tokio::test]
async fn group_can_be_made_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", from_start(), settings()).await.unwrap();
    let status = client.create("s", from_start(), settings()).await.unwrap_err();
    assert_status(&status, Code::AlreadyExists, "persistent-subscription-exists", "s");
}

#[tokio::test]
async fn group_that_is_not_there_is_named_in_every_refusal() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let update = create("s", from_start(), settings());
    let refusals = [
        client.client.update(update).await.map(|_| ()).unwrap_err(),
        client.delete("s").await.unwrap_err(),
        client.info("s").await.map(|_| ()).unwrap_err(),
        client.replay("s", None).await.unwrap_err(),
        client.subscribe("s", 10).await.map(|_| ()).unwrap_err(),
    ];
    for status in refusals {
        assert_status(&status, Code::NotFound, "persistent-subscription-does-not-exist", "s");
    }
}

#[tokio::test]
async fn group_starts_where_it_is_told() {
    for (start, expected) in [
        (from_start(), vec![0, 1, 2, 3, 4]),
        (RevisionOption::Revision(3), vec![3, 4]),
        (RevisionOption::End(Empty {}), vec![4]),
    ] {
        let server = Server::start().await;
        let mut client = server.client().await;
        server.append("s", 0..4).await;
        client.create("s", start, settings()).await.unwrap();
        server.append("s", 4..5).await;
        let mut consumer = client.subscribe("s", 10).await.unwrap();
        assert_eq!(consumer.work(expected.len()).await, expected, "{start:?}");
    }
}

#[tokio::test]
async fn older_clients_say_where_to_start_in_the_settings() {
    for (revision, expected) in [(0, vec![0, 1, 2, 3]), (2, vec![2, 3]), (u64::MAX, vec![3])] {
        let server = Server::start().await;
        let mut client = server.client().await;
        server.append("s", 0..3).await;
        let options = create_req::Options {
            stream_identifier: Some(of_stream("s")),
            group_name: "g".to_owned(),
            settings: Some(Settings { revision, ..settings() }),
            stream_option: None,
        };
        client.client.create(CreateReq { options: Some(options) }).await.unwrap();
        server.append("s", 3..4).await;
        let mut consumer = client.subscribe("s", 10).await.unwrap();
        assert_eq!(consumer.work(expected.len()).await, expected, "{revision}");
    }
}

#[tokio::test]
async fn group_of_the_whole_log_delivers_what_its_filter_wants() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let expression = Expression { regex: String::new(), prefix: vec!["wanted-".to_owned()] };
    let filter = FilterOptions {
        filter: Some(Filter::StreamIdentifier(expression)),
        window: None,
        checkpoint_interval_multiplier: 1,
    };
    let all = AllOptions {
        all_option: Some(AllOption::Start(Empty {})),
        filter_option: Some(FilterOption::Filter(filter)),
    };
    for number in 0..5 {
        server.append("other-1", number * 10..number * 10 + 2).await;
        server.append(&format!("wanted-{number}"), number..number + 1).await;
    }
    client.client.create(create_of_all(all, settings())).await.unwrap();
    let mut consumer = client.subscribe("$all", 10).await.unwrap();
    assert_eq!(consumer.work(5).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn group_of_the_whole_log_starts_with_the_event_at_its_position() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    server.append("t", 2..3).await;
    let page = server
        .log
        .read_all(0, postroom_eventlog::Direction::Forwards, 100, None, false)
        .await
        .unwrap();
    let second = page.events[1].event.as_ref().unwrap().position();
    let position = Position { commit_position: second, prepare_position: second };
    let all = AllOptions {
        all_option: Some(AllOption::Position(position)),
        filter_option: Some(FilterOption::NoFilter(Empty {})),
    };
    client.client.create(create_of_all(all, settings())).await.unwrap();
    let mut consumer = client.subscribe("$all", 10).await.unwrap();
    assert_eq!(consumer.work(1).await, [1]);
    let info = client.info("$all").await.unwrap();
    assert_eq!(info.start_from, format!("C:{second}/P:{second}"));
}

#[tokio::test]
async fn group_of_the_whole_log_does_not_feed_on_its_own_state() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let all = AllOptions {
        all_option: Some(AllOption::Start(Empty {})),
        filter_option: Some(FilterOption::NoFilter(Empty {})),
    };
    client.client.create(create_of_all(all, settings())).await.unwrap();
    server.append("s", 0..3).await;
    let mut consumer = client.subscribe("$all", 10).await.unwrap();
    assert_eq!(consumer.work(3).await, [0, 1, 2]);
    client.info_when("$all", |info| !info.last_checkpointed_event_position.is_empty()).await;
    server.append("s", 3..4).await;
    assert_eq!(consumer.work(1).await, [3]);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_with_their_name() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (wrong, name) in [
        (Settings { max_retry_count: -1, ..settings() }, "max_retry_count"),
        (Settings { live_buffer_size: 0, ..settings() }, "live_buffer_size"),
        (Settings { history_buffer_size: i32::MAX, ..settings() }, "history_buffer_size"),
        (Settings { read_batch_size: 0, ..settings() }, "read_batch_size"),
        (Settings { consumer_strategy: "Mine".to_owned(), ..settings() }, "consumer_strategy"),
        (Settings { named_consumer_strategy: 7, ..settings() }, "named_consumer_strategy"),
    ] {
        let status = client.create("s", from_start(), wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(name), "{status:?}");
    }
    let status = client.subscribe("s", 0).await.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn names_of_groups_have_bounds() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for name in [String::new(), "g".repeat(256), "a::b".to_owned(), ":a".to_owned()] {
        let mut request = create("s", from_start(), settings());
        request.options.as_mut().unwrap().group_name.clone_from(&name);
        let status = client.client.create(request).await.map(|_| ()).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name}");
    }
    let mut request = create("s", from_start(), settings());
    request.options.as_mut().unwrap().group_name = "ü".repeat(127);
    client.client.create(request).await.unwrap();
}

#[tokio::test]
async fn deleted_group_drops_its_consumers_and_begins_anew_when_made_again() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
    client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    client.delete("s").await.unwrap();
    assert_status(&consumer.end().await, Code::Cancelled, "persistent-subscription-dropped", "s");
    assert_eq!(client.info("s").await.unwrap_err().code(), Code::NotFound);

    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
}

#[tokio::test]
async fn updated_group_drops_its_consumers_and_goes_on_where_it_was() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..4).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
    let seen = client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    assert_eq!(seen.max_retry_count, 10);
    let changed = Settings { max_retry_count: 3, ..settings() };
    client.client.update(create("s", from_start(), changed)).await.unwrap();
    assert_status(&consumer.end().await, Code::Cancelled, "persistent-subscription-dropped", "s");
    assert_eq!(client.info("s").await.unwrap().max_retry_count, 3);
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [2, 3]);
}

#[tokio::test]
async fn update_that_begins_at_the_end_as_before_loses_no_event() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let end = RevisionOption::End(Empty {});
    client.create("s", end, settings()).await.unwrap();
    server.append("s", 0..2).await;
    client.client.update(create("s", end, settings())).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
}

#[tokio::test]
async fn consumers_beyond_the_most_that_are_allowed_are_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let two = Settings { max_subscriber_count: 2, ..settings() };
    client.create("s", from_start(), two).await.unwrap();
    let first = client.subscribe("s", 10).await.unwrap();
    let _second = client.subscribe("s", 10).await.unwrap();
    let status = client.subscribe("s", 10).await.map(|_| ()).unwrap_err();
    assert_status(&status, Code::FailedPrecondition, "maximum-subscribers-reached", "s");
    assert!(status.message().starts_with("Maximum subscriptions reached"));
    drop(first);
    client.info_when("s", |info| info.connections.len() == 1).await;
    client.subscribe("s", 10).await.unwrap();
}

#[tokio::test]
async fn information_tells_settings_and_state() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..5).await;
    let measured = Settings { extra_statistics: true, ..settings() };
    client.create("s", RevisionOption::Revision(1), measured).await.unwrap();
    let mut consumer = client.subscribe("s", 3).await.unwrap();
    let message = consumer.next().await;
    consumer.ack(&[&message]).await;
    let info = client
        .info_when("s", |info| {
            info.last_checkpointed_event_position == "1" && info.total_in_flight_messages == 3
        })
        .await;
    assert_eq!((info.event_source.as_str(), info.group_name.as_str()), ("s", "g"));
    assert_eq!((info.start_from.as_str(), info.status.as_str()), ("1", "Live"));
    assert_eq!(info.last_known_event_position, "4");
    assert_eq!(info.named_consumer_strategy, "RoundRobin");
    assert_eq!((info.buffer_size, info.read_batch_size), (500, 20));
    assert_eq!((info.total_items, info.parked_message_count), (4, 0));
    let connection = &info.connections[0];
    assert_eq!((connection.in_flight_messages, connection.available_slots), (3, 0));
    assert!(connection.from.starts_with("127.0.0.1:"));
    let keys: Vec<&str> =
        connection.observed_measurements.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["Mean", "Fastest", "Highest"]);
}

#[tokio::test]
async fn groups_are_listed_all_or_by_stream() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for stream in ["a", "b"] {
        client.create(stream, from_start(), settings()).await.unwrap();
    }
    let all = AllOptions {
        all_option: Some(AllOption::End(Empty {})),
        filter_option: Some(FilterOption::NoFilter(Empty {})),
    };
    client.client.create(create_of_all(all, settings())).await.unwrap();
    let of = |option| {
        let stream = list_req::StreamOption { stream_option: Some(option) };
        ListOption::ListForStream(stream)
    };
    for (wanted, expected) in [
        (ListOption::ListAllSubscriptions(Empty {}), vec!["$all", "a", "b"]),
        (of(StreamOption::Stream(of_stream("b"))), vec!["b"]),
        (of(StreamOption::All(Empty {})), vec!["$all"]),
    ] {
        let options = list_req::Options { list_option: Some(wanted) };
        let list = client.client.list(ListReq { options: Some(options) }).await.unwrap();
        let sources: Vec<String> =
            list.into_inner().subscriptions.into_iter().map(|info| info.event_source).collect();
        assert_eq!(sources, expected);
    }
    let options =
        list_req::Options { list_option: Some(of(StreamOption::Stream(of_stream("none")))) };
    let status = client.client.list(ListReq { options: Some(options) }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn restarted_subsystem_drops_consumers_that_then_find_their_place() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..3).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 1).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
    client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    client.client.restart_subsystem(Empty {}).await.unwrap();
    assert_status(&consumer.end().await, Code::Cancelled, "persistent-subscription-dropped", "s");
    let mut consumer = client.subscribe("s", 1).await.unwrap();
    assert_eq!(consumer.work(1).await, [2]);
}

#[tokio::test]
async fn stopping_service_ends_subscriptions_as_unavailable() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    server.close_service().await;
    assert_eq!(consumer.end().await.code(), Code::Unavailable);
    assert_eq!(client.info("s").await.unwrap_err().code(), Code::Unavailable);
}
