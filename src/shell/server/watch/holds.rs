//! Reads the holds of a rule, before anything is deleted and again and again while it is.
//!
//! Every delete command carries all keys that are held, as `{key: {$nin: [...]}}` next to the whole predicate of its rule. The
//! server compares, so that equality is MongoDB's own: numbers of all types, lists of which one element is held, the collation
//! of the collection. Nothing is known of a document before it is deleted, and one whose key changes to a held one on the way
//! stays. (Looking up the keys of a batch first, and naming the keys that may go, costs more than the list: every document
//! would be read twice. The server takes 10 ms for 100,000 keys in its own order, which is why [`KeptKeys`] has them so. Naming
//! the keys that a pass has seen would let too much go. A document would go whose key has since become a list of a seen and a
//! held one, or is a regular expression. Sets in `$expr` take seconds.) A statement for documents in a state in which they were
//! found without a hold names only the holds that have come since.
//!
//! # A hold that a majority knew of 20 s before a delete begins is respected
//!
//! - A read begins with the server's clock. In a replica set a read of one document with read concern `linearizable` follows: it
//!   succeeds only on a primary that a majority confirms, and its operation time is later than every hold that a majority knew
//!   of. The holds are then read at a point in time not before that one. A primary that was cut off cannot have such a point, so
//!   that its old state is never taken for the holds.
//! - All holds are read at one point in time (read concern `snapshot`), or in the order of the storage, in which a document keeps
//!   its place: a hold that is changed during a walk along an index could be passed over.
//! - A list is used for [`MAX_AGE`] after its read began; a delete that finds it older waits for the next read. A command that is
//!   sent again takes the list of that moment.
//! - A command that was on its way for longer is refused by the server from [`TOO_LATE`] on, by its own clock (see
//!   [`crate::shell::server::delete::fence`]): what is left of the 20 s is for clocks that differ. The holds are then read again
//!   at once, because the clock may have been set forward. Services whose deletes know no clock have only the wait on this side.
//! - Trouble that may pass is waited out, while deletes wait. Whatever else is wrong ends the rule. Such are a collection
//!   that is missing (a find says no more than that nothing is there) and one that may not be read. So are a malformed key
//!   ([`malformed`]), and more keys than a command holds.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use bson::{DateTime, Document, doc};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::base::instant::millis;
use crate::base::machine::Task;
use crate::base::text::{bytes, count, duration};
use crate::base::values::raw::RawValue;
use crate::base::watch;
use crate::core::facts::Topology;
use crate::core::plan::holds::HeldBack;
use crate::core::plan::keys::malformed;
use crate::core::plan::periods::{KeptKeys, Period};
use crate::core::policy::comparisons::Comparison;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::moment::ServerTime;
use crate::shell::server::Deployment;
use crate::shell::server::connect::recognise;
use crate::shell::server::look::{confirmed, privileges};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::Patience;

/// Time after which a hold that a majority knows of is respected.
static PROMISED: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(promised_seconds()));

/// Time between the beginnings of two reads.
static INTERVAL: LazyLock<Duration> = LazyLock::new(|| *PROMISED * 2 / 5);

/// Age from which on a list is not sent any more, counted from the beginning of its read.
static MAX_AGE: LazyLock<Duration> = LazyLock::new(|| *PROMISED * 3 / 4);

/// Age from which on the server refuses a delete with the list.
static TOO_LATE: LazyLock<Duration> = LazyLock::new(|| *PROMISED * 9 / 10);

/// Number of reads in a row that take longer than [`MAX_AGE`] after which the rule ends: no delete could begin.
const MAX_SLOW: u32 = 3;

/// Holds in one reply.
const HOLDS_PER_REPLY: u32 = 10_000;

/// Bytes that a key takes in a list besides its value: the type, and the number of its place.
const AROUND_KEY: usize = 8;

/// Time limit of the search for a path of the filter.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(2);

/// Wire version of MongoDB 5.0, from which a find reads at one point in time.
const SNAPSHOTS: i32 = 13;

/// Returns 20 or, in debug builds, a number set by a test that waits for the end of a list.
fn promised_seconds() -> u64 {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("SWEEPER_TEST_HOLDS_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        return seconds;
    }
    20
}

/// The holds at one point in time.
#[derive(Debug, Clone)]
pub(crate) struct ReadHolds {
    pub keys: Arc<KeptKeys>,
    time: ServerTime,
}

impl ReadHolds {
    /// Returns the instant by the server's clock at which it is too late to begin a delete with these keys.
    pub(crate) fn too_late(&self) -> DateTime {
        self.time.after(*TOO_LATE)
    }
}

/// Reads the holds, and waits out trouble that may pass.
///
/// Errors: what is wrong with the holds, and what was expected.
pub(crate) async fn read(deployment: &Deployment, holds: &HeldBack) -> std::result::Result<ReadHolds, String> {
    let mut retries = Retries::patient();
    loop {
        let cause = match read_once(deployment, holds).await {
            Ok(read) => return read,
            Err(cause) => cause,
        };
        // The catalog changed since the point in time, or that is too long ago.
        let is_passed = matches!(cause.code(), Some(codes::SNAPSHOT_UNAVAILABLE | codes::SNAPSHOT_TOO_OLD));
        let wait = if is_passed { retries.again() } else { retries.wait_to_read(&cause) };
        let (HeldBack { collection, .. }, noun) = (holds, holds.noun());
        let Some(wait) = wait else {
            let why = privileges::explain(&cause, collection, &["find"]);
            return Err(format!("reading the {noun} in `{collection}`: {why}; without them nothing may be deleted"));
        };
        warn!(%collection, "{collection}: reading the {noun}: {cause}; trying again in {} ms", wait.as_millis());
        tokio::time::sleep(wait).await;
    }
}

/// Reads the holds once. The inner result says what is wrong with them.
async fn read_once(deployment: &Deployment, holds: &HeldBack) -> Result<std::result::Result<ReadHolds, String>> {
    let HeldBack { collection, in_hold, filter, .. } = holds;
    let deployment = &deployment.aside();
    let time = recognise::clock(deployment, Patience::Limit(deployment.command_timeout)).await?;
    let concern = read_concern(deployment, collection).await?;
    let is_one_point = concern.as_ref().is_some_and(|concern| concern.get_str("level").is_ok_and(|level| level == "snapshot"));
    let query = Query::find(collection, filter.clone().unwrap_or_default());
    let query = match &holds.periods {
        Some(periods) => query.projection(projection(in_hold, &periods.value)),
        None => query.covered(in_hold),
    };
    let query = query.batch_size(HOLDS_PER_REPLY).hint((!is_one_point).then(|| doc! { "$natural": 1 })).read_concern(concern);
    let mut cursor = query.cursor(deployment).await?;
    let (mut keys, mut periods) = (Vec::new(), Vec::new());
    let (mut found, mut size) = (0, 0);
    let most = deployment.facts.capabilities.held_bytes;
    while let Some(hold) = cursor.next().await? {
        let key = RawValue::at(&hold, in_hold);
        if let Some(wrong) = malformed(key.as_ref()) {
            return Ok(Err(match &holds.periods {
                Some(_) => format!("a document in `{collection}`: `{in_hold}` {wrong}; expected one value: correct or remove it"),
                None => format!(
                    "a hold in `{collection}`: `{in_hold}` {wrong}; expected one value: correct or remove that hold, or leave it out with `filter`"
                ),
            }));
        }
        let Some(key) = key else { continue };
        let period = holds.periods.as_ref().map(|rule| Period::read(&hold, &rule.value, rule.unit));
        found += 1;
        // No command names a key without a period.
        if period != Some(Period::Missing) {
            size += key.as_bytes().len() + AROUND_KEY;
        }
        match period {
            Some(period) => periods.push((key, period)),
            None => keys.push(key),
        }
        if size > most {
            return Ok(Err(too_many(holds, found, size, most)));
        }
    }
    if found == 0 && !exists(deployment, collection).await? {
        return Ok(Err(format!("`{collection}` does not exist; expected the collection of the {}", holds.noun())));
    }
    let keys = match &holds.periods {
        Some(_) => KeptKeys::of_periods(periods)?,
        None => KeptKeys::of(keys)?,
    };
    if keys.bytes() > most {
        return Ok(Err(too_many(holds, found, keys.bytes(), most)));
    }
    Ok(Ok(ReadHolds { keys: Arc::new(keys), time }))
}

/// Says that there are more keys than a command holds.
fn too_many(holds: &HeldBack, keys: u64, size: usize, most: usize) -> String {
    let (collection, noun) = (&holds.collection, holds.noun());
    let remedy = if holds.periods.is_some() { "" } else { "; leave out with `filter` what need not be held" };
    format!(
        "`{collection}` has more {noun} than a delete command can carry: {} keys take {}, {} are allowed{remedy}",
        count(keys),
        bytes(size as u64),
        bytes(most as u64)
    )
}

/// Returns the projection of a key and a period, whose paths may share their first part.
fn projection(key: &str, value: &str) -> Document {
    let roots = [key, value].map(|path| path.split('.').next().unwrap_or_default());
    let id = doc! { "_id": i32::from(roots.contains(&"_id")) };
    let others = roots.into_iter().filter(|root| *root != "_id");
    id.into_iter().chain(others.map(|root| (root.to_owned(), 1.into()))).collect()
}

/// Returns the read concern of the holds; `None` for the read concern of the connection string, on a service that knows no other.
async fn read_concern(deployment: &Deployment, collection: &Namespace) -> Result<Option<Document>> {
    if !deployment.facts.capabilities.record_order {
        return Ok(deployment.read_concern.clone());
    }
    if deployment.facts.topology != Topology::ReplicaSet {
        return Ok(Some(doc! { "level": "majority" }));
    }
    let level = if deployment.facts.wire_version >= SNAPSHOTS { "snapshot" } else { "majority" };
    confirmed::concern(deployment, collection, level).await.map(Some)
}

/// Tells whether a collection, or a view, exists.
async fn exists(deployment: &Deployment, collection: &Namespace) -> Result<bool> {
    let mut command = doc! { "listCollections": 1, "filter": { "name": &collection.collection }, "nameOnly": true };
    if deployment.facts.capabilities.shows_privileges {
        // With this, a user who may read the collection may also list it.
        command.insert("authorizedCollections", true);
    }
    Ok(!Query::listing(&collection.database, command).all(deployment).await?.is_empty())
}

/// Returns the path of the filter that no hold has, of `paths`; `None` if each is found, or the collection has no documents.
pub(crate) async fn unknown_path(deployment: &Deployment, collection: &Namespace, paths: &[String]) -> Result<Option<String>> {
    if !has_any(deployment, collection, Document::new()).await? {
        return Ok(None);
    }
    for path in paths {
        if !has_any(deployment, collection, doc! { path: { "$exists": true } }).await? {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

/// Returns the first of some comparisons with a type that no hold has in the field, although one has a value there.
pub(crate) async fn unknown_type<'a>(
    deployment: &Deployment,
    collection: &Namespace,
    comparisons: &'a [Comparison],
) -> Result<Option<&'a Comparison>> {
    for comparison in comparisons {
        if has_any(deployment, collection, comparison.having.clone()).await? {
            continue;
        }
        let known = comparison.having_any.clone().unwrap_or_default();
        if has_any(deployment, collection, known).await? {
            return Ok(Some(comparison));
        }
    }
    Ok(None)
}

/// Tells whether a search finds a hold. One that takes too long has found nothing.
async fn has_any(deployment: &Deployment, collection: &Namespace, filter: Document) -> Result<bool> {
    let query = Query::find(collection, filter).projection(doc! { "_id": 1 }).limit(1).max_time(Some(MAX_SEARCH_TIME));
    match query.first_batch(deployment).await {
        Ok(found) => Ok(!found.is_empty()),
        Err(cause) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// The state of a watch.
#[derive(Debug, Clone)]
enum HoldsState {
    /// The first read is not done.
    Reading,
    Read(ReadHolds),
    /// The reason why nothing may be deleted any more.
    Failed(String),
}

impl HoldsState {
    /// Takes the result of the next read. Keys that are the same as before share their memory.
    fn enter(&mut self, read: std::result::Result<ReadHolds, String>) {
        let keys = match self {
            Self::Read(before) => Some(before.keys.clone()),
            Self::Reading | Self::Failed(_) => None,
        };
        *self = match read {
            Ok(read) => match keys.filter(|keys| *keys == read.keys) {
                Some(keys) => Self::Read(ReadHolds { keys, ..read }),
                None => Self::Read(read),
            },
            Err(why) => Self::Failed(why),
        };
    }
}

/// A task that reads the holds again and again until it is dropped.
struct HoldsWatch {
    _task: Task,
    holds: HeldBack,
    states: watch::Receiver<HoldsState>,
    /// Wakes the task before it is time for the next read.
    wanted: Arc<Notify>,
}

impl HoldsWatch {
    /// Begins a watch; `first` is a read that was done before.
    fn open(deployment: &Deployment, holds: &HeldBack, first: Option<ReadHolds>) -> Self {
        let until_next = first.as_ref().map_or(Duration::ZERO, |first| INTERVAL.saturating_sub(first.time.asked.elapsed()));
        let (sender, states) = watch::channel(first.map_or(HoldsState::Reading, HoldsState::Read));
        let (deployment, watched) = (deployment.clone(), holds.clone());
        let wanted = Arc::new(Notify::new());
        let wakes = wanted.clone();
        let task = Task::begin(async move {
            let _ = tokio::time::timeout(until_next, wakes.notified()).await;
            let mut slow = 0;
            while !matches!(*sender.borrow(), HoldsState::Failed(_)) {
                let begun = Instant::now();
                let mut read = read(&deployment, &watched).await;
                slow = if begun.elapsed() > *MAX_AGE { slow + 1 } else { 0 };
                if slow == MAX_SLOW {
                    read = Err(format!(
                        "reading the {} in `{}` takes longer than {}, so that no delete could respect them in time",
                        watched.noun(),
                        watched.collection,
                        duration(millis(*MAX_AGE))
                    ));
                }
                sender.send_modify(|state| state.enter(read));
                let _ = tokio::time::timeout_at(begun + *INTERVAL, wakes.notified()).await;
            }
        });
        Self { _task: task, holds: holds.clone(), states, wanted }
    }
}

/// The watches over the holds of a run; rules with the same holds share one while they are swept.
#[derive(Default)]
pub(crate) struct HoldsWatches {
    /// `None` if nothing is watched.
    deployment: Option<Deployment>,
    /// Holds that were read before anything was watched.
    first: Vec<(HeldBack, ReadHolds)>,
    open: Mutex<Vec<Weak<HoldsWatch>>>,
}

impl HoldsWatches {
    pub(crate) fn new(deployment: &Deployment, first: Vec<(HeldBack, ReadHolds)>) -> Self {
        Self { deployment: Some(deployment.clone()), first, open: Mutex::default() }
    }

    /// Returns the view of the holds of a rule. They are watched as long as a view of them exists.
    pub(crate) fn of(&self, holds: &HeldBack) -> HoldsView {
        let Some(deployment) = &self.deployment else { return HoldsView(None) };
        let mut open = self.open.lock();
        open.retain(|watch| watch.strong_count() > 0);
        if let Some(watch) = open.iter().filter_map(Weak::upgrade).find(|watch| watch.holds.is_same_read(holds)) {
            return HoldsView(Some(watch));
        }
        let first = self.first.iter().find(|(read, _)| read.is_same_read(holds)).map(|(_, read)| read.clone());
        let watch = Arc::new(HoldsWatch::open(deployment, holds, first));
        open.push(Arc::downgrade(&watch));
        HoldsView(Some(watch))
    }
}

/// The latest holds; `None` if they are not watched, so that nothing may be deleted.
#[derive(Clone)]
pub(crate) struct HoldsView(Option<Arc<HoldsWatch>>);

impl HoldsView {
    /// Returns the holds for a delete that begins now, which may have to wait for the next read.
    ///
    /// Errors: the reason why nothing may be deleted any more.
    pub(crate) async fn fresh(&self) -> std::result::Result<ReadHolds, String> {
        let not_read = || "the holds are not read any more".to_owned();
        let mut states = self.0.as_ref().ok_or_else(not_read)?.states.clone();
        loop {
            match &*states.borrow_and_update() {
                HoldsState::Failed(why) => return Err(why.clone()),
                HoldsState::Read(read) if read.time.asked.elapsed() < *MAX_AGE => return Ok(read.clone()),
                HoldsState::Read(_) | HoldsState::Reading => {}
            }
            states.changed().await.map_err(|_| not_read())?;
        }
    }

    /// Has the holds read at once, with a new reading of the server's clock, and waits for that.
    pub(crate) async fn read_again(&self) {
        let Some(watch) = &self.0 else { return };
        let mut states = watch.states.clone();
        states.mark_unchanged();
        watch.wanted.notify_one();
        // Once nothing is read any more, the next look at the holds says why.
        let _ = states.changed().await;
    }

    /// Returns the keys that were held when they were last read.
    pub(crate) fn last(&self) -> Option<Arc<KeptKeys>> {
        match &*self.0.as_ref()?.states.borrow() {
            HoldsState::Read(read) => Some(read.keys.clone()),
            HoldsState::Reading | HoldsState::Failed(_) => None,
        }
    }
}
