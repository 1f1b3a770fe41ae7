//! Some `_id`s of the documents that a rule deletes, whose size decides what a delete adds to the oplog.

use std::time::Duration;

use bson::{Bson, doc};

use crate::base::values::raw::RawValue;
use crate::core::plan::SweepRule;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Documents to draw. The server draws them at random as long as they are less than a twentieth of the collection (MongoDB
/// manual, "$sample").
const DRAWN: i32 = 400;

/// Expired documents that are enough of a sample.
const ENOUGH: usize = 20;

/// Documents to read one after another if the sample has fewer.
const READ: u64 = 100;

/// Time after which a read of the sample is given up.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Returns the `_id`s of some expired documents: drawn at random or, where few have expired, the first ones along the index.
/// Empty if nothing has expired.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn of(deployment: &Deployment, rule: &SweepRule) -> Result<Vec<Bson>> {
    let selection = &rule.selection;
    let stages = vec![
        doc! { "$sample": { "size": DRAWN } },
        doc! { "$match": selection.predicate.clone() },
        doc! { "$project": { "_id": 1 } },
    ];
    let drawn = Query::aggregate(&selection.namespace, stages).collation(selection.collation.as_ref()).max_time(Some(MAX_TIME));
    let preference = deployment.read_options.preference;
    let drawn = drawn.read_preference(preference);
    let mut found = drawn.all_raw(deployment).await?;
    if found.len() < ENOUGH {
        let first = Query::find(&selection.namespace, selection.predicate.clone()).collation(selection.collation.as_ref());
        let first = first.hint(selection.index.as_ref().map(|index| index.name.as_str())).projection(doc! { "_id": 1 });
        found = first.read_preference(preference).limit(READ).max_time(Some(MAX_TIME)).first_batch(deployment).await?;
    }
    Ok(found.iter().filter_map(|document| RawValue::decoded_at(document, "_id")).collect())
}
