//! The statements of a delete command: the filters for a restriction, each with the whole predicate of its rule.

use std::sync::Arc;

use bson::raw::{CStr, RawBson, cstr};
use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf, doc};

use super::document_match::{self, DocumentState, StateFilter, StateStatement};
use super::fence::FENCE_BYTES;
use super::restriction::{Ids, Restriction};
use crate::base::values::raw::{self, Fields, RawRef};
use crate::core::plan::Selection;
use crate::core::plan::holds::KeyCondition;

/// Bytes of a statement around its query, a fence and its place in the command included.
pub(crate) const AROUND_QUERY: usize = 60 + FENCE_BYTES;

/// Bytes of a query around a filter and a predicate.
const AROUND_BOTH: usize = 22;

/// Bytes of a filter around a list of `_id`s, and the ends of the list where these are named as well; rounded up.
const AROUND_IDS: usize = 64;

/// One statement of a delete command. A read with the same query finds the same documents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement<'a> {
    filter: StatementFilter<'a>,
    /// The whole predicate of the rule; `None` if the filter has it.
    predicate: Option<Arc<RawDocumentBuf>>,
    /// The condition for documents without a hold; `None` if nothing is held.
    unheld: Option<KeyCondition>,
    /// Maximum number of documents; 0 for no limit.
    pub limit: i32,
    /// The index that the query walks, by its name or its key.
    pub hint: RawBson,
}

/// The filter of a restriction.
#[derive(Debug, Clone, PartialEq)]
enum StatementFilter<'a> {
    Whole(RawDocumentBuf),
    Ids {
        list: &'a Ids,
        /// The first and the last of the `_id`s, each with its operator, where these are to be named as well.
        ends: Vec<(&'static CStr, RawRef<'a>)>,
    },
    /// One `_id` of a list.
    Id(&'a Ids, RawRef<'a>),
    States(StateFilter<'a>),
}

impl StatementFilter<'_> {
    fn write(&self, query: &mut Fields) {
        match self {
            Self::Whole(filter) => query.all_of(filter),
            Self::Ids { list, ends } => {
                query.all_of(&list.condition);
                query.document(cstr!("_id"), |id| {
                    id.list(cstr!("$in"), &list.ids);
                    ends.iter().for_each(|(operator, end)| id.value(operator, *end));
                });
            }
            Self::Id(list, id) => {
                query.all_of(&list.condition);
                query.value(cstr!("_id"), *id);
            }
            Self::States(states) => states.write(query),
        }
    }

    /// Returns the bytes of the filter, rounded up.
    fn bytes(&self) -> usize {
        match self {
            Self::Whole(filter) => filter.as_bytes().len(),
            Self::Ids { list, .. } => list.condition.as_bytes().len() + list.ids.as_bytes().len() + AROUND_IDS,
            Self::Id(list, id) => list.condition.as_bytes().len() + id.as_bytes().len() + AROUND_IDS,
            Self::States(states) => states.bytes(),
        }
    }
}

impl Statement<'_> {
    /// Returns the query without a fence.
    ///
    /// Errors: the query is too long.
    pub(crate) fn query(&self) -> Result<RawDocumentBuf, bson::error::Error> {
        raw::written(self.bytes(), |query| self.write(query, None))
    }

    /// Writes the query, to which a fence may be added.
    pub(crate) fn write(&self, query: &mut Fields, fence: Option<&RawDocument>) {
        match fence {
            Some(fence) => query.documents(cstr!("$and"), 2, |condition, n| match n {
                0 => self.write(condition, None),
                _ => condition.all_of(fence),
            }),
            None => match &self.unheld {
                Some(unheld) => unheld.write_with(query, |whole| self.write_whole(whole)),
                None => self.write_whole(query),
            },
        }
    }

    /// Writes the filter together with the whole predicate of the rule.
    fn write_whole(&self, query: &mut Fields) {
        match &self.predicate {
            Some(predicate) => query.documents(cstr!("$and"), 2, |condition, n| match n {
                0 => self.filter.write(condition),
                _ => condition.all_of(predicate),
            }),
            None => self.filter.write(query),
        }
    }

    /// Returns the bytes of the query without a fence, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        let predicate = self.predicate.as_ref().map_or(0, |predicate| predicate.as_bytes().len() + AROUND_BOTH);
        self.filter.bytes() + predicate + self.unheld.as_ref().map_or(0, KeyCondition::bytes)
    }
}

/// Returns the statements that together name the documents of a restriction. With `one_by_one`, documents that are named by their
/// `_id`s have one statement each.
///
/// A statement of a rule with holds leaves out what is held. A list of `_id`s is copied only where the statement is written.
///
/// Errors: BSON cannot hold a part of the selection, or the holds of the rule were not read.
pub(crate) fn statements<'a>(
    restriction: &'a Restriction,
    selection: &Selection,
    one_by_one: bool,
) -> Result<Vec<Statement<'a>>, bson::error::Error> {
    let by_id = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
    let predicate = Arc::new(RawDocumentBuf::try_from(&selection.predicate)?);
    let unheld = match restriction {
        // A document that is unchanged since it was found had none of the earlier holds.
        Restriction::States { .. } => selection.unheld_since_found()?,
        _ => selection.unheld_until(restriction.latest(selection))?,
    };
    let statement = |filter, limit, hint: &RawBson| Statement {
        filter,
        predicate: Some(predicate.clone()),
        unheld: unheld.clone(),
        limit,
        hint: hint.clone(),
    };
    let mut statements = Vec::new();
    match restriction {
        Restriction::Ids { lists, .. } => {
            let filters = lists.iter().flat_map(|list| of_ids(list, selection, one_by_one));
            statements.extend(filters.map(|filter| statement(filter, 0, &by_id)));
        }
        Restriction::One { condition, id } => {
            let filter = raw::joined(&[condition, &raw::document([("_id", id)])?])?;
            statements.push(statement(StatementFilter::Whole(filter), 1, &by_id));
        }
        Restriction::Range { bounds, hint } => {
            let filter = StatementFilter::Whole(RawDocumentBuf::try_from(bounds)?);
            statements.push(statement(filter, 0, &RawBson::try_from(hint.clone())?));
        }
        Restriction::Stretch(stretch) => {
            let filter = StatementFilter::Whole(RawDocumentBuf::try_from(&stretch.predicate())?);
            statements.push(Statement { predicate: None, ..statement(filter, 0, &by_id) });
        }
        Restriction::States { documents, range } => {
            let of_states = document_match::statements(documents, range.as_ref(), selection, one_by_one)?;
            statements.extend(of_states.into_iter().map(|StateStatement { filter, predicate, hint }| {
                let of_rule = statement(StatementFilter::States(filter), 0, &hint);
                Statement { predicate: predicate.map(Arc::new).or(of_rule.predicate.clone()), ..of_rule }
            }));
        }
    }
    Ok(statements)
}

/// Returns the bytes that a document in the state in which it was archived adds to a command of statements for one document each.
pub(crate) fn bytes_of_one(state: &DocumentState, selection: &Selection) -> usize {
    let one = Restriction::States { documents: vec![state.clone()], range: None };
    let statements = statements(&one, selection, true).unwrap_or_default();
    let bytes_of = |statement: &Statement| statement.query().map_or(0, |query| query.as_bytes().len()) + AROUND_QUERY;
    statements.iter().map(bytes_of).sum()
}

/// Returns the filters for a list of `_id`s.
fn of_ids<'a>(list: &'a Ids, selection: &Selection, one_by_one: bool) -> Vec<StatementFilter<'a>> {
    if one_by_one {
        return list.ids.iter().map(|id| StatementFilter::Id(list, id)).collect();
    }
    let mut ends = Vec::new();
    if selection.is_buckets() {
        // The server walks a clustered collection from the first to the last `_id` only if the condition names both.
        let ids = || list.ids.iter().filter(|id| id.kind() == ElementType::ObjectId);
        ends.extend(ids().min_by_key(|id| id.as_bytes()).map(|first| (cstr!("$gte"), first)));
        ends.extend(ids().max_by_key(|id| id.as_bytes()).map(|last| (cstr!("$lte"), last)));
    }
    vec![StatementFilter::Ids { list, ends }]
}

#[cfg(test)]
mod tests {
    use bson::{Bson, DateTime, Document};

    use super::*;
    use crate::base::values::raw::RawValue;
    use crate::core::plan::SweepRule;
    use crate::core::plan::periods::KeptKeys;
    use crate::shell::lock::fence::Fence;
    use crate::shell::server::delete::fence::in_time;
    use crate::testing::made_up::planned;

    fn rule() -> SweepRule {
        planned("", 3).decision.countable().unwrap().clone()
    }

    fn queries(restriction: &Restriction, one_by_one: bool) -> Vec<Document> {
        let statements = statements(restriction, &rule().selection, one_by_one).unwrap();
        statements.iter().map(|statement| Document::try_from(&*statement.query().unwrap()).unwrap()).collect()
    }

    #[test]
    fn every_statement_has_the_whole_predicate_and_one_id_or_all() {
        let predicate = rule().selection.predicate;
        let ids = || [RawValue::of(1).unwrap(), RawValue::of("x").unwrap()].iter().collect();
        let with = |condition: Document| doc! { "$and": [condition, &predicate] };
        let all = Restriction::of_ids(RawDocumentBuf::new(), ids());
        assert_eq!(queries(&all, false), [with(doc! { "_id": { "$in": [1, "x"] } })]);
        assert_eq!(queries(&all, true), [with(doc! { "_id": 1 }), with(doc! { "_id": "x" })]);
        let sharded = Restriction::of_ids(RawDocumentBuf::try_from(&doc! { "k": 5 }).unwrap(), ids());
        assert_eq!(queries(&sharded, false), [with(doc! { "k": 5, "_id": { "$in": [1, "x"] } })]);
        assert_eq!(queries(&sharded, true), [with(doc! { "k": 5, "_id": 1 }), with(doc! { "k": 5, "_id": "x" })]);
    }

    #[test]
    fn a_fence_leaves_the_query_whole_and_has_a_known_size() {
        let mut rule = planned("    holds: {collection: legal.holds, key: t}\n", 3).decision.countable().unwrap().clone();
        let keys = KeptKeys::of(vec![RawValue::of("x").unwrap()]).unwrap();
        rule.selection.holds = rule.selection.holds.map(|holds| holds.with(&Arc::new(keys)));
        let fence = Fence { begins_before: DateTime::from_millis(1_000), max_time: None };
        let in_time = in_time(&fence).unwrap();
        let restriction = Restriction::one(RawValue::of(5).unwrap());
        let one = &statements(&restriction, &rule.selection, false).unwrap()[0];
        let fenced = raw::written(0, |query| one.write(query, Some(&in_time))).unwrap();
        let shown = |query: &RawDocument| Document::try_from(query).unwrap();
        let plain = one.query().unwrap();
        assert_eq!(shown(&fenced), doc! { "$and": [shown(&plain), shown(&in_time)] });
        let added = fenced.as_bytes().len() - plain.as_bytes().len();
        assert!(added <= FENCE_BYTES && plain.as_bytes().len() <= one.bytes(), "{added}");
    }

    #[test]
    fn archived_documents_have_statements_of_their_own_and_the_size_of_those() {
        let state =
            |id: i32| DocumentState::new(RawDocumentBuf::try_from(&doc! { "_id": id, "v": [{ "n": 0 }] }).unwrap()).unwrap();
        let states = Restriction::States { documents: vec![state(1), state(2)], range: None };
        let found = queries(&states, true);
        let ids = found.iter().map(|query| query.get_array("$and").unwrap()[0].as_document().unwrap().get("_id"));
        assert_eq!(ids.collect::<Vec<_>>(), [Some(&Bson::Int32(1)), Some(&Bson::Int32(2))]);
        let bytes = bson::serialize_to_vec(&found[0]).unwrap().len();
        assert_eq!(bytes_of_one(&state(1), &rule().selection), bytes + AROUND_QUERY);
    }

    #[test]
    fn every_statement_of_a_rule_with_holds_leaves_out_what_is_held() {
        let mut rule = planned("    holds: {collection: legal.holds, key: t}\n", 3).decision.countable().unwrap().clone();
        let found = |rule: &SweepRule, restriction: &Restriction| {
            let statements = statements(restriction, &rule.selection, false)?;
            Ok::<_, bson::error::Error>(
                statements.iter().map(|one| Document::try_from(&*one.query().unwrap()).unwrap()).collect::<Vec<_>>(),
            )
        };
        let state = DocumentState::new(RawDocumentBuf::try_from(&doc! { "_id": 1 }).unwrap()).unwrap();
        let id = || RawValue::of(1).unwrap();
        let list = || Ids { condition: RawDocumentBuf::new(), ids: [&id()].into_iter().collect() };
        let restrictions = [
            Restriction::of_ids(RawDocumentBuf::new(), [&id()].into_iter().collect()),
            Restriction::Ids { lists: vec![list(), list()], parents: None },
            Restriction::one(id()),
            Restriction::Range { bounds: doc! { "at": { "$gt": 1 } }, hint: Bson::from("at_1") },
            Restriction::Stretch(rule.expiry.stretch(None, DateTime::MAX).unwrap()),
            Restriction::States { documents: vec![state], range: None },
        ];
        for restriction in &restrictions {
            assert!(found(&rule, restriction).unwrap_err().to_string().contains("the holds were not read"), "{restriction:?}");
        }
        let holds = |keys: &[i32]| {
            let keys = keys.iter().map(|key| RawValue::of(*key).unwrap()).collect();
            Arc::new(KeptKeys::of(keys).unwrap())
        };
        let unheld = rule.selection.holds.clone().unwrap();
        rule.selection.holds = Some(unheld.with(&holds(&[])));
        let plain: Vec<_> = restrictions.iter().map(|restriction| found(&rule, restriction).unwrap()).collect();
        rule.selection.holds = Some(unheld.with(&holds(&[5, 7])));
        for (restriction, plain) in restrictions.iter().zip(&plain) {
            let with = plain.iter().map(|query| doc! { "$and": [query, { "t": { "$nin": [5, 7] } }] });
            assert_eq!(found(&rule, restriction).unwrap(), with.collect::<Vec<_>>(), "{restriction:?}");
        }
        // Documents that were found without those holds, in the state in which they were found.
        rule.selection.holds = Some(unheld.with(&holds(&[5, 7])).with(&holds(&[5, 8])));
        let [.., range, _, states] = &restrictions;
        assert!(found(&rule, range).unwrap()[0].to_string().contains("[5, 8]"));
        assert_eq!(found(&rule, states).unwrap(), [doc! { "$and": [&plain[5][0], { "t": { "$nin": [8] } }] }]);
    }

    #[test]
    fn a_stretch_is_the_whole_query() {
        let rule = rule();
        let stretch = rule.expiry.stretch(None, DateTime::MAX).unwrap();
        assert_eq!(queries(&Restriction::Stretch(stretch), true), [rule.selection.predicate]);
    }

    #[test]
    fn a_list_of_buckets_names_the_first_and_the_last_of_them() {
        let mut rule = rule();
        let id = |n: u8| bson::oid::ObjectId::from_bytes([n; 12]);
        let listed = [Bson::from(id(5)), "x".into(), id(2).into(), id(9).into()].map(|id| RawValue::of(id).unwrap());
        let ids = Restriction::of_ids(RawDocumentBuf::new(), listed.iter().collect());
        let of = |rule: &SweepRule| {
            let statements = statements(&ids, &rule.selection, false).unwrap();
            Document::try_from(&*statements[0].query().unwrap()).unwrap().get_array("$and").unwrap()[0].clone()
        };
        let list = [Bson::from(id(5)), "x".into(), id(2).into(), id(9).into()];
        assert_eq!(of(&rule), doc! { "_id": { "$in": &list[..] } }.into());
        rule.selection.storage = crate::core::plan::Storage::Buckets { measurements: "at".into() };
        assert_eq!(of(&rule), doc! { "_id": { "$in": &list[..], "$gte": id(2), "$lte": id(9) } }.into());
    }

    #[test]
    fn a_statement_takes_no_more_of_a_command_than_was_reckoned_and_little_less() {
        let state = |id: i32| DocumentState::new(RawDocumentBuf::try_from(&doc! { "_id": id }).unwrap()).unwrap();
        let bytes = |states: Vec<DocumentState>| {
            let restriction = Restriction::States { documents: states, range: None };
            let statements = statements(&restriction, &rule().selection, true).unwrap();
            let fence = in_time(&Fence { begins_before: DateTime::from_millis(1_000), max_time: None }).unwrap();
            let written = raw::written(0, |command| {
                command.documents(cstr!("deletes"), statements.len(), |delete, n| {
                    delete.document(cstr!("q"), |query| statements[n].write(query, Some(&fence)));
                    delete.all_of(&RawDocumentBuf::try_from(&doc! { "limit": 0, "hint": { "_id": 1 } }).unwrap());
                });
            });
            written.unwrap().as_bytes().len()
        };
        let each = bytes(vec![state(1), state(2)]) - bytes(vec![state(1)]);
        let reckoned = bytes_of_one(&state(1), &rule().selection);
        assert!(each <= reckoned && reckoned < each + 100, "{each} {reckoned}");
    }
}
