//! Inserts and updates, which are charged by the documents that they write.

use std::io;

use mongodb::bson::{Document, doc};

use super::super::upstream::{documents, is_ok, whole};
use super::super::{Call, errors};
use super::budget::{Purse, Stop};
use super::delete::at;
use super::{Account, charges, stopped};

impl Account {
    /// Inserts as many documents as the units of this second allow. Source for a throttled insert that is partly done:
    /// MicrosoftDocs/azure-docs#69351.
    pub(super) async fn insert(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        let namespace = purse.namespace();
        let indexes = self.indexed(call.upstream, namespace).await?.count();
        let all: Vec<Document> =
            documents(&call.command, "documents").map(|document| self.containers.document(namespace, document)).collect();
        call.command.insert("documents", &all[..]);
        let mut stopped_by = None;
        let mut afforded = 0;
        for document in &all {
            let bytes = i64::try_from(document.to_vec().map_err(io::Error::other)?.len()).map_err(io::Error::other)?;
            if let Err(stop) = purse.spend(charges::of_a_write(bytes, indexes)).await {
                stopped_by = Some(stop);
                break;
            }
            afforded += 1;
        }
        let error = match stopped_by {
            None => return call.forward().await,
            Some(Stop::TimedOut) => errors::request_timeout(),
            Some(Stop::Throttled(wait)) => errors::throttled_write(wait),
        };
        let mut reply = doc! { "n": 0, "ok": 1.0 };
        if afforded > 0 {
            call.command.insert("documents", &all[..afforded]);
            reply = call.forward().await?;
        }
        let ordered = call.command.get_bool("ordered").unwrap_or(true);
        let mut write_errors = reply.get_array("writeErrors").cloned().unwrap_or_default();
        if is_ok(&reply) && (!ordered || write_errors.is_empty()) {
            let rest = if ordered { afforded..afforded + 1 } else { afforded..all.len() };
            for index in rest {
                write_errors.push(at(index, error.clone())?);
            }
            reply.insert("writeErrors", write_errors);
        }
        Ok(reply)
    }

    /// Runs an update. That each changed document costs as much as one of 1 kB is an assumption.
    pub(super) async fn update(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        if let Err(stop) = purse.spend(charges::OF_A_QUERY).await {
            return Ok(match stop {
                Stop::Throttled(wait) if call.name == "update" => {
                    doc! { "n": 0, "nModified": 0, "writeErrors": [errors::throttled_write(wait)], "ok": 1.0 }
                }
                stop => stopped(stop),
            });
        }
        let namespace = purse.namespace();
        let statements: Vec<Document> = match call.name.as_str() {
            "update" => documents(&call.command, "updates").cloned().collect(),
            _ => vec![doc! { "q": call.command.get("query") }],
        };
        let mut units = 0.0;
        let mut stored = Vec::new();
        for mut statement in statements {
            let filter = statement.get_document("q").cloned().unwrap_or_default();
            let loaded = self.loaded_stored(call.upstream, namespace, &filter).await?;
            units += loaded.iter().map(|document| charges::of_a_load(document.bytes)).sum::<f64>();
            statement.insert("q", self.stored_filter(namespace, &filter));
            stored.push(statement);
        }
        if self.containers.is_held(namespace) {
            if let Some(why) = touch(&call.name, &mut stored) {
                return Ok(errors::bad_request(why));
            }
            call.command.insert("updates", stored);
        }
        let indexes = self.indexed(call.upstream, namespace).await?.count();
        let reply = call.forward().await?;
        // "Optimize request cost": a replacement costs twice as much as an insert.
        units += 2.0 * charges::of_a_write(0, indexes) * whole(&reply, "n").max(1) as f64;
        Ok(purse.spend_in_pages(units).await.map_or_else(stopped, |()| reply))
    }
}

/// Makes updates set the time of the last change. Returns the reason if they cannot be simulated.
fn touch(command: &str, statements: &mut [Document]) -> Option<&'static str> {
    for statement in statements {
        let update = statement.get_document_mut("u").ok();
        let Some(update) = update.filter(|update| command == "update" && update.keys().all(|key| key.starts_with('$'))) else {
            return Some("the proxy of the tests has only updates by operators here");
        };
        update.insert("$currentDate", doc! { "_ts": true });
        if statement.get_bool("upsert").unwrap_or(false) {
            return Some("the proxy of the tests has no upserts here");
        }
    }
    None
}
