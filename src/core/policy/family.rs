//! Reads `children` and `gridfs`: the collections whose documents go with the documents of a rule.

use super::key::AnyKey;
use super::mapping::Mapping;
use super::namespace::Namespace;
use super::{Child, ChildPolicy, keys};

/// Field of the dates in the collection of files of a GridFS bucket (MongoDB, "GridFS specification").
const UPLOAD_DATE: &str = "uploadDate";

/// Returns the field with the dates, where it follows from the rule being one for a GridFS bucket.
pub(super) fn date_field(map: &Mapping) -> Option<String> {
    map.has(&keys::GRIDFS).then(|| UPLOAD_DATE.to_owned())
}

/// Reads the collections whose documents go with the documents of a rule, and reports what does not go together with them.
/// `journal` is the journal of the policy.
pub(super) fn read(map: &Mapping, journal: Option<&Namespace>) -> Option<ChildPolicy> {
    let key: &dyn AnyKey = match (map.has(&keys::GRIDFS), map.has(&keys::CHILDREN)) {
        (true, _) => &keys::GRIDFS,
        (false, true) => &keys::CHILDREN,
        (false, false) => {
            if map.has(&keys::ORPHANS) {
                map.problem(&keys::ORPHANS, "`orphans`: the rule has neither `children` nor `gridfs`");
            }
            return None;
        }
    };
    let name = key.about().name;
    let pattern = map.optional(&keys::NAMESPACE)?;
    if pattern.is_glob() {
        map.problem(key, format!("`{name}` goes with a namespace without a `*`; expected a rule for each of them"));
        return None;
    }
    if map.entry(&keys::COLLATION).is_some() {
        let why = "the keys of parents are compared byte by byte; leave one of them out";
        map.problem(&keys::COLLATION, format!("`collation`: does not go together with `{name}`: {why}"));
    }
    let Some(journal) = journal else {
        map.problem(
            key,
            format!("`{name}`: the policy has no `journal`, by which the next run finishes one that was interrupted; expected `journal: {{collection: ops.sweeperJournal}}` at the top"),
        );
        return None;
    };
    let parents = Namespace { database: pattern.database, collection: pattern.collection };
    let mut children = Vec::new();
    if let Some(bucket) = map.optional(&keys::GRIDFS) {
        if parents.collection != format!("{bucket}.files") {
            map.problem(key, "`gridfs`: the namespace does not name its files; expected `DATABASE.BUCKET.files`");
            return None;
        }
        let chunks = Namespace { database: parents.database.clone(), collection: format!("{bucket}.chunks") };
        children.push(Child { namespace: chunks, field: "files_id".to_owned(), parent_field: "_id".to_owned() });
    }
    children.extend(map.optional(&keys::CHILDREN).unwrap_or_default());
    for (index, child) in children.iter().enumerate() {
        let namespace = &child.namespace;
        let why = if *namespace == parents {
            "names the rule's own collection; expected another one"
        } else if namespace == journal {
            "names the collection where the runs keep their own records"
        } else if children[..index].iter().any(|other| (&other.namespace, &other.field) == (&child.namespace, &child.field)) {
            "is there twice, with the same field"
        } else {
            continue;
        };
        map.problem(key, format!("`{name}`: number {} {why}", index + 1));
    }
    Some(ChildPolicy { journal: journal.clone(), children, orphans: map.value(&keys::ORPHANS) })
}
