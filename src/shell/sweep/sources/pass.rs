//! A pass over documents by a cursor, which begins again where the cursor is lost.

use bson::RawDocumentBuf;

use crate::core::policy::namespace::Namespace;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::Cursor;
use crate::shell::server::wire::retry::Retries;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// One pass over documents that are to be deleted. Deleted documents are not found again, so that a new cursor continues where
/// the old one ended.
pub(crate) struct Pass<'a> {
    sweep: &'a RuleSweep,
    /// The namespace under which retries are logged.
    reported_as: &'a Namespace,
    cursor: Option<Cursor>,
    /// A document that was read but did not go into a batch.
    next: Option<RawDocumentBuf>,
    exhausted: bool,
    /// The retries that are left for reading the next document.
    retries: Retries,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(sweep: &'a RuleSweep, reported_as: &'a Namespace) -> Self {
        Self { sweep, reported_as, cursor: None, next: None, exhausted: false, retries: Retries::patient() }
    }

    /// Lets the next document be found by a new cursor, unless none was left.
    pub(crate) fn begin_again(&mut self) {
        (self.cursor, self.next) = (None, None);
    }

    /// Keeps a document that was read for the next batch, and says whether there is one.
    pub(crate) fn keep(&mut self, document: Option<RawDocumentBuf>) -> NextBatch {
        self.next = document;
        if self.next.is_some() { NextBatch::More } else { NextBatch::Exhausted }
    }

    /// Returns the next document; `None` after the last one. If the pass has to begin again while a batch is being put together
    /// (`has_batch`), also returns `None`. The new cursor finds the documents of that batch as well until they are deleted.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn next(
        &mut self,
        has_batch: bool,
        mut open: impl AsyncFnMut() -> Result<Cursor, ServerError>,
    ) -> Result<Option<RawDocumentBuf>, String> {
        if let Some(document) = self.next.take() {
            return Ok(Some(document));
        }
        while !self.exhausted {
            match self.advance(&mut open).await {
                Ok(Some(document)) => {
                    self.retries = Retries::patient();
                    return Ok(Some(document));
                }
                Ok(None) => self.exhausted = true,
                Err(cause) => {
                    self.cursor = None;
                    self.sweep.wait_to_begin_again(self.reported_as, &mut self.retries, &cause).await?;
                    if has_batch {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    async fn advance(
        &mut self,
        open: &mut impl AsyncFnMut() -> Result<Cursor, ServerError>,
    ) -> Result<Option<RawDocumentBuf>, ServerError> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => self.cursor.insert(open().await?),
        };
        cursor.next().await
    }
}
