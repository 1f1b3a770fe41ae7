//! A `delete` that stops in the middle once the request units are used up.

use std::io;

use mongodb::bson::Document;

use super::super::bucket::{self, Bucket};
use super::super::upstream::whole;
use super::super::{Call, errors, partial};

/// Deletes as many documents as the request units allow, and returns the reply and its charge. Sources for a throttled write that
/// is partly done: MicrosoftDocs/azure-docs#69351; for deletes: Azure/cosmos-explorer, MongoProxyClient.ts.
pub(super) async fn delete(bucket: &Bucket, call: &mut Call<'_>) -> io::Result<(Document, f64)> {
    let stop = call.stop.take();
    let most = stop.as_ref().map_or(u64::MAX, |(after, _)| *after);
    let enough = most.min(bucket.affordable());
    let (reply, reserved) = if enough == u64::MAX {
        (call.forward().await?, 0)
    } else {
        let targets = match partial::targets(call.upstream, &call.command, enough).await? {
            Err(refusal) => return Ok((refusal, 0.0)),
            Ok(targets) => targets,
        };
        let found: u64 = targets.iter().map(|ids| ids.len() as u64).sum();
        let granted = bucket.reserve(found.min(enough));
        let reply = if granted == found {
            call.forward().await?
        } else {
            let error = match stop {
                Some((after, error)) if after == granted => error,
                _ => errors::throttled_write(bucket.refuse(bucket::OF_A_DELETED_DOCUMENT).0),
            };
            partial::delete_first(call.upstream, &call.command, &targets, granted, &error).await?
        };
        (reply, granted)
    };
    let cost = |documents: u64| documents as f64 * bucket::OF_A_DELETED_DOCUMENT;
    let units = cost(u64::try_from(whole(&reply, "n")).unwrap_or(0)).max(bucket::OF_A_COMMAND);
    bucket.charge(units - cost(reserved));
    Ok((reply, units))
}
