//! The statements of a delete command: the filters for a restriction, each with the whole predicate of its rule.

use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::spec::ElementType;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, doc};

use super::document_match::{self, DocumentState};
use super::fence::FENCE_BYTES;
use super::restriction::Restriction;
use crate::base::values::raw::{self, Fields, RawValue};
use crate::core::plan::Selection;
use crate::core::plan::holds::KeyCondition;

/// Bytes of a statement around its query, a fence and its place in the command included.
pub(crate) const AROUND_QUERY: usize = 60 + FENCE_BYTES;

/// One statement of a delete command. A read with the same query finds the same documents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    /// The filter of the restriction together with the whole predicate of the rule.
    filter: RawDocumentBuf,
    /// The condition for documents without a hold; `None` if nothing is held.
    unheld: Option<KeyCondition>,
    /// Maximum number of documents; 0 for no limit.
    pub limit: i32,
    /// The index that the query walks, by its name or its key.
    pub hint: RawBson,
}

impl Statement {
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
                Some(unheld) => unheld.write_with(query, &self.filter),
                None => query.all_of(&self.filter),
            },
        }
    }

    /// Returns the bytes of the query without a fence, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        self.filter.as_bytes().len() + self.unheld.as_ref().map_or(0, KeyCondition::bytes)
    }
}

/// Returns the statements that together name the documents of a restriction. With `one_by_one`, documents that are named by their `_id`s have one
/// statement each.
///
/// A statement of a rule with holds leaves out what is held. They are built raw: `_id`s go from the server's reply to the command without being decoded.
///
/// Errors: BSON cannot hold a part of the selection, or the holds of the rule were not read.
pub(crate) fn statements(
    restriction: &Restriction,
    selection: &Selection,
    one_by_one: bool,
) -> Result<Vec<Statement>, bson::error::Error> {
    let by_id = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
    let predicate = RawDocumentBuf::try_from(&selection.predicate)?;
    let unheld = match (&selection.holds, restriction) {
        (None, _) => None,
        // A document that is unchanged since it was found had none of the earlier holds.
        (Some(holds), Restriction::States { .. }) => holds.unheld_since_found()?,
        (Some(holds), _) => holds.unheld()?,
    };
    let whole = |filter, limit, hint: &RawBson| Statement { filter, unheld: unheld.clone(), limit, hint: hint.clone() };
    let statement = |filter, limit, hint: &RawBson| whole(with_predicate(filter, &predicate), limit, hint);
    let mut statements = Vec::new();
    match restriction {
        Restriction::Ids(ids) => {
            let filters = of_ids(ids, &RawDocumentBuf::new(), selection, one_by_one)?;
            statements.extend(filters.into_iter().map(|filter| statement(filter, 0, &by_id)));
        }
        Restriction::Sharded(groups) => {
            for (key, ids) in groups {
                let filters = of_ids(ids, key, selection, one_by_one)?;
                statements.extend(filters.into_iter().map(|filter| statement(filter, 0, &by_id)));
            }
        }
        Restriction::Children { parents, ids } => {
            let key = raw::document([(parents.field.as_str(), &RawValue::from(parents.condition()?))])?;
            let filters = of_ids(ids, &key, selection, one_by_one)?;
            statements.extend(filters.into_iter().map(|filter| statement(filter, 0, &by_id)));
        }
        Restriction::One(id) => statements.push(statement(raw::document([("_id", id)])?, 1, &by_id)),
        Restriction::Range { bounds, hint } => {
            statements.push(statement(RawDocumentBuf::try_from(bounds)?, 0, &RawBson::try_from(hint.clone())?));
        }
        Restriction::Stretch(stretch) => {
            statements.push(whole(RawDocumentBuf::try_from(&stretch.predicate())?, 0, &by_id));
        }
        Restriction::States { documents, range } => {
            let filters = document_match::filters(documents, range.as_ref(), selection, one_by_one)?;
            statements.extend(filters.into_iter().map(|(filter, hint)| statement(filter, 0, &hint)));
        }
    }
    Ok(statements)
}

/// Returns the bytes that a document in the state in which it was archived adds to a command of statements for one document each.
pub(crate) fn bytes_of_one(state: &DocumentState, selection: &Selection) -> usize {
    let one = Restriction::States { documents: vec![state.clone()], range: None };
    let statements = statements(&one, selection, true).unwrap_or_default();
    statements.iter().map(|statement| statement.bytes() + AROUND_QUERY).sum()
}

/// Returns a filter together with the whole predicate of the rule.
fn with_predicate(filter: RawDocumentBuf, predicate: &RawDocumentBuf) -> RawDocumentBuf {
    let mut all = RawArrayBuf::new();
    all.push(RawBson::Document(filter));
    all.push(RawBsonRef::Document(predicate));
    let mut query = RawDocumentBuf::new();
    query.append(cstr!("$and"), RawBson::Array(all));
    query
}

/// Returns the conditions for a list of `_id`s, each together with a condition on the shard key.
fn of_ids(
    ids: &[RawValue],
    key: &RawDocumentBuf,
    selection: &Selection,
    one_by_one: bool,
) -> Result<Vec<RawDocumentBuf>, bson::error::Error> {
    let conditions = match one_by_one {
        true => ids.to_vec(),
        false => vec![is_in(ids, selection)?],
    };
    conditions.iter().map(|condition| raw::joined(&[key, &raw::document([("_id", condition)])?])).collect()
}

/// Returns the condition of an `_id` for a list of them.
fn is_in(ids: &[RawValue], selection: &Selection) -> Result<RawValue, bson::error::Error> {
    let list = RawValue::list(ids)?;
    let mut condition = vec![("$in", &list)];
    if selection.is_buckets() {
        // The server walks a clustered collection from the first to the last `_id` only if the condition names both.
        let ids = || ids.iter().filter(|id| id.kind() == ElementType::ObjectId);
        let order = |id: &&RawValue| id.as_bytes().to_vec();
        condition.extend(ids().min_by_key(order).map(|first| ("$gte", first)));
        condition.extend(ids().max_by_key(order).map(|last| ("$lte", last)));
    }
    raw::document(condition).map(RawValue::from)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, DateTime, Document};

    use std::sync::Arc;

    use super::*;
    use crate::core::plan::holds::KeyList;
    use crate::core::plan::{ParentKey, SweepRule};
    use crate::shell::lock::fence::Fence;
    use crate::shell::server::delete::fence::in_time;
    use crate::shell::server::delete::restriction::Parents;
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
        let ids = vec![RawValue::of(1).unwrap(), RawValue::of("x").unwrap()];
        let with = |condition: Document| doc! { "$and": [condition, &predicate] };
        let all = Restriction::Ids(ids.clone());
        assert_eq!(queries(&all, false), [with(doc! { "_id": { "$in": [1, "x"] } })]);
        assert_eq!(queries(&all, true), [with(doc! { "_id": 1 }), with(doc! { "_id": "x" })]);
        let sharded = Restriction::Sharded(vec![(RawDocumentBuf::try_from(&doc! { "k": 5 }).unwrap(), ids)]);
        assert_eq!(queries(&sharded, false), [with(doc! { "k": 5, "_id": { "$in": [1, "x"] } })]);
        assert_eq!(queries(&sharded, true), [with(doc! { "k": 5, "_id": 1 }), with(doc! { "k": 5, "_id": "x" })]);
    }

    #[test]
    fn a_delete_of_children_names_their_parents_beside_the_whole_predicate() {
        let [seven, eight, one] = [7, 8, 1].map(|id| RawValue::of(id).unwrap());
        let parents = Parents { field: "p".into(), key: ParentKey::id(), keys: vec![seven, eight] };
        let children = Restriction::Children { parents: Arc::new(parents), ids: vec![one] };
        let named = doc! { "p": { "$in": [7, 8] }, "_id": { "$in": [1] } };
        assert_eq!(queries(&children, false), [doc! { "$and": [named, rule().selection.predicate] }]);
    }

    #[test]
    fn a_fence_leaves_the_query_whole_and_has_a_known_size() {
        let mut rule = planned("    holds: {collection: legal.holds, key: t}\n", 3).decision.countable().unwrap().clone();
        let keys = KeyList::of(vec![RawValue::of("x").unwrap()]).unwrap();
        rule.selection.holds = rule.selection.holds.map(|holds| holds.with(&Arc::new(keys)));
        let fence = Fence { begins_before: DateTime::from_millis(1_000), max_time: None };
        let in_time = in_time(&fence).unwrap();
        let one = &statements(&Restriction::One(RawValue::of(5).unwrap()), &rule.selection, false).unwrap()[0];
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
        let restrictions = [
            Restriction::Ids(vec![id()]),
            Restriction::Sharded(vec![(RawDocumentBuf::new(), vec![id()]), (RawDocumentBuf::new(), vec![id()])]),
            Restriction::One(id()),
            Restriction::Range { bounds: doc! { "at": { "$gt": 1 } }, hint: Bson::from("at_1") },
            Restriction::Stretch(rule.expiry.stretch(None, DateTime::MAX).unwrap()),
            Restriction::States { documents: vec![state], range: None },
        ];
        for restriction in &restrictions {
            assert!(found(&rule, restriction).unwrap_err().to_string().contains("the holds were not read"), "{restriction:?}");
        }
        let holds = |keys: &[i32]| {
            let keys = keys.iter().map(|key| RawValue::of(*key).unwrap()).collect();
            Arc::new(KeyList::of(keys).unwrap())
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
        let ids = Restriction::Ids(
            [Bson::from(id(5)), "x".into(), id(2).into(), id(9).into()].map(|id| RawValue::of(id).unwrap()).into(),
        );
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
