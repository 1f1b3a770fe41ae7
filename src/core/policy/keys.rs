//! The keys of a policy, in one table: the parser, the defaults, the JSON Schema and `docs/policy-keys.md` come from it.
//!
//! To add a key of a rule, add it to [`SHARED`], a field to [`Rule`](super::Rule), and its reading to `rule`. A key that is
//! listed is known, checked, shown in the schema and documented; one that is read but not listed does not compile.

use std::path::PathBuf;

use chrono::{NaiveTime, Weekday, WeekdaySet};
use chrono_tz::Tz;

use super::holds::{Holds, IN_HOLDS, IN_PERIODS, Periods, read_holds, read_periods};
use super::key::{AnyKey, Defaulted, Key, Section};
use super::kinds::{Boolean, ConnectionString, List, Percent, PositiveDuration, Seconds, Text, Whole, Words};
use super::mapping::Mapping;
use super::namespace::{Namespace, NamespacePattern};
use super::nested::{Any, Collation, Filter, Items, Nested, OneOrMore, Rules};
use super::window::{self, Window};
use super::{
    ArchivePlace, ArchiveTo, BucketUrl, Child, Compression, Connection, DateFormat, Expect, Order, RunLimits, duration, strings,
};
use crate::core::flavor::Flavor;

/// Declares keys and the list that holds all of them.
macro_rules! keys {
    ($(#[$doc:meta])* $list:ident: $($name:ident: $kind:ty = $key:expr;)+) => {
        $(pub(super) static $name: $kind = $key;)+
        $(#[$doc])*
        pub(super) static $list: &[&dyn AnyKey] = &[$(&$name),+];
    };
}

/// Makes the kind of a mapping that has the keys of a list and is read by a function.
macro_rules! nested {
    ($list:ident, $read:expr) => {
        Nested { section: &Section { title: "", lists: &[$list] }, read: $read }
    };
}

pub(super) static POLICY: Section = Section { title: "the policy", lists: &[TOP_LEVEL] };
pub(super) static RULE: Section = Section { title: "the rule", lists: &[OWN, SHARED] };
pub(super) static DEFAULTS: Section = Section { title: "`defaults`", lists: &[SHARED] };

keys! {
    TOP_LEVEL:

    VERSION: Key<Whole<u32>> = Key::new("version", Whole::new(1, 1), "Version of the policy's language.")
        .required("`version: 1`");

    CONNECTION: Key<Nested<Connection>> = Key::new("connection", nested!(IN_CONNECTION, read_connection),
        "The deployment that the policy is for.");

    RUN: Key<Nested<RunLimits>> = Key::new("run", nested!(IN_RUN, read_run),
        "Limits of the whole run; options on the command line win.");

    LOCK: Key<Nested<Namespace>> = Key::new("lock", nested!(IN_LOCK, |map| map.optional(&LOCK_COLLECTION)),
        "A lease in the database, so that runs on several machines do not overlap.");

    HISTORY: Key<Nested<Namespace>> = Key::new("history", nested!(IN_HISTORY, |map| map.optional(&HISTORY_COLLECTION)),
        "A record of each run, for `sweeper history` and dashboards.");

    JOURNAL: Key<Nested<Namespace>> = Key::new("journal", nested!(IN_JOURNAL, |map| map.optional(&JOURNAL_COLLECTION)),
        "Notes of parents whose children are yet to be deleted; `children` and `gridfs` need it.");

    DEFAULTS_KEY: Key<Nested<()>> = Key::new("defaults", Nested { section: &DEFAULTS, read: check_expiry },
        "Values for all rules; a rule's own key wins.");

    COLLECTIONS: Key<Rules> = Key::new("collections", Rules, "The rules; at least one.").required("a list of rules");
}

keys! {
    IN_CONNECTION:

    URI: Key<ConnectionString> = Key::new("uri", ConnectionString::Text,
        "Connection string; --uri, --uri-file and MONGODB_URI win over it. Keep the password out of the file: ${MONGODB_URI}.")
        .examples(&["${MONGODB_URI}", "${MONGODB_URI:-mongodb://localhost:27017}"]);

    URI_FILE: Key<ConnectionString> = Key::new("uriFile", ConnectionString::File,
        "File that holds only the connection string, instead of `uri`.")
        .examples(&["/etc/sweeper/uri", "${CREDENTIALS_DIRECTORY:-/etc/sweeper}/uri"]);

    FLAVOR: Defaulted<Words<Option<Flavor>>> = Key::new(
        "flavor",
        Words(&[
            ("auto", None),
            ("mongodb", Some(Flavor::MongoDb)),
            ("cosmosRu", Some(Flavor::CosmosRu)),
            ("documentDb", Some(Flavor::DocumentDb)),
            ("amazonDocumentDb", Some(Flavor::AmazonDocumentDb)),
        ]),
        "Service that runs the deployment. auto: found by host name and answers. cosmosRu: Azure Cosmos DB for MongoDB (RU). \
         documentDb: Azure DocumentDB, Azure Cosmos DB for MongoDB vCore. amazonDocumentDb: never tested.",
    )
    .default(None);

    EXPECT: Key<Nested<Expect>> = Key::new("expect", nested!(IN_EXPECT, read_expect),
        "Refuse to run anywhere else. One of the two keys is enough.");
}

keys! {
    IN_EXPECT:

    REPLICA_SET: Key<Text<String>> = Key::new("replicaSet", STRING, "Name of the replica set.").examples(&["rs0"]);

    HOSTS: Key<List<String>> =
        Key::new("hosts", List(Text::new("`host:port`", r"^(?!.*://)[^@]*[^@\s][^@]*$", strings::parse_host), 0),
        "Members that the deployment must have; the port is 27017 by default.")
        .examples(&["[db1.example.com:27017]"]);
}

keys! {
    IN_RUN:

    MAX_DURATION: Key<PositiveDuration> = Key::new("maxDuration", PositiveDuration,
        "Stop after this time; the rest goes in the next run.").examples(&["2h"]);

    RUN_CONCURRENCY: Key<Whole<u32>> = Key::new("concurrency", Whole::new(1, 64),
        "Delete commands in flight at most, over all rules. Default: the highest of any rule.")
        .examples(&["4"]);

    RUN_RATE: Key<Whole<u32>> = Key::new("rate", PER_SECOND, "Documents per second at most, over all rules.")
        .examples(&["20000"]);
}

keys! {
    IN_LOCK:

    LOCK_COLLECTION: Key<Text<Namespace>> = Key::new("collection", NAMESPACE_ONLY, "Collection of the leases.")
        .examples(&["ops.sweeperLocks"]).required("`database.collection`");
}

keys! {
    IN_HISTORY:

    HISTORY_COLLECTION: Key<Text<Namespace>> =
        Key::new("collection", NAMESPACE_ONLY, "Collection that gets one document for each run.")
        .examples(&["ops.sweeperRuns"]).required("`database.collection`");
}

keys! {
    IN_JOURNAL:

    JOURNAL_COLLECTION: Key<Text<Namespace>> = Key::new("collection", NAMESPACE_ONLY, "Collection of the notes.")
        .examples(&["ops.sweeperJournal"]).required("`database.collection`");
}

keys! {
    /// Keys that may stand in a rule but not in `defaults`.
    OWN:

    NAME: Key<Text<String>> = Key::new("name",
        Text::new(
            "a name without blanks at its ends",
            r"^(?!\s)[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f]$",
            strings::parse_rule_name,
        ),
        "Unique within the policy; for --only and the report. Default: the namespace, with the field where two rules share one.")
        .examples(&["sessions"]);

    NAMESPACE: Key<Text<NamespacePattern>> = Key::new("namespace", NAMESPACE_PATTERN,
        "`*` stands for anything, in either part. The server's own databases and collections are never swept.")
        .examples(&["app.sessions", "tenant_*.sessions"]).required("`database.collection`");

    GRIDFS: Key<Text<String>> = Key::new("gridfs", Text::new("the name of a bucket", r"^[^$*\u0000]+$", strings::parse_bucket),
        "GridFS bucket whose files the namespace holds: chunks go with their files, and `field` is uploadDate by default.")
        .examples(&["fs"]);

    CHILDREN: Key<Items<Child>> = Key::new("children", Items { section: &CHILD, read: read_child },
        "Collections whose documents go once their parent, a document of the rule, is gone.")
        .examples(&["[{namespace: app.orderLines, field: orderId}]"]);

    ORPHANS: Defaulted<Boolean> = Key::new("orphans", Boolean,
        "true: also delete children that lost their parent earlier, once all of that parent are older than a day by their ObjectIds.")
        .default(false);
}

pub(super) static CHILD: Section = Section { title: "", lists: &[IN_CHILDREN] };

keys! {
    IN_CHILDREN:

    CHILD_NAMESPACE: Key<Text<Namespace>> = Key::new("namespace", NAMESPACE_ONLY, "Collection of the children.")
        .examples(&["app.orderLines", "crm.notes"]).required("`database.collection`");

    CHILD_FIELD: Key<Text<String>> = Key::new("field", FIELD_PATH,
        "Path that holds the `_id` of the parent, or its `parentField`.")
        .examples(&["orderId", "order.id"]).required("the field that holds the `_id` of the parent");

    PARENT_FIELD: Key<Text<String>> = Key::new("parentField", FIELD_PATH,
        "Path of that value in the parent. Children go once no document of the parents' collection has it. Default: the `_id`.")
        .examples(&["number"]);
}

keys! {
    /// Keys that may stand in a rule and in `defaults`.
    SHARED:

    FIELD: Key<Text<String>> = Key::new("field", FIELD_PATH,
        "Path of the date, dotted as MongoDB reads it, through arrays too. _id: the creation time inside the ObjectId, or on a \
         clustered collection a Date. Not for a time-series collection.")
        .examples(&["lastModified", "meta.finishedAt", "_id"]);

    EXPIRE_AFTER_SECONDS: Key<Whole<i64>> = Key::new("expireAfterSeconds", Whole::new(-1, duration::MAX_SECONDS),
        "Seconds from the date to the expiry; either this or expireAfter. -1 needs a ttlField or periods: only documents with a time of their own expire.").examples(&["3600"]);

    EXPIRE_AFTER: Key<Seconds> = Key::new("expireAfter", Seconds,
        "Time from the date to the expiry: w, d, h, m, s, also together; no months, no years.").examples(&["90d", "12h", "45m", "1d12h"]);

    TTL_FIELD: Key<Text<String>> =
        Key::new("ttlField", Text::new("a root-level field name", r"^(?!_id$)[^$.\u0000][^.\u0000]*$", strings::parse_ttl_field),
        "Field that overrides the expiry for its document, in seconds; -1: never.").examples(&["ttl"]);

    FILTER: Key<Filter> = Key::new("filter", Filter,
        "A further predicate, ANDed: MongoDB's query language as Extended JSON. {$ago: 90d} is the date 90 days before asOf.")
        .examples(&["{status: done}", "{seenAt: {$lt: {$ago: 90d}}}", "{createdAt: {$lt: {$date: '2030-01-01T00:00:00Z'}}}"]);

    COLLATION: Key<Collation> = Key::new("collation", Collation(&Section { title: "", lists: &[IN_COLLATION] }),
        "Rules by which strings in the filter are compared.").examples(&["{locale: en, strength: 2}"]);

    DATE_FORMAT: Key<Words<DateFormat>> = Key::new(
        "dateFormat",
        Words(&[
            ("date", DateFormat::Date),
            ("epochSeconds", DateFormat::EpochSeconds),
            ("epochMillis", DateFormat::EpochMillis),
            ("objectId", DateFormat::ObjectId),
            ("iso8601", DateFormat::Iso8601),
        ]),
        "Type of the date. epochSeconds, epochMillis: a number since 1970. objectId: the time inside an ObjectId. iso8601: a string by RFC 3339, found by no index. \
         Default: date, and on `_id` the type that the collection has.",
    );

    HINT: Key<Text<String>> = Key::new("hint", Text::new("the name of an index", r"^(?!\$natural$)[\s\S]+$", strings::parse_hint),
        "Index to use; by default sweeper chooses one.").examples(&["lastModified_1"]);

    ORDER: Defaulted<Words<Order>> = Key::new("order",
        Words(&[("auto", Order::Auto), ("oldestFirst", Order::OldestFirst), ("storage", Order::Storage)]),
        "Order of the deletes, on MongoDB only. oldestFirst: along the index on the date. storage: as the documents are stored. auto: what costs the server less.")
        .default(Order::Auto);

    ENABLED: Defaulted<Boolean> = Key::new("enabled", Boolean, "false: the rule is reported as skipped.").default(true);

    BATCH_SIZE: Key<Whole<u32>> = Key::new("batchSize", Whole::new(1, 100_000),
        "Documents per delete command at most. Default: 2000; with holds, on several shards and along the storage 8000; 1000 on Azure Cosmos DB (RU), 25000 on Azure DocumentDB.")
        .examples(&["2000"]);

    RATE: Key<Whole<u32>> = Key::new("rate", PER_SECOND, "Documents per second at most.").examples(&["5000"]);

    CONCURRENCY: Key<Whole<u32>> = Key::new("concurrency", Whole::new(1, 64),
        "Delete commands in flight at most. Default: a number that suits the flavor.").examples(&["2"]);

    TARGET_BATCH_MS: Defaulted<Whole<u64>> = Key::new("targetBatchMs", Whole::new(1, 60_000),
        "Batches grow and shrink, within batchSize, until the documents of one take this many milliseconds; a fixed latency does not count.").default(200);

    MAX_REQUEST_UNITS: Key<Whole<u32>> = Key::new("maxRequestUnits", PER_SECOND,
        "Azure Cosmos DB (RU) only: request units per second at most.").examples(&["400"]);

    MAX_DELETES: Key<Whole<u64>> = Key::new("maxDeletes", Whole::new(1, 1_000_000_000_000),
        "Stop after this many documents; the rest goes in the next run.").examples(&["1000000"]);

    MAX_DELETE_PERCENT: Key<Percent> = Key::new("maxDeletePercent", Percent,
        "Refuse the rule, before its first delete, if a larger percentage of the collection has expired.")
        .examples(&["50"]);

    MAX_LAG: Key<PositiveDuration> = Key::new("maxLag", PositiveDuration,
        "Pause while a secondary is further behind, or its lag is unknown.").examples(&["10s"]);

    MIN_OPLOG_WINDOW: Key<PositiveDuration> = Key::new("minOplogWindow", PositiveDuration,
        "Pause if the next deletes would leave less than this time in the primary's oplog, or while that is unknown. Refuse the rule, before its first \
         delete, if it cannot be kept or known.").examples(&["24h"]);
    MAX_DIRTY: Key<Percent> = Key::new("maxDirty", Percent,
        "Pause while more than this percentage of the server's cache waits to be written. Default: 18 while others use the server. 100: the server's load is not watched.")
        .examples(&["15", "5"]);

    MAX_HEAD_MS: Key<Whole<u64>> = Key::new("maxHeadMs", Whole::new(1, 60_000),
        "Pause while a query for the oldest document, by the index on field, takes more than this many milliseconds.").examples(&["20"]);

    ALLOW_COLLECTION_SCAN: Defaulted<Boolean> = Key::new("allowCollectionScan", Boolean,
        "true: go through more than 1,000,000 documents without an index.").default(false);

    ALLOW_UNKNOWN_FIELDS: Key<List<String>> = Key::new("allowUnknownFields", List(FIELD_PATH, 0),
        "Paths of ttlField and filter that no document needs to have. Otherwise a rule is refused if no document has the field, and documents may go for the lack of it.").examples(&["[legalHold]"]);

    ALLOW_UNKNOWN_TYPES: Key<List<String>> = Key::new("allowUnknownTypes", List(FIELD_PATH, 0),
        "Paths of filter, and of the filter of holds, that may be compared with a type that no document has there. Otherwise a rule is refused if documents may go by that.").examples(&["[legalHold]"]);

    WINDOW: Key<OneOrMore<Window>> = Key::new("window",
        OneOrMore { section: &Section { title: "", lists: &[IN_WINDOW] }, read: read_window },
        "Delete only between these times of the day. With end before start the window goes over midnight. \
         An hour that daylight saving time skips is in no window.")
        .examples(&["{start: '01:00', end: '05:00', timezone: Europe/Madrid}",
            "[{start: '22:00', end: '06:00'}, {start: '00:00', end: '00:00', days: [sat, sun]}]"]);

    ARCHIVE: Key<Nested<ArchiveTo>> = Key::new("archive", nested!(IN_ARCHIVE, read_archive),
        "Write every document out before it is deleted.").examples(&["{directory: /backups/ttl}"]);

    HOLDS: Key<Nested<Holds>> = Key::new("holds", nested!(IN_HOLDS, read_holds),
        "Keep every document while a document of this collection has the same value. Read again at least every ten seconds.")
        .examples(&["{collection: legal.holds, key: tenantId, filter: {active: true}}"]);

    PERIODS: Key<Nested<Periods>> = Key::new("periods", nested!(IN_PERIODS, read_periods),
        "Expire documents after the time that this collection names, in place of expireAfter. A ttl of their own wins.")
        .examples(&["{collection: app.tenants, key: {of: tenantId, in: _id}, value: retentionDays, unit: d}"]);

    EXCLUDE: Key<List<NamespacePattern>> = Key::new("exclude", List(NAMESPACE_PATTERN, 0),
        "Namespaces that the rule leaves out; only with a `*` in namespace.").examples(&["[tenant_demo.*]"]);
}

keys! {
    IN_WINDOW:

    START: Key<Text<NaiveTime>> = Key::new("start", TIME_OF_DAY, "Time at which the window opens; quoted.")
        .examples(&["'01:00'", "'22:30'"]).required("a time of the day such as \"01:00\"");

    END: Key<Text<NaiveTime>> = Key::new("end", TIME_OF_DAY, "Time at which the window closes; quoted.")
        .examples(&["'05:00'", "'06:30'"]).required("a time of the day such as \"01:00\"");

    TIMEZONE: Defaulted<Text<Tz>> = Key::new("timezone", Text::new("a time zone", "^[A-Za-z0-9_+/-]+$", window::parse_zone),
        "A name of the IANA time zone database.").examples(&["Europe/Madrid", "UTC"]).default(Tz::UTC);

    DAYS: Key<List<Weekday>> =
        Key::new("days", List(Text::new("a day of the week", "^(mon|tue|wed|thu|fri|sat|sun)$", window::parse_day), 1),
        "Days on which the window opens; default: all. With days, end may equal start: 24 hours.")
        .examples(&["[sat, sun]"]);
}

keys! {
    IN_ARCHIVE:

    DIRECTORY: Key<Text<PathBuf>> = Key::new("directory", Text::new("a path", r"^(?!.*://)[^\u0000]+$", strings::parse_directory),
        "A directory that exists; each run creates its own in it.")
        .examples(&["/backups/ttl", "${BACKUPS:-/var/backups}/ttl"]);

    URL: Key<Text<BucketUrl>> = Key::new("url", Text::new("a URL", "^(s3|az|gs)://[A-Za-z0-9_-][A-Za-z0-9._-]*(/[^@?#/]+)*/?$", BucketUrl::parse),
        "In place of directory: a bucket of S3, Azure Blob Storage or Google Cloud Storage. Credentials come from the environment.")
        .examples(&["s3://bucket/ttl", "az://container/ttl", "gs://bucket/ttl"]);

    COMPRESSION: Defaulted<Words<Compression>> =
        Key::new("compression", Words(&[("zstd", Compression::Zstd), ("gzip", Compression::Gzip)]),
        "Compression of the files; `mongorestore --gzip` reads gzip.").default(Compression::Zstd);
}

keys! {
    /// Keys that [`Collation`] allows; the values are the server's to judge.
    IN_COLLATION:

    LOCALE: Key<Text<String>> = Key::new("locale", Text::new("a string", r"^[\s\S]+$", |text| Ok(text.to_owned())),
        "An ICU locale, or simple for binary comparison.")
        .examples(&["en", "simple"]).required("a locale, such as `en` or `simple`");

    STRENGTH: Key<Any> = Key::new("strength", Any, "1: letters; 2: accents; 3, the default: case.")
        .examples(&["1", "2"]);
    CASE_LEVEL: Key<Any> = Key::new("caseLevel", Any, "Whether case counts at strength 1 or 2.");
    CASE_FIRST: Key<Any> = Key::new("caseFirst", Any, "upper, lower or off.");
    NUMERIC_ORDERING: Key<Any> =
        Key::new("numericOrdering", Any, "Whether digits compare as numbers.");
    ALTERNATE: Key<Any> =
        Key::new("alternate", Any, "non-ignorable or shifted: whether punctuation counts.");
    MAX_VARIABLE: Key<Any> = Key::new("maxVariable", Any, "punct or space: what shifted ignores.");
    NORMALIZATION: Key<Any> =
        Key::new("normalization", Any, "Whether text is normalised first.");
    BACKWARDS: Key<Any> = Key::new("backwards", Any, "Whether accents compare from the end.");
    ICU_VERSION: Key<Any> = Key::new("version", Any, "Version of ICU.");
}

const PER_SECOND: Whole<u32> = Whole::new(1, 1_000_000_000);

const FIELD_PATH: Text<String> = Text::new("a field path", strings::FIELD_PATTERN, strings::parse_field);

const STRING: Text<String> = Text::new("a string", "", |text| Ok(text.to_owned()));

const TIME_OF_DAY: Text<NaiveTime> =
    Text::new("a time of the day, `hh:mm` or `hh:mm:ss`", "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$", window::parse_time);

const NAMESPACE_PATTERN: Text<NamespacePattern> = Text::new(
    "`database.collection`, where `*` is allowed",
    r#"^(?!(admin|config|local)\.)[^./\\ "$<>:|?\u0000]+\.(?!system\.)(oplog\.\$[^\u0000]*|[^$\u0000]+)$"#,
    NamespacePattern::parse,
);

const NAMESPACE_ONLY: Text<Namespace> = Text::new(
    "`database.collection`",
    r#"^(?!(admin|config|local)\.)[^*./\\ "$<>:|?\u0000]+\.(?!system\.)(oplog\.\$[^*\u0000]*|[^*$\u0000]+)$"#,
    Namespace::parse,
);

fn read_connection(map: &Mapping) -> Option<Connection> {
    if map.has(&URI) && map.has(&URI_FILE) {
        map.problem(&URI_FILE, "`uriFile`: `uri` is there as well; expected one of the two");
    }
    Some(Connection {
        uri: map.optional(&URI),
        uri_file: map.optional(&URI_FILE).map(PathBuf::from),
        flavor: map.value(&FLAVOR),
        expect: map.optional(&EXPECT).unwrap_or_default(),
    })
}

fn read_expect(map: &Mapping) -> Option<Expect> {
    let hosts = map.optional(&HOSTS);
    if !map.has(&REPLICA_SET) && (!map.has(&HOSTS) || hosts.as_ref().is_some_and(Vec::is_empty)) {
        map.problem_here("`expect` says nothing; expected `replicaSet`, `hosts` or both");
    }
    Some(Expect { replica_set: map.optional(&REPLICA_SET), hosts: hosts.unwrap_or_default() })
}

fn read_run(map: &Mapping) -> Option<RunLimits> {
    Some(RunLimits {
        max_deletes: None,
        max_duration: map.optional(&MAX_DURATION),
        concurrency: map.optional(&RUN_CONCURRENCY),
        rate: map.optional(&RUN_RATE),
    })
}

fn read_window(map: &Mapping) -> Option<Window> {
    let days = if map.has(&DAYS) { Some(WeekdaySet::from_iter(map.optional(&DAYS)?)) } else { None };
    let window = Window::new(map.optional(&START)?, map.optional(&END)?, map.value(&TIMEZONE), days);
    if window.is_none() {
        map.problem(&END, "`end`: the same as `start`; expected another time, `days`, or no `window` at all");
    }
    window
}

fn read_archive(map: &Mapping) -> Option<ArchiveTo> {
    let place = match (map.has(&DIRECTORY), map.has(&URL)) {
        (true, true) => {
            map.problem(&URL, "both `directory` and `url`; expected exactly one of them");
            return None;
        }
        (_, true) => ArchivePlace::Bucket(map.optional(&URL)?),
        (true, _) => ArchivePlace::Directory(map.optional(&DIRECTORY)?),
        (false, false) => {
            if !map.means(&DIRECTORY) && !map.means(&URL) {
                map.problem_here("`archive`: neither `directory` nor `url`; expected one, such as `directory: /backups/ttl`");
            }
            return None;
        }
    };
    Some(ArchiveTo { place, compression: map.value(&COMPRESSION) })
}

fn read_child(map: &Mapping) -> Option<Child> {
    let field = map.optional(&CHILD_FIELD)?;
    if field == "_id" {
        map.problem(
            &CHILD_FIELD,
            "`field`: the `_id` of a child cannot name its parent; expected a field with an index of its own",
        );
        return None;
    }
    let parent_field = map.optional(&PARENT_FIELD).unwrap_or_else(|| "_id".to_owned());
    Some(Child { namespace: map.optional(&CHILD_NAMESPACE)?, field, parent_field })
}

/// Reports a mapping, `defaults` or a rule, that gives the expiry twice.
pub(super) fn check_expiry(map: &Mapping) -> Option<()> {
    if map.has(&EXPIRE_AFTER_SECONDS) && map.has(&EXPIRE_AFTER) {
        map.problem(&EXPIRE_AFTER, "both `expireAfterSeconds` and `expireAfter`; expected exactly one of them");
        return None;
    }
    Some(())
}
