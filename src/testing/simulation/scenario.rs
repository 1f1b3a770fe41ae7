//! The choices of one seed: the rules, the limits, the documents, the servers, the troubles and the writes of others.

use std::collections::BTreeMap;
use std::time::Duration;

use server_model::{BEGINNING, Release};

use super::choices::{Edition, Moved, Pauses, Rereads, Restores, Sweeper};
use super::oracle::{Filter, Format, Rule};
use super::relations::{self, Holds, Periods, SimulatedFamily};
use super::troubles::Troubles;

/// The start of every simulation by the server's clock, in milliseconds since 1970: 2027-01-15T08:00:00Z.
pub(super) const START: i64 = BEGINNING;

/// Largest difference of a server's clock, in milliseconds.
pub(super) const MAX_SKEW: i64 = 2000;

/// The run after all troubles, which has no limits but the limits of the policy.
pub(super) const LAST: &str = "last";

/// The collection of the leases.
pub(super) const LOCKS: &str = "ops.locks";

/// The directory of the archives on the simulated disks.
pub(super) const ARCHIVES: &str = "/archives";

/// One simulation.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub rules: Vec<SweptRule>,
    /// Error of the servers' own counts, as after a crash.
    pub miscounted: Option<i64>,
    pub has_lease: bool,
    pub archives: bool,
    /// Whether the archives are in buckets.
    pub in_buckets: bool,
    pub run_rate: Option<u32>,
    pub run_concurrency: Option<u32>,
    pub max_deletes: Option<u64>,
    pub max_duration: Option<u64>,
    /// The instant at which the runs judge expiry, in milliseconds; `None`: when they ask the server.
    pub as_of: Option<i64>,
    pub lock_wait: Option<u64>,
    pub troubles: Troubles,
    pub release: Release,
    /// Operations of each of the three writers, and the longest time between two of them in milliseconds.
    pub writes: u32,
    pub writes_every: u64,
    /// Milliseconds after the start at which the collection of the leases is dropped.
    pub locks_dropped: Option<u64>,
    pub monitors: bool,
    /// The move of a collection, if there is one.
    pub moved: Option<Moved>,
    pub sweepers: Vec<Sweeper>,
    /// The children of the documents of the first rule's collection.
    pub family: Option<SimulatedFamily>,
    /// The times at which the pause file is there, if there is one.
    pub pauses: Option<Pauses>,
    /// The times at which runs read other paces, if there are any.
    pub rereads: Option<Rereads>,
    /// The runs of `restore`, if there are any.
    pub restores: Option<Restores>,
    /// The policies of runs that have not the whole one.
    pub editions: BTreeMap<String, Edition>,
    /// The holds of all rules.
    pub holds: Option<Holds>,
    /// The periods of all rules.
    pub periods: Option<Periods>,
    /// Largest difference of a server's clock, in milliseconds.
    pub max_skew: i64,
}

/// A rule with its limits.
#[derive(Debug, Clone)]
pub(super) struct SweptRule {
    pub rule: Rule,
    pub is_indexed: bool,
    /// Whether all `_id`s are ObjectIds, as those that drivers make.
    pub has_object_ids: bool,
    pub documents: u32,
    pub concurrency: u32,
    pub batch_size: u32,
    pub rate: Option<u32>,
    pub max_deletes: Option<u64>,
    pub max_delete_percent: Option<u32>,
    pub max_lag: bool,
    pub max_head: bool,
    /// Minutes after the start at which the window of the rule closes.
    pub window: Option<u32>,
}

impl Scenario {
    pub(super) fn of(random: &mut fastrand::Rng) -> Self {
        let is_calm = random.u8(..5) == 0;
        let is_slow = random.u8(..4) == 0;
        let archives = random.u8(..3) == 0;
        let as_of = random.bool().then(|| START - random.i64(0..600_000));
        let rules = Self::rules(random, is_slow);
        let two = random.bool();
        let sweepers = (0..if two { 2 } else { 1 }).map(|n| Sweeper::of(random, n, archives)).collect();
        let maybe = |random: &mut fastrand::Rng, one_in: u8| random.u8(..one_in) == 0;
        Self {
            rules,
            miscounted: maybe(random, 8).then(|| random.i64(-20..200)),
            has_lease: maybe(random, 2),
            archives,
            in_buckets: false,
            run_rate: maybe(random, 8).then(|| random.u32(1..50)),
            run_concurrency: maybe(random, 4).then(|| random.u32(1..=2)),
            max_deletes: maybe(random, 6).then(|| random.u64(1..40)),
            max_duration: maybe(random, 8).then(|| random.u64(1..100)),
            as_of,
            lock_wait: maybe(random, 3).then(|| random.u64(1..200)),
            troubles: if is_calm { Troubles::default() } else { Troubles::of(random) },
            release: Release::default(),
            writes: if maybe(random, 4) { 0 } else { random.u32(..30) },
            writes_every: if maybe(random, 2) { random.u64(1..100) } else { random.u64(1..5000) },
            // A run is sure to notice only as long as it can ask the server.
            locks_dropped: (is_calm && maybe(random, 3)).then(|| random.u64(..60_000)),
            monitors: maybe(random, 3),
            moved: None,
            sweepers,
            family: None,
            pauses: None,
            rereads: None,
            restores: None,
            editions: BTreeMap::new(),
            holds: None,
            periods: None,
            max_skew: MAX_SKEW,
        }
    }

    /// Lets the servers be newer, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn renew(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0072_656e_6577);
        if random.u8(..4) == 0 {
            self.release = Release::V8_0 { max_read: Duration::from_millis(random.u64(1..500)) };
            if !self.troubles.are_none() {
                self.troubles.faults.busy = random.f64() * 0.1;
            }
        }
    }

    /// Lets rules wait for a query that is slow, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn look_at_heads(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0068_6561_6473);
        self.rules.iter_mut().for_each(|swept| swept.max_head = random.u8(..6) == 0);
    }

    /// Adds children, holds and periods, if the seed says so.
    pub(super) fn relate(&mut self, seed: u64) {
        (self.family, self.holds) = relations::of(seed);
        self.periods = relations::periods_of(seed, self.holds.as_ref().map(|holds| holds.path));
        if let Some(family) = self.family.as_mut().filter(|_| self.periods.is_some()) {
            // A child without a parent has no key by which a period could keep it.
            family.orphans = false;
        }
        if self.family.as_ref().is_some_and(|family| family.is_gridfs) {
            let first = self.rules[0].rule.namespace.clone();
            let of_first = self.rules.iter_mut().filter(|swept| swept.rule.namespace == first);
            of_first.for_each(|swept| swept.rule.namespace = "app.fs.files".into());
        }
        if let (Some(family), Some(as_of)) = (&mut self.family, self.as_of) {
            family.as_of = as_of;
        }
        let of_keys = self.holds.as_ref().and_then(|holds| holds.rate).or(self.periods.as_ref().and_then(|periods| periods.rate));
        let rate = of_keys.or(self.family.as_ref().and_then(|family| family.rate));
        for swept in self.rules.iter_mut().filter(|_| rate.is_some()) {
            swept.documents = swept.documents.min(40);
            swept.rate = swept.rate.or(rate);
        }
        if let Some((late, most)) = self.family.as_ref().and_then(|family| family.late).filter(|_| self.locks_dropped.is_none()) {
            let faults = &mut self.troubles.faults;
            (faults.late, faults.cut_while) = (late, faults.cut_while.max(late));
            faults.max_late = Duration::from_millis(most);
        }
        if self.holds.is_some() || self.periods.is_some() {
            let late =
                self.holds.as_ref().and_then(|holds| holds.late).or(self.periods.as_ref().and_then(|periods| periods.late));
            // A run is sure to notice that the leases are gone only as long as it can ask the server.
            if let Some((late, most)) = late.filter(|_| self.locks_dropped.is_none()) {
                self.troubles.faults.late_delete = late;
                self.troubles.faults.max_late = Duration::from_millis(most);
            }
            // Holds and periods are respected after 20 s only if the clocks of any two servers differ by less than two seconds.
            self.max_skew = MAX_SKEW / 2 - 1;
        }
    }

    /// Returns the path of the tenant of a document; `None` if documents have none.
    pub(super) fn tenant_path(&self) -> Option<&'static str> {
        self.holds.as_ref().map(|holds| holds.path).or(self.periods.as_ref().map(|periods| periods.path))
    }

    /// Returns the children of the documents of a namespace.
    pub(super) fn family_of(&self, namespace: &str) -> Option<&SimulatedFamily> {
        self.family.as_ref().filter(|_| self.rules[0].rule.namespace == namespace)
    }

    /// Returns the children of the documents of a rule.
    pub(super) fn family_of_rule(&self, rule: usize) -> Option<&SimulatedFamily> {
        self.family_of(&self.rules[rule].rule.namespace)
    }

    fn rules(random: &mut fastrand::Rng, is_slow: bool) -> Vec<SweptRule> {
        let several = random.u8(..8);
        let first = SweptRule::of(random, "app.one", is_slow);
        match several {
            0 => {
                let second = SweptRule::of(random, "app.two", is_slow);
                vec![first, second]
            }
            1 => {
                let second = first.beside(random);
                vec![first, second]
            }
            _ => vec![first],
        }
    }
}

impl SweptRule {
    fn of(random: &mut fastrand::Rng, namespace: &str, is_slow: bool) -> Self {
        let kind = random.u8(..10);
        let format = match kind {
            0 => Format::EpochSeconds,
            1 => Format::EpochMillis,
            2 => Format::ObjectId,
            // Few: in a build for tests their expressions take long.
            3 if random.u8(..4) == 0 => Format::Iso8601,
            _ => Format::Date,
        };
        let ttl_field = (random.u8(..4) == 0).then_some("ttl");
        let never = ttl_field.is_some() && random.u8(..4) == 0;
        let filter = match random.u8(..6) {
            0 => Filter::Done,
            1 => Filter::NotHeld,
            _ => Filter::Nothing,
        };
        let maybe = |random: &mut fastrand::Rng, one_in: u8| random.u8(..one_in) == 0;
        Self {
            rule: Rule {
                namespace: namespace.to_owned(),
                field: if format == Format::ObjectId { "_id" } else { "at" },
                format,
                expire_after: (!never).then(|| random.i64(1..100_000)),
                ttl_field,
                filter,
            },
            has_object_ids: maybe(random, 3),
            is_indexed: format == Format::ObjectId || !maybe(random, 4),
            // Most defects show with few documents.
            documents: if maybe(random, 4) { random.u32(20..200) } else { random.u32(20..60) },
            concurrency: random.u32(1..=4),
            batch_size: if maybe(random, 4) { random.u32(1..200) } else { random.u32(1..12) },
            rate: (is_slow || maybe(random, 8)).then(|| random.u32(1..20)),
            max_deletes: maybe(random, 5).then(|| random.u64(1..30)),
            max_delete_percent: maybe(random, 4).then(|| random.u32(1..100)),
            max_lag: maybe(random, 6),
            max_head: false,
            window: maybe(random, 8).then(|| random.u32(1..5)),
        }
    }

    /// Returns another rule of the same collection.
    pub(super) fn beside(&self, random: &mut fastrand::Rng) -> Self {
        let mut beside = Self { documents: 0, max_deletes: None, ..self.clone() };
        beside.rule.expire_after = Some(random.i64(1..100_000));
        beside.rule.filter = Filter::Done;
        beside
    }

    /// Returns the instant at which the window of the rule closes, in milliseconds since 1970.
    pub(super) fn closes(&self) -> Option<i64> {
        self.window.map(|minute| START + i64::from(minute) * 60_000)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let Self { rule, .. } = self;
        let mut lines = vec![
            format!("namespace: {}", rule.namespace),
            format!("field: {}", rule.field),
            format!("expireAfterSeconds: {}", rule.expire_after.unwrap_or(-1)),
            format!("concurrency: {}", self.concurrency),
            format!("batchSize: {}", self.batch_size),
        ];
        lines.extend(rule.ttl_field.map(|field| format!("ttlField: {field}")));
        match rule.format {
            Format::Date | Format::ObjectId => {}
            Format::EpochSeconds => lines.push("dateFormat: epochSeconds".into()),
            Format::EpochMillis => lines.push("dateFormat: epochMillis".into()),
            Format::Iso8601 => lines.push("dateFormat: iso8601".into()),
        }
        match rule.filter {
            Filter::Nothing => {}
            Filter::Done => lines.push("filter: {status: done}".into()),
            Filter::NotHeld => lines.push("filter: {status: {$ne: held}}".into()),
        }
        // The last document with one of them may go.
        lines.push(
            "allowUnknownFields: [status, ttl, active, tenant, meta.tenant, files_id, order, of.order, number, ref.code, kept]"
                .into(),
        );
        lines.push("allowUnknownTypes: [status, active]".into());
        lines.extend(self.rate.map(|rate| format!("rate: {rate}")));
        lines.extend(self.max_deletes.map(|most| format!("maxDeletes: {most}")));
        lines.extend(self.max_delete_percent.map(|percent| format!("maxDeletePercent: {percent}")));
        if self.max_lag {
            lines.push("maxLag: 2s".into());
        }
        if self.max_head {
            // Only troubles make a query so slow.
            lines.push("maxHeadMs: 1000".into());
        }
        // The simulation begins at 8 o'clock.
        lines.extend(self.window.map(|minute| format!("window: {{start: '00:00', end: '08:{minute:02}', timezone: UTC}}")));
        lines
    }
}
