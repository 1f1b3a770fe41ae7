//! The `_id`s of expired documents, found in one pass: along the index, or through the whole collection if there is none.

use bson::raw::CString;
use bson::spec::ElementType;
use bson::{Bson, Document, RawDocumentBuf, Regex, doc};

use super::pass::Pass;
use crate::base::values::raw::{RawList, RawRef, RawValue};
use crate::core::plan::holds::HeldBack;
use crate::core::plan::index::IndexChoice;
use crate::shell::server::delete::restriction::{Ids, Restriction};
use crate::shell::server::delete::shard_key;
use crate::shell::server::delete::statement::AROUND_QUERY;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::{Cursor, Query};
use crate::shell::server::wire::plan;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// Maximum bytes of the `_id`s of a batch, and of the predicates where each `_id` has one of its own. A command may be 16 MB
/// long, and `_id`s that are documents can be large.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of an `_id` in a list besides its value: the type, and the number of the place.
const AROUND_ID: usize = 8;

/// Maximum bytes of a string that becomes a regular expression: the server takes 32 764 bytes, and escaping can double a string.
const MAX_REGEX_BYTES: usize = 16_000;

/// Seconds of work to fetch at a time under a rate. The server closes a cursor that is idle for ten minutes.
const FETCH_SECONDS: u32 = 60;

/// One pass over the expired documents of a rule.
pub(crate) struct Candidates<'a> {
    sweep: &'a RuleSweep,
    /// A further predicate that every candidate must match.
    only: Option<Document>,
    fetch: u32,
    /// The lowest limit, in documents, of the rule and of the run; `None` without a limit.
    max_deletes: Option<u64>,
    /// Finds the `_id` of each document, and its values at the paths of the shard key.
    pass: Pass<'a>,
    /// Bytes that each document of a batch adds to the command besides its `_id`.
    bytes_per_document: usize,
    /// Bytes that each statement has besides its list of `_id`s.
    bytes_per_statement: usize,
}

impl<'a> Candidates<'a> {
    /// Creates a pass. `rate` is the lowest limit, in documents per second, that applies to the rule.
    pub(crate) fn new(sweep: &'a RuleSweep, rate: Option<u32>, only: Option<Document>) -> Self {
        let by_rate = rate.map_or(u32::MAX, |rate| rate.saturating_mul(FETCH_SECONDS));
        let fetch = sweep.rule.sizes.batch.min(by_rate).max(1);
        let held = sweep.rule.selection.held_back().map(HeldBack::bytes).sum::<usize>();
        // The plan has the predicate, which BSON can hold.
        let predicate = bson::serialize_to_vec(&sweep.rule.selection.predicate).map_or(MAX_BYTES, |bytes| bytes.len());
        let bytes_per_statement = AROUND_QUERY + predicate + held;
        let by_list = sweep.deployment.facts.capabilities.deletes_by_id_list;
        let bytes_per_document = if by_list { 0 } else { bytes_per_statement };
        let (max_deletes, pass) = (None, Pass::new(sweep, &sweep.rule.namespace));
        Self { sweep, only, fetch, max_deletes, pass, bytes_per_document, bytes_per_statement }
    }

    /// Sets the lowest limit of the rule and of the run, from which follows how many documents each shard may have to sort.
    pub(crate) fn limited(self, max_deletes: Option<u64>) -> Self {
        Self { max_deletes, ..self }
    }

    /// Returns the next `_id`s, at most `max` of them.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
        let folds = self.sweep.rule.selection.folds_ids;
        let paths = &self.sweep.rule.selection.shard_key;
        let (mut ids, mut keys) = (RawList::default(), Vec::new());
        let (mut count, mut bytes) = (0, 0);
        while count < max {
            let Some(candidate) = self.next(count > 0).await? else { break };
            let id = RawRef::at(&candidate, "_id").ok_or_else(|| self.sweep.explain_read(&without_id()))?;
            let exact = if folds { exactly(id) } else { None };
            let condition = if folds { exact.as_ref().map(RawRef::from) } else { Some(id) };
            match condition {
                None if count == 0 => {
                    let condition = shard_key::is(&shard_key::of(&candidate, paths), paths).map_err(no_key)?;
                    let restriction = Box::new(Restriction::One { condition, id: id.into() });
                    return Ok(NextBatch::Batch { restriction, documents: 1 });
                }
                Some(condition) if count == 0 || bytes + size(condition) <= MAX_BYTES => {
                    bytes += size(condition);
                    ids.push(condition);
                }
                _ => {
                    self.pass.keep(Some(candidate));
                    break;
                }
            }
            keys.push(shard_key::of(&candidate, paths));
            bytes += self.bytes_per_document;
            count += 1;
        }
        if count > 0 {
            let most = (MAX_BYTES / self.bytes_per_statement).max(1);
            let lists = shard_key::lists(&ids, &keys, paths, most).map_err(no_key)?;
            let lists = lists.into_iter().map(|(condition, ids)| Ids { condition, ids }).collect();
            return Ok(NextBatch::Batch { restriction: Box::new(Restriction::Ids { lists, parents: None }), documents: count });
        }
        let next = self.next(false).await?;
        Ok(self.pass.keep(next))
    }

    async fn next(&mut self, has_batch: bool) -> Result<Option<RawDocumentBuf>, String> {
        let Self { sweep, only, fetch, max_deletes, pass, .. } = self;
        pass.next(has_batch, async || open(sweep, only.as_ref(), *fetch, *max_deletes).await).await
    }
}

/// Opens a cursor on the expired documents of a rule that match a further predicate as well, with so many documents in a reply.
async fn open(sweep: &RuleSweep, only: Option<&Document>, fetch: u32, max_deletes: Option<u64>) -> Result<Cursor, ServerError> {
    let RuleSweep { deployment, rule, .. } = sweep;
    let selection = &rule.selection;
    let filter = match only {
        Some(only) => doc! { "$and": [only, &selection.predicate] },
        None => selection.predicate.clone(),
    };
    let filter = selection.without_held(&filter)?;
    let mut projection = doc! { "_id": 1 };
    projection.extend(selection.shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
    let hint = match &selection.index {
        Some(index) => Bson::from(index.name.as_str()),
        None => doc! { "$natural": 1 }.into(),
    };
    // On the primary: a secondary may be behind, and the deletes go to the primary anyway.
    let mut find = Query::find(&selection.namespace, filter)
        .projection(projection)
        .batch_size(fetch)
        .hint(Some(hint))
        .collation(selection.collation.as_ref());
    // A router merges the shards in the order of the dates only if it is asked to.
    let is_sorted = |index: &IndexChoice| index.oldest_first && !deployment.facts.is_behind_router();
    let index = selection.index.as_ref().filter(|index| !is_sorted(index) && only.is_none());
    if let Some(index) = index.filter(|_| deployment.facts.capabilities.sorts) {
        let sort = doc! { &rule.expiry.field: 1 };
        if sorts_along(sweep, index).await? {
            find = find.sort(sort);
        } else if let Some(most) = most_sorted(sweep, max_deletes) {
            find = find.sort(sort).limit(most).allow_disk_use();
        }
    }
    find.cursor(deployment).await
}

/// Returns the number of documents that limits let go, and one more, which shows that others are left. Each shard has to sort
/// them, but keeps no more than so many. Returns `None` without a limit, in front of one server, and where documents may stay
/// because they cannot be archived: all that were found could be such documents.
fn most_sorted(sweep: &RuleSweep, max_deletes: Option<u64>) -> Option<u64> {
    let facts = &sweep.deployment.facts;
    let sorts = facts.is_behind_router() && facts.capabilities.sorts_on_disk && sweep.archive.is_none();
    Some(max_deletes.filter(|_| sorts)?.saturating_add(1))
}

/// Tells whether an index can be walked so that the oldest dates come first. A multikey index cannot, nor can one that begins
/// with another field: the server would sort everything in memory before the first reply.
async fn sorts_along(sweep: &RuleSweep, index: &IndexChoice) -> Result<bool, ServerError> {
    let RuleSweep { deployment, rule, .. } = sweep;
    let query = sweep.query(rule.selection.predicate.clone());
    let query = query.sort(doc! { &rule.expiry.field: 1 }).hint(Some(index.name.as_str()));
    let plan = query.explain(deployment, "queryPlanner").await?;
    Ok(!plan::sorts(&plan))
}

/// Returns a condition for the `_id` that no collation loosens, if there is one: a regular expression compares strings byte by
/// byte, and the index on `_id` serves it. Under the rule's own collation, plain strings would match other `_id`s too, and every
/// batch would walk the whole index.
fn exactly(id: RawRef<'_>) -> Option<RawValue> {
    let text = match id.kind() {
        ElementType::String if id.as_bytes().len() <= MAX_REGEX_BYTES => RawValue::from(id).decoded()?,
        ElementType::String | ElementType::EmbeddedDocument | ElementType::Symbol | ElementType::JavaScriptCode => return None,
        ElementType::JavaScriptCodeWithScope | ElementType::DbPointer => return None,
        _ => return Some(id.into()),
    };
    let mut pattern = String::from("\\A");
    for c in text.as_str()?.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push_str("\\z");
    // No regular expression can hold NUL.
    let pattern = CString::try_from(pattern).ok()?;
    RawValue::of(Bson::RegularExpression(Regex { pattern, options: bson::raw::cstr!("").to_owned() })).ok()
}

fn no_key(cause: bson::error::Error) -> String {
    format!("reading the shard key: {cause}")
}

fn without_id() -> ServerError {
    ServerError::invalid_reply("a document without an `_id`")
}

/// Returns the bytes of an `_id` in a list.
fn size(id: RawRef<'_>) -> usize {
    id.as_bytes().len() + AROUND_ID
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;
    use crate::core::facts::Topology;
    use crate::shell::lock::lease::Leases;
    use crate::shell::server::wire::codes;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, End, Error, Reply};

    fn sweep(replies: Vec<ScriptedReply>) -> (std::sync::Arc<Script>, RuleSweep) {
        let script = Script::new(replies);
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        (script, sweep)
    }

    fn found(ids: Vec<Bson>) -> ScriptedReply {
        Batch(ids.into_iter().map(|id| doc! { "_id": id }).collect())
    }

    /// Returns a word for each of the batches of these sizes.
    async fn taken(candidates: &mut Candidates<'_>, sizes: &[u64]) -> Vec<String> {
        let mut taken = Vec::new();
        for max in sizes {
            taken.push(match candidates.take(*max).await.unwrap() {
                NextBatch::Batch { restriction, documents } => match *restriction {
                    Restriction::Ids { lists, .. } => {
                        let [list] = &lists[..] else { panic!("{lists:?}") };
                        assert_eq!(list.ids.len() as u64, documents);
                        format!("{documents} {}", if list.condition.is_empty() { "ids" } else { "with their key" })
                    }
                    Restriction::One { .. } => "one".into(),
                    other => panic!("{other:?}"),
                },
                NextBatch::More => "more".into(),
                NextBatch::Exhausted => "exhausted".into(),
                NextBatch::AfterOthers => "after others".into(),
            });
        }
        taken
    }

    #[tokio::test]
    async fn a_batch_has_as_many_ids_as_were_asked_for_and_as_fit_into_a_command() {
        // Two of 2 MiB, with what a list adds to each, take all the bytes. A string has a length and an end.
        let text = |more: usize| Bson::from("x".repeat((2 << 20) - AROUND_ID - 5 + more));
        for (more, sizes, expected) in [
            (0, &[9, 9, 9][..], &["2 ids", "1 ids", "exhausted"][..]),
            (1, &[9, 9, 9, 9], &["1 ids", "1 ids", "1 ids", "exhausted"]),
            (0, &[0, 1, 0, 1, 1, 0], &["more", "1 ids", "more", "1 ids", "1 ids", "exhausted"]),
        ] {
            let (_, sweep) = sweep(vec![found((0..3).map(|_| text(more)).collect()), End]);
            assert_eq!(taken(&mut Candidates::new(&sweep, None, None), sizes).await, expected, "{more} {sizes:?}");
        }
        // One that is too large by itself is sent in a batch of its own.
        let (_, sweep) = sweep(vec![found(vec!["x".repeat(2 * MAX_BYTES).into(), 1.into()]), End]);
        assert_eq!(taken(&mut Candidates::new(&sweep, None, None), &[9, 9]).await, ["1 ids", "1 ids"]);
    }

    #[tokio::test]
    async fn each_id_counts_with_its_statement_where_it_has_one_of_its_own() {
        let (_, mut sweep) = sweep(vec![]);
        sweep.deployment.facts.capabilities.deletes_by_id_list = false;
        let predicate = bson::serialize_to_vec(&sweep.rule.selection.predicate).unwrap().len();
        let each = Candidates::new(&sweep, None, None).bytes_per_document;
        assert_eq!(each, AROUND_QUERY + predicate);
        for (more, expected) in [(0, ["2 ids", "1 ids"]), (1, ["1 ids", "2 ids"])] {
            let length = MAX_BYTES - each - 2 * (AROUND_ID + 5) + more;
            let texts = [length / 2, length - length / 2, 1].map(|length| Bson::from("x".repeat(length)));
            let script = Script::new([found(texts.into()), End]);
            sweep.deployment = script.deployment();
            sweep.deployment.facts.capabilities.deletes_by_id_list = false;
            let mut candidates = Candidates::new(&sweep, None, None);
            assert_eq!(taken(&mut candidates, &[9, 9]).await, expected, "{more}");
        }
    }

    #[tokio::test]
    async fn an_id_that_a_collation_may_take_for_another_goes_alone_and_in_its_turn() {
        let (_, mut sweep) =
            sweep(vec![found(vec!["a".into(), 1.into(), doc! { "k": 1 }.into(), "b".into(), doc! { "k": 2 }.into()]), End]);
        sweep.rule.selection.folds_ids = true;
        let mut candidates = Candidates::new(&sweep, None, None);
        assert_eq!(taken(&mut candidates, &[9, 9, 9, 9, 9]).await, ["2 ids", "one", "1 ids", "one", "exhausted"]);
    }

    #[tokio::test]
    async fn the_values_of_the_shard_key_go_with_the_ids() {
        let (script, mut sweep) = sweep(vec![Batch(vec![doc! { "_id": 1, "k": 5 }, doc! { "_id": 2, "k": 6 }]), End]);
        sweep.rule.selection.shard_key = vec!["k".into()];
        assert_eq!(taken(&mut Candidates::new(&sweep, None, None), &[9, 9]).await, ["2 with their key", "exhausted"]);
        assert_eq!(script.sent()[0].get_document("projection").unwrap(), &doc! { "_id": 1, "k": 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_before_a_pass_begins_again_and_nothing_is_left_out() {
        let lost = || Error(ServerError::reported(codes::CURSOR_NOT_FOUND, "cursor id not found", ""));
        let (script, sweep) = sweep(vec![lost(), found(vec![1.into(), 2.into()]), lost(), found(vec![3.into()]), End]);
        let mut candidates = Candidates::new(&sweep, None, None);
        assert_eq!(taken(&mut candidates, &[9, 9, 9]).await, ["2 ids", "1 ids", "exhausted"]);
        assert_eq!(script.sent().len(), 3);
    }

    #[tokio::test]
    async fn an_index_in_descending_order_is_sorted_by_where_it_can_be_walked_so() {
        let (sorts, walks) = (doc! { "plan": { "stage": "SORT" } }, doc! { "plan": { "stage": "IXSCAN" } });
        let only = || Some(doc! { "at": 5 });
        let (sorts, walks) = (|| Some(sorts.clone()), || Some(walks.clone()));
        for (oldest_first, only, can_sort, plan, sharded, is_sorted) in [
            (false, None, true, walks(), None, true),
            (false, None, true, sorts(), None, false),
            (true, None, true, None, None, false),
            (false, only(), true, None, None, false),
            (false, None, false, None, None, false),
            // Behind a router, without a limit and with one.
            (true, None, true, walks(), Some(None), true),
            (true, None, true, sorts(), Some(None), false),
            (true, None, true, sorts(), Some(Some(5)), true),
        ] {
            let is_explained = plan.is_some();
            let (script, mut sweep) = sweep(plan.map(Reply).into_iter().chain([found(vec![1.into()]), End]).collect());
            sweep.deployment.facts.capabilities.sorts = can_sort;
            if sharded.is_some() {
                sweep.deployment.facts.topology = Topology::Sharded;
            }
            sweep.rule.selection.index = Some(IndexChoice { name: "at_-1".into(), oldest_first, bounded: true });
            let mut candidates = Candidates::new(&sweep, None, only).limited(sharded.flatten());
            assert_eq!(taken(&mut candidates, &[9]).await, ["1 ids"]);
            let sent = script.sent();
            let find = sent.last().unwrap();
            assert_eq!((sent.len(), find.get_str("hint").unwrap()), (1 + usize::from(is_explained), "at_-1"));
            assert_eq!(find.get_document("sort").ok(), is_sorted.then(|| doc! { "at": 1 }).as_ref(), "{find}");
            let limit = sharded.flatten().map(|most: u64| most + 1);
            assert_eq!(find.get("limit").and_then(Bson::as_i64).map(i64::unsigned_abs), limit, "{find}");
        }
    }

    #[test]
    fn a_string_is_matched_byte_by_byte_from_its_first_to_its_last_and_other_types_as_they_are() {
        let exactly = |id: Bson| exactly((&RawValue::of(id).unwrap()).into()).map(|condition| condition.decoded().unwrap());
        for (id, expected) in
            [("aZ09", "\\AaZ09\\z"), ("a.b*\n_\\", "\\Aa\\.b\\*\\\n\\_\\\\\\z"), ("é ß", "\\Aé\\ ß\\z"), ("", "\\A\\z")]
        {
            let pattern = CString::try_from(expected.to_owned()).unwrap();
            let options = bson::raw::cstr!("").to_owned();
            assert_eq!(exactly(id.into()), Some(Bson::RegularExpression(Regex { pattern, options })), "{id:?}");
        }
        for id in [Bson::Int32(5), Bson::Double(0.5), ObjectId::from_bytes([7; 12]).into(), Bson::Null] {
            assert_eq!(exactly(id.clone()), Some(id));
        }
        let long = "x".repeat(MAX_REGEX_BYTES + 1);
        let scoped = bson::JavaScriptCodeWithScope { code: "a".into(), scope: doc! {} };
        for id in [
            "a\0b".into(),
            long.into(),
            doc! { "k": "a" }.into(),
            Bson::Symbol("a".into()),
            Bson::JavaScriptCode("a".into()),
            scoped.into(),
        ] {
            assert_eq!(exactly(id), None);
        }
    }
}
