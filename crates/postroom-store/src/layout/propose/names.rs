//! What columns are called, by what they mean: without underscores, in lower case. Of several the first that fits
//! counts.

pub(super) const PAYLOAD: &[&str] = &[
    "payload",
    "data",
    "body",
    "eventdata",
    "content",
    "message",
    "event",
    "value",
    "payloadjson",
    "messagebody",
    "eventpayload",
    "eventjson",
    "serializedevent",
];
pub(super) const EVENT_TYPE: &[&str] = &[
    "eventtype",
    "type",
    "eventname",
    "messagetype",
    "recordtype",
    "name",
    "kind",
    "subject",
    "topic",
];
pub(super) const EVENT_ID: &[&str] = &["eventid", "messageid", "eventuuid", "uuid"];
pub(super) const STREAM: &[&str] = &[
    "aggregateid",
    "streamid",
    "stream",
    "entityid",
    "resourceid",
    "partitionkey",
    "messagekey",
    "recordkey",
    "key",
    "groupid",
    "segment",
];
pub(super) const TOPIC: &[&str] =
    &["topic", "destination", "queue", "channel", "exchange", "routingkey", "subject"];
pub(super) const AGGREGATE: &[&str] = &["aggregatetype", "aggregate", "entitytype", "streamtype"];
pub(super) const HEADERS: &[&str] = &["headers", "metadata", "meta", "attributes"];
pub(super) const TENANT: &[&str] = &["tenantid", "tenant"];
pub(super) const CREATED: &[&str] = &[
    "createdat",
    "created",
    "insertedat",
    "occurredat",
    "timestamp",
    "createdon",
    "createddate",
    "creationtime",
    "createtime",
    "enqueuetime",
    "publicationdate",
    "added",
    "addedat",
    "createdonutc",
    "occurredon",
    "occurredonutc",
];
pub(super) const SENT_AT: &[&str] = &[
    "deliveredat",
    "sentat",
    "publishedat",
    "processedat",
    "dispatchedat",
    "completedat",
    "publishedon",
    "processedon",
    "sent",
    "published",
    "processed",
    "delivered",
    "dispatched",
    "completed",
    "processeddate",
    "completiondate",
    "processedonutc",
    "publishedonutc",
    "sentonutc",
];
pub(super) const DONE: &[&str] = &[
    "delivered",
    "sent",
    "published",
    "processed",
    "dispatched",
    "done",
    "completed",
    "issent",
    "isprocessed",
    "ispublished",
    "isdelivered",
    "isdone",
];
pub(super) const STATUS: &[&str] = &[
    "status",
    "state",
    "eventstatus",
    "outboxstatus",
    "statusname",
    "messagestatus",
    "publishstatus",
    "deliverystatus",
];
pub(super) const ATTEMPTS: &[&str] = &[
    "attempts",
    "retrycount",
    "retries",
    "attemptcount",
    "tries",
    "deliveryattempts",
    "retry",
    "failurecount",
    "errorscount",
    "errorcount",
    "trycount",
    "numberofattempts",
];
pub(super) const DUE: &[&str] = &[
    "nextattemptat",
    "nextretryat",
    "availableat",
    "scheduledat",
    "dueat",
    "runat",
    "retryat",
    "sendafter",
    "nextattempttime",
    "nextretrytime",
    "nextattempt",
    "nextretry",
    "nextrun",
    "nextrunat",
    "processafter",
    "runafter",
    "notbefore",
    "visibleat",
    "scheduledfor",
];
pub(super) const ERROR: &[&str] = &[
    "lasterror",
    "error",
    "errormessage",
    "failurereason",
    "lasterrormessage",
    "errormsg",
    "failuremessage",
    "exception",
    "exceptioninfo",
];

// What values of a status column mean, in lower case.

pub(super) const WAITS: &[&str] = &[
    "pending",
    "new",
    "ready",
    "created",
    "queued",
    "unsent",
    "unpublished",
    "open",
    "waiting",
    "started",
    "not_published",
    "notpublished",
    "scheduled",
    "todo",
    "init",
    "initial",
    "raw",
];
pub(super) const HELD: &[&str] =
    &["processing", "sending", "in_progress", "inprogress", "claimed", "locked", "running"];
pub(super) const DELIVERED: &[&str] = &[
    "sent",
    "published",
    "done",
    "processed",
    "delivered",
    "success",
    "succeeded",
    "completed",
    "complete",
    "dispatched",
    "finished",
];
pub(super) const GIVEN_UP: &[&str] =
    &["dead", "failed", "error", "dead_letter", "deadletter", "failure", "abandoned", "discarded"];
