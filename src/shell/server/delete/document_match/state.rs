//! A document in the state in which it was read.

use bson::RawDocumentBuf;

use super::types::{MAX_DEPTH, Types};
use crate::base::values::raw::RawRef;

/// Maximum size in bytes of a document with the rest of its command; the server takes 16 MiB. It is more than several documents
/// may take together, because such a document is the only one in its command.
const MAX_BYTES: usize = 15 * 1024 * 1024;

/// A document in the state in which it was archived, with the types that distinguish it from others of equal value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DocumentState {
    pub document: RawDocumentBuf,
    pub(super) types: Types,
}

impl DocumentState {
    /// Returns the state of a document; `None` if no delete can compare it: it is nested too deep, too large, has a name twice,
    /// or is not valid BSON.
    pub(crate) fn new(document: RawDocumentBuf) -> Option<Self> {
        let types = Types::of(&document)?;
        let state = Self { document, types };
        (state.types.depth <= MAX_DEPTH && state.size() <= MAX_BYTES).then_some(state)
    }

    pub(super) fn id(&self) -> Option<RawRef<'_>> {
        RawRef::at(&self.document, "_id")
    }

    /// Returns the bytes that the document adds to a command.
    pub(crate) fn size(&self) -> usize {
        // The `_id` is named once more to look up the document, and once more to find its state.
        let id = self.id().map_or(0, |id| id.as_bytes().len());
        self.document.as_bytes().len() + self.types.compared.as_bytes().len() + 2 * id + 200
    }
}
