//! Calls of the program's own code, each of which sends its commands to whichever server it is given.

use std::fmt;
use std::time::Duration;

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use fastrand::Rng;

use super::Server;
use super::outcome::{Outcome, shown};
use super::values::{NOW, Shape, date, document, likely_id};
use super::{one_of, rules};
use crate::base::values::raw::RawValue;
use crate::core::audit::distribution::{Distribution, MAX_SAMPLES};
use crate::core::plan::SweepRule;
use crate::core::plan::fields::NamedField;
use crate::core::plan::findings::Expired;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::Holder;
use crate::shell::lock::fence::Fence;
use crate::shell::lock::lease;
use crate::shell::lock::moment::{Moment, ServerTime};
use crate::shell::server::delete;
use crate::shell::server::delete::document_match::{DocumentState, IndexRange};
use crate::shell::server::delete::grant::{Consent, DeleteGrant, RecordGrant};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::statement::statements;
use crate::shell::server::look::fields::{self, SearchTime};
use crate::shell::server::look::{audit, count, figures};
use crate::shell::server::own::history;
use crate::shell::server::own::insert::Put;
use crate::shell::server::own::put_back::{Present, RestoreTarget};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// A call, with everything that it is made with.
pub(super) struct Call {
    namespace: Namespace,
    rule: SweepRule,
    what: What,
    /// Chooses among what is found on the server.
    seed: u64,
}

#[derive(Debug)]
enum What {
    DeleteIds(Vec<Bson>),
    DeleteOne(Bson),
    DeleteRange {
        bounds: Document,
        by_id: bool,
    },
    DeleteStretch(Option<DateTime>, DateTime),
    DeleteStates {
        one_by_one: bool,
        along_index: bool,
    },
    Count,
    NeverExpires,
    IgnoredTtl,
    /// The looks for a field.
    Field(NamedField),
    Distribution,
    Samples,
    CountAll,
    Lease {
        run: String,
        now: i64,
        kind: u8,
    },
    Record(Document),
    Newest(usize),
    Restore {
        documents: Vec<Document>,
        present: Present,
    },
    /// The query for the ends of batches along an index, and its plan.
    Keys {
        after: Option<Bson>,
        skip: u64,
    },
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {}", self.what, shown(&self.rule.selection.predicate.clone().into()))
    }
}

impl Call {
    pub(super) fn any(random: &mut Rng, namespace: &Namespace, shape: Shape, rule: SweepRule) -> Self {
        let what = match random.u8(0..22) {
            0..2 => What::DeleteIds((0..random.u8(1..16)).map(|_| likely_id(random)).collect()),
            2 => What::DeleteOne(likely_id(random)),
            3..5 => What::DeleteRange { bounds: rules::bounds(random, &rule), by_id: random.u8(0..3) == 0 },
            5 => What::DeleteStretch(random.bool().then(|| DateTime::from_millis(NOW - random.i64(0..4_000_000))), date(random)),
            6..10 => What::DeleteStates { one_by_one: random.u8(0..3) == 0, along_index: random.bool() },
            10 => What::Count,
            11 => What::NeverExpires,
            13 => What::IgnoredTtl,
            12 | 14 => What::Field(field(random, &rule)),
            15 => What::Distribution,
            16 => What::Samples,
            17 => What::CountAll,
            18 => {
                let run = (*one_of(random, &["one", "two"])).to_owned();
                What::Lease { run, now: NOW + random.i64(0..4) * 30_000, kind: random.u8(0..4) }
            }
            19 => match random.bool() {
                true => What::Record(doc! { "_id": format!("run{}", random.u8(0..4)), "startedAt": date(random), "rules": [1] }),
                false => What::Newest(random.usize(1..4)),
            },
            20 => {
                let mut documents: Vec<Document> = Vec::new();
                for n in 0..random.i32(1..6) {
                    documents.push(document(random, shape, (n * 7).into()));
                }
                What::Restore { documents, present: *one_of(random, &[Present::Keep, Present::Replace]) }
            }
            _ => What::Keys { after: random.bool().then(|| shape.date(random)), skip: random.u64(0..5) },
        };
        Self { namespace: namespace.clone(), rule, what, seed: random.u64(..) }
    }

    pub(super) async fn run(&self, deployment: &Server) -> Outcome {
        let rule = rules::along_index(&self.rule, &rules::indexes(deployment, &self.namespace).await);
        match &self.what {
            What::DeleteIds(ids) => {
                let ids: Vec<RawValue> = ids.iter().map(|id| RawValue::of(id.clone()).expect("an _id")).collect();
                let ids = ids.iter().collect();
                self.delete(deployment, &rule, Restriction::of_ids(RawDocumentBuf::new(), ids)).await
            }
            What::DeleteOne(id) => {
                self.delete(deployment, &rule, Restriction::one(RawValue::of(id.clone()).expect("an _id"))).await
            }
            What::DeleteRange { bounds, by_id } => {
                let hint = match &rule.selection.index {
                    Some(index) if !by_id => Bson::from(index.name.as_str()),
                    _ => doc! { "_id": 1 }.into(),
                };
                self.delete(deployment, &rule, Restriction::Range { bounds: bounds.clone(), hint }).await
            }
            What::DeleteStretch(from, to) => match rule.expiry.stretch(*from, *to) {
                Some(stretch) => self.delete(deployment, &rule, Restriction::Stretch(stretch)).await,
                None => Outcome::of("no stretch"),
            },
            What::DeleteStates { one_by_one, along_index } => {
                self.delete_states(deployment, &rule, *one_by_one, *along_index).await
            }
            What::Count => {
                let mut found = count::expired_and_forecast(deployment, &rule, None).await;
                let filters_date = rule.selection.filter.iter().any(|filter| filter.to_string().contains(&rule.expiry.field));
                if (rule.expiry.not_before_1970 || filters_date) && rule.selection.index.is_some() {
                    // An index with arrays serves one of the two bounds, whichever plan a mongod finds faster. So it may or may
                    // not begin with a document that has an earlier date as well.
                    found = found.map(|(expired, units)| (Expired { oldest: None, ..expired }, units));
                }
                Outcome::of(found)
            }
            What::NeverExpires => Outcome::of(count::never_expires(deployment, &rule).await),
            What::IgnoredTtl => Outcome::of(count::ignored_ttl(deployment, &rule).await),
            What::Field(field) => {
                let looked = fields::look(deployment, &rule, &[field]).await;
                let searched = fields::search(deployment, &rule, field, false, &SearchTime::new()).await;
                Outcome::of((looked, searched, fields::similar(deployment, &rule, field).await))
            }
            What::Distribution => {
                let found = audit::distribution(deployment, &rule, None).await;
                Outcome::of(found.map(|(found, drawn)| (with_comparable_samples(found, rule.selection.filter.is_some()), drawn)))
            }
            What::Samples => {
                // The plan decides which ten of many are shown.
                let found = audit::samples(deployment, &rule).await;
                if found.as_ref().is_ok_and(|found| found.len() == 10) {
                    Outcome::of("many")
                } else {
                    Outcome::of(found).in_no_order()
                }
            }
            What::CountAll => Outcome::of(figures::count(deployment, &self.namespace).await),
            What::Lease { run, now, kind } => self.lease(deployment, run, *now, *kind).await,
            What::Record(document) => {
                let grant = RecordGrant::new(false).expect("no dry run");
                Outcome::of(history::insert(deployment, &self.aside("runs"), document.clone(), &grant).await)
            }
            What::Newest(last) => Outcome::of(history::newest(deployment, &self.aside("runs"), *last, false).await),
            What::Restore { documents, present } => {
                let documents: Vec<RawDocumentBuf> =
                    documents.iter().map(|document| RawDocumentBuf::try_from(document).expect("a document")).collect();
                let mut put = Put::default();
                let result =
                    RestoreTarget::unsharded(deployment, &self.namespace, *present, false).put(&documents, &mut put).await;
                put.why = put.why.map(|_| "refused".into());
                Outcome::of((result, put))
            }
            What::Keys { after, skip } => self.keys(deployment, &rule, after.as_ref(), *skip).await,
        }
    }

    /// Returns a collection of this sequence.
    fn aside(&self, name: &str) -> Namespace {
        Namespace { database: self.namespace.database.clone(), collection: format!("{}_{name}", self.namespace.collection) }
    }

    async fn delete(&self, deployment: &Server, rule: &SweepRule, restriction: Restriction) -> Outcome {
        let grant = DeleteGrant::new(false, Consent::NotAsked).expect("no dry run");
        // Both servers' clocks lie between.
        let begins_before = DateTime::from_millis(if self.seed.is_multiple_of(8) { 0 } else { 4_000_000_000_000 });
        let fence = Fence { begins_before, max_time: Some(Duration::from_secs(60)) };
        let fence = Some(&fence).filter(|_| self.seed.is_multiple_of(4));
        let reply = delete::delete(deployment, &rule.selection, &restriction, &doc! { "w": "majority" }, fence, &grant).await;
        // The words of an error are the server's own, but for its code at their end.
        let error = reply.error.map(|error| {
            let code =
                error.message.rsplit("(code ").next().map(|rest| rest.split([')', ',']).next().unwrap_or_default().to_owned());
            (code, error.retryable, error.reply_lost)
        });
        Outcome::of((reply.deleted, reply.unconfirmed, error))
    }

    /// Reads what the rule selects, changes one of the documents, and deletes them in the states in which they were read.
    async fn delete_states(&self, deployment: &Server, rule: &SweepRule, one_by_one: bool, along_index: bool) -> Outcome {
        let mut random = Rng::with_seed(self.seed);
        let mut deployment = deployment.clone();
        deployment.deployment.facts.capabilities.deletes_by_id_list = !one_by_one;
        let query = Query::find(&rule.selection.namespace, rule.selection.predicate.clone()).hint(Some(doc! { "$natural": 1 }));
        let read = match query.all_raw(&deployment).await {
            Ok(read) => read,
            Err(cause) => return Outcome::of_error(&cause),
        };
        let mut states: Vec<DocumentState> = read.into_iter().filter_map(DocumentState::new).collect();
        random.shuffle(&mut states);
        states.truncate(random.usize(1..8));
        if let Some(first) = states.first().filter(|_| random.bool()) {
            let id = Document::try_from(&*first.document).expect("a document").get("_id").expect("an _id").clone();
            let change = match random.u8(0..3) {
                0 => doc! { "$set": { "extra": 0.0 } },
                1 => doc! { "$set": { "kind": Bson::Symbol("x".into()) } },
                _ => doc! { "$unset": { "kind": 1 } },
            };
            let update = doc! { "update": &self.namespace.collection, "updates": [{ "q": { "_id": id }, "u": change }] };
            let update = ServerCommand::of(
                &self.namespace.database,
                &update,
                Patience::Limit(crate::shell::server::wire::timeout::MAX_COMMAND_TIME),
            );
            let _ = deployment.transport.run(update.expect("a command")).await;
        }
        if states.is_empty() {
            return Outcome::of("nothing");
        }
        let range = rule.selection.index.as_ref().filter(|_| along_index);
        let range =
            range.map(|index| IndexRange { field: rule.expiry.field.clone(), hint: index.name.as_str().into(), stretch: None });
        self.delete(&deployment, rule, Restriction::States { documents: states, range }).await
    }

    async fn lease(&self, deployment: &Server, run: &str, now: i64, kind: u8) -> Outcome {
        let locks = self.aside("locks");
        let of = std::slice::from_ref(&self.namespace);
        let me = Holder { run_id: run.into(), host: "host".into(), pid: 7, since: "2027-01-15T08:00:00.000Z".into() };
        let time = ServerTime { now: DateTime::from_millis(now), asked: Moment::now() };
        let (filter, update) = match kind {
            0 | 1 => lease::taking(&self.namespace, &me, &time),
            2 => (lease::owned(of, run), lease::renewing(&time)),
            _ => (lease::owned(of, run), lease::releasing(&time)),
        };
        let statement = doc! { "q": filter, "u": update, "multi": true, "upsert": kind < 2 };
        let body =
            doc! { "update": &locks.collection, "updates": [statement], "ordered": true, "writeConcern": { "w": "majority" } };
        let command =
            ServerCommand::of(&locks.database, &body, Patience::Limit(crate::shell::server::wire::timeout::MAX_COMMAND_TIME));
        let reply = Outcome::of_reply(deployment.transport.run(command.expect("a command")).await);
        let found = Query::find(&locks, doc! { "_id": self.namespace.to_string() }).all(deployment).await;
        Outcome::of((reply, found))
    }

    /// Asks for the ends of a batch as the sweep does, and for the plan of that query.
    async fn keys(&self, deployment: &Server, rule: &SweepRule, after: Option<&Bson>, skip: u64) -> Outcome {
        let Some(index) = rule.selection.index.as_ref().filter(|_| rule.expiry.field != "_id") else {
            return Outcome::of("no index");
        };
        let field = &rule.expiry.field;
        let mut bounds = after.map(|after| doc! { "$gt": after }).unwrap_or_default();
        bounds.insert("$lte", rule.expiry.latest_key());
        let query = Query::find(&self.namespace, doc! { field: bounds }).projection(doc! { "_id": 0, field: 1 });
        let query = query.sort(doc! { field: 1 }).hint(Some(index.name.as_str()));
        let found = query.clone().skip(skip).limit(2).first_batch(deployment).await;
        let plan = query.explain(deployment, "queryPlanner").await.expect("a plan");
        let plan =
            plan.get_document("queryPlanner").and_then(|planner| planner.get_document("winningPlan")).expect("a plan").clone();
        let (sorts, is_multikey) = (has(&plan, "stage", &"SORT".into()), has(&plan, "isMultiKey", &true.into()));
        // Several documents of one date are in no order, which shows where an index has arrays.
        let found = found.map(|found| if is_multikey { Vec::new() } else { found });
        let whole = Restriction::Range { bounds: doc! {}, hint: Bson::Null };
        let statements = statements(&whole, &rule.selection, false);
        Outcome::of((found, sorts, is_multikey, statements.is_ok()))
    }
}

/// Returns a field that documents may have.
fn field(random: &mut Rng, rule: &SweepRule) -> NamedField {
    let path = *one_of(random, &["ttl", "tll", "kind", "a.b", "at.0", &rule.expiry.field]);
    NamedField { path: path.into(), shown: path.into(), stored: path.into(), key: "filter", is_guarded: true, compared: None }
}

/// Returns a distribution with the samples that do not depend on an order that a server chooses.
fn with_comparable_samples(mut found: Distribution, has_filter: bool) -> Distribution {
    for samples in found.never_samples.values_mut() {
        if has_filter {
            // The index that serves the filter decides which documents come first and last in a group.
            samples.truncate(1);
            samples.iter_mut().for_each(|sample| *sample = "any".into());
        } else if samples.len() == MAX_SAMPLES {
            // The groups come in no order, and the first ones fill the list.
            samples.iter_mut().for_each(|sample| *sample = "any".into());
        }
        samples.sort_by_key(ToString::to_string);
    }
    found
}

/// Whether an explained plan has a key with this value at any level.
fn has(plan: &Document, key: &str, value: &Bson) -> bool {
    plan.iter().any(|(k, v)| (k == key && v == value) || v.as_document().is_some_and(|inner| has(inner, key, value)))
}
