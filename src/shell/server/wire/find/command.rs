//! The command of a query, as it is sent.

use std::borrow::Cow;
use std::time::Duration;

use bson::{Bson, RawArrayBuf, RawDocument, RawDocumentBuf, doc};

use super::{Query, QueryFilter, QueryKind, millis};
use crate::base::values::raw::{self, RawValue};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::transport::{Extent, Patience, ServerCommand};

/// Bytes that a find may take around its filter. One that takes more is moved while it is written.
const AROUND_FILTER: usize = 1024;

/// Time after the end of `maxTimeMS` within which the server must have answered: it looks at the clock now and then only.
const MAX_DELAY: Duration = Duration::from_secs(10);

impl Query {
    /// Creates the command with everything that the deployment adds to it.
    pub(super) fn command(&self, deployment: &Deployment) -> Result<ServerCommand, ServerError> {
        let mut body = self.body(deployment)?;
        let concern = self.read_concern.as_ref().or(deployment.read_concern.as_ref());
        if let Some(concern) = concern.filter(|_| !matches!(self.kind, QueryKind::Listing(_))) {
            body.append(bson::raw::cstr!("readConcern"), RawDocumentBuf::try_from(concern)?);
        }
        if let Some(Bson::String(comment)) = deployment.comment() {
            body.append(bson::raw::cstr!("comment"), comment);
        }
        let is_limited = self.max_time.is_some() || matches!(self.kind, QueryKind::Listing(_));
        if !is_limited && deployment.facts.may_limit_reads() {
            body.append(bson::raw::cstr!("maxTimeMS"), 0_i64);
        }
        Ok(self.addressed(deployment, body))
    }

    pub(super) fn addressed(&self, deployment: &Deployment, body: RawDocumentBuf) -> ServerCommand {
        let command = ServerCommand::new(&self.database, body, self.patience(deployment)).read_preference(self.read_preference);
        let first = match &self.kind {
            QueryKind::Aggregate { stages, .. } => stages.first().and_then(|stage| stage.get_i64("$limit").ok()),
            QueryKind::Find { .. } | QueryKind::Count { .. } | QueryKind::Listing(_) => self.options.get_i64("limit").ok(),
        };
        let limit = first.and_then(|limit| u64::try_from(limit).ok());
        let extent = match (self.units, limit) {
            (Some(units), _) => Extent::Units(units),
            (None, Some(documents)) => Extent::Documents(documents),
            (None, None) => Extent::Unknown,
        };
        command.extent(extent)
    }

    fn patience(&self, deployment: &Deployment) -> Patience {
        match (self.time_limit, self.max_time) {
            (Some(limit), _) => Patience::Limit(limit),
            // The server ends the query by itself.
            (None, Some(max_time)) => Patience::WhileRunning(deployment.command_timeout.min(max_time + MAX_DELAY)),
            (None, None) => deployment.patience(),
        }
    }

    pub(super) fn body(&self, deployment: &Deployment) -> Result<RawDocumentBuf, ServerError> {
        let mut options = self.options.clone();
        let mut body = match &self.kind {
            QueryKind::Find { collection, filter } => {
                if let Some(size) = self.batch_size {
                    // A batch as long as the limit would leave the cursor open.
                    let is_limit = options.get_i64("limit").is_ok_and(|limit| limit == i64::from(size));
                    options.insert("batchSize", i64::from(size) + i64::from(is_limit));
                }
                let (collection, filter) = (RawValue::of(collection.as_str())?, filter.raw()?);
                raw::written(filter.as_bytes().len() + AROUND_FILTER, |body| {
                    body.value(bson::raw::cstr!("find"), &collection);
                    body.document(bson::raw::cstr!("filter"), |written| written.all_of(&filter));
                })?
            }
            QueryKind::Aggregate { collection, stages } => {
                let cursor = self.batch_size.map(|size| doc! { "batchSize": i64::from(size) }).unwrap_or_default();
                let mut pipeline = RawArrayBuf::new();
                if let Some(only) = &self.only {
                    pipeline.push(raw::written(only.bytes(), |stage| {
                        stage.document(bson::raw::cstr!("$match"), |condition| only.write(condition));
                    })?);
                }
                stages.iter().try_for_each(|stage| RawDocumentBuf::try_from(stage).map(|stage| pipeline.push(stage)))?;
                let mut body = RawDocumentBuf::try_from(&doc! { "aggregate": collection })?;
                body.append(bson::raw::cstr!("pipeline"), pipeline);
                body.append(bson::raw::cstr!("cursor"), RawDocumentBuf::try_from(&cursor)?);
                body
            }
            QueryKind::Count { collection, filter } => {
                let mut body = RawDocumentBuf::try_from(&doc! { "count": collection })?;
                body.append(bson::raw::cstr!("query"), filter.raw()?.into_owned());
                body
            }
            QueryKind::Listing(command) => RawDocumentBuf::try_from(command)?,
        };
        if let Some(hint) = self.hint.as_ref().filter(|_| deployment.facts.capabilities.read_hints) {
            options.insert("hint", hint);
        }
        if let Some(max_time) = self.max_time {
            options.insert("maxTimeMS", millis(max_time));
        }
        if let QueryKind::Find { collection, .. } | QueryKind::Aggregate { collection, .. } = &self.kind
            && let Some(uuid) = deployment.bound.uuid(&self.database, collection)
        {
            options.insert("collectionUUID", uuid);
        }
        for element in &RawDocumentBuf::try_from(&options)? {
            let (name, value) = element?;
            body.append(name, value);
        }
        Ok(body)
    }
}

impl QueryFilter {
    fn raw(&self) -> Result<Cow<'_, RawDocument>, ServerError> {
        match self {
            Self::Document(filter) => Ok(Cow::Owned(RawDocumentBuf::try_from(filter)?)),
            Self::Raw(filter) => Ok(Cow::Borrowed(filter)),
        }
    }
}
