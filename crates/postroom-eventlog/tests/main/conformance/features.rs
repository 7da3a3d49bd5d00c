//! What the official clients are asked to show, in the order of the table.

/// Something that a client does with a server.
pub(crate) struct Feature {
    /// By which the clients' programs know it.
    pub(crate) name: &'static str,
    /// What was shown where a client passes.
    pub(crate) shows: &'static str,
}

/// Features that belong together.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) features: &'static [Feature],
}

const fn feature(name: &'static str, shows: &'static str) -> Feature {
    Feature { name, shows }
}

/// What the server supports.
pub(crate) const SUPPORTED: &[Group] = &[
    Group {
        title: "Appending",
        features: &[
            feature("append", "events appended through `Append` are read as they were"),
            feature("append-batch", "events appended through `BatchAppend`, all or none"),
            feature("append-batch-in-parts", "one append in several messages"),
            feature("append-nothing", "an append of no events succeeds and makes no stream"),
            feature("append-idempotent", "the same event ids again succeed and append nothing"),
            feature("append-binary", "data that is not JSON"),
            feature("append-with-metadata", "metadata of events"),
            feature("append-too-large", "an append above the limit is refused"),
            feature("expected-any", "no expectation"),
            feature("expected-no-stream", "no stream expected: appended, or the actual revision"),
            feature("expected-stream-exists", "a stream expected: appended, or refused"),
            feature("expected-revision", "a revision expected: appended, or the actual revision"),
        ],
    },
    Group {
        title: "Reading",
        features: &[
            feature("read-stream-forwards", "a stream from its first event"),
            feature("read-stream-backwards", "a stream from its last event"),
            feature("read-stream-from-revision", "from a revision on, which is included"),
            feature("read-stream-limit", "no more events than asked for"),
            feature("read-stream-long", "3,000 events in one read"),
            feature("read-stream-missing", "a stream that is not there, as the client's own error"),
            feature("read-stream-ends", "the last revision, beside the events"),
            feature("unusual-names", "spaces, Unicode and punctuation in streams and types"),
            feature("read-all-forwards", "the whole log from a position on, which is included"),
            feature("read-all-backwards", "the whole log before a position"),
            feature("read-all-filter-prefix", "`$all` by prefixes of the type"),
            feature("read-all-filter-regex", "`$all` by a regular expression on the type"),
            feature("read-all-filter-stream", "`$all` by prefix or expression on the stream"),
            feature("exclude-system-events", "`$all` without events whose type begins with `$`"),
        ],
    },
    Group {
        title: "Links",
        features: &[
            feature("category-with-links", "`$ce-` streams: the links, and what they resolve to"),
            feature("event-type-with-links", "`$et-` streams: the links, and what they resolve to"),
            feature("category-live", "a subscription to `$ce-`, resumed after a link's revision"),
            feature("resolve-deleted-target", "links whose target is gone are no error"),
            feature("all-without-links", "`$all` has no links: a difference from KurrentDB"),
        ],
    },
    Group {
        title: "Catch-up subscriptions",
        features: &[
            feature("catch-up-to-live-stream", "a stream's past and then its present, in order"),
            feature("catch-up-to-live-all", "the log's past and then its present, in order"),
            feature("subscribe-after-revision", "after a revision, which is not delivered again"),
            feature("subscribe-after-position", "after a position, which is not delivered again"),
            feature("subscribe-from-end", "only what is appended from now on"),
            feature("subscribe-missing-stream", "a stream that is not there yet"),
            feature("caught-up", "the notice of being live, with a place to resume from"),
            feature("filter-prefix", "a filtered subscription, by prefix"),
            feature("filter-regex", "a filtered subscription, by regular expression"),
            feature("filter-checkpoint", "checkpoints where nothing matches, up to the end"),
        ],
    },
    Group {
        title: "Metadata, deletion, tombstones",
        features: &[
            feature("stream-metadata", "a stream's metadata, set and read"),
            feature("max-count", "`$maxCount` hides older events at once"),
            feature("max-age", "`$maxAge` hides events when they have that age"),
            feature("truncate-before", "`$tb` hides the events before it"),
            feature("delete", "a deleted stream is not found"),
            feature("delete-expected-revision", "a deletion with the wrong revision is refused"),
            feature("recreate-after-delete", "a deleted stream goes on with the next revision"),
            feature("tombstone", "a tombstoned stream is deleted for good"),
            feature("scavenge", "a scavenge is started"),
        ],
    },
    Group {
        title: "Persistent subscriptions",
        features: &[
            feature("persistent-create", "a group on a stream; the same again is refused"),
            feature("persistent-ack", "what one consumer leaves goes to the next one"),
            feature("persistent-retry", "refused for now: delivered again, and counted"),
            feature("persistent-skip", "refused: passed over"),
            feature("persistent-park-and-replay", "parked, and delivered again on demand"),
            feature("persistent-replay-some", "no more parked events than asked for"),
            feature("persistent-message-timeout", "not acknowledged in time: delivered again"),
            feature("persistent-max-retries", "parked after so many retries"),
            feature("persistent-start-from", "from a revision, and from the end"),
            feature("persistent-info", "settings, figures and consumers of a group"),
            feature("persistent-list", "the groups of a stream, and all"),
            feature("persistent-update", "other settings for a group"),
            feature("persistent-delete", "a deleted group drops its consumers"),
            feature("persistent-missing", "a group that is not there, as the client's own error"),
            feature("persistent-max-subscribers", "one consumer too many is refused"),
            feature("persistent-round-robin", "events in turn to each consumer"),
            feature("persistent-dispatch-to-single", "events to one consumer while it has room"),
            feature("persistent-pinned", "all events of a stream to the same consumer"),
            feature("persistent-all", "a group on `$all`: read, parked, replayed, updated, listed"),
            feature("persistent-all-filter", "a group on `$all` with a filter"),
            feature("persistent-links", "a group on `$ce-`, acknowledged by the links"),
            feature("persistent-restart", "the subsystem restarted on demand"),
        ],
    },
    Group {
        title: "Connecting",
        features: &[
            feature("server-features", "what the server says of itself"),
            feature("gossip", "the one member of the cluster, as leader"),
            feature("discover", "connection strings with `+discover`"),
            feature("tls", "a certificate of an authority that the client trusts"),
            feature("tls-untrusted", "a client that does not trust the certificate refuses it"),
            feature("auth-right", "name and password"),
            feature("auth-wrong", "a wrong name or password is refused, for every call"),
            feature("auth-none", "calls without a name are refused where there are users"),
            feature("reconnect-after-restart", "the same client works on after a restart"),
            feature("resume-after-restart", "the client resumes a subscription by itself"),
            feature("persistent-after-restart", "groups, parked events and places are kept"),
        ],
    },
];

/// What the server does not offer. Where a client passes, it was told so, by the error that it has
/// for that.
pub(crate) const REFUSED: &[Feature] = &[
    feature("refuses-projections", "projections"),
    feature("refuses-users", "management of users: they are in the server's file"),
    feature("refuses-statistics", "statistics of the server"),
    feature("refuses-multi-stream-append", "appends to several streams at once (protocol 2)"),
];

/// All of them.
pub(crate) fn every() -> impl Iterator<Item = &'static Feature> {
    SUPPORTED.iter().flat_map(|group| group.features).chain(REFUSED)
}
