//! The way from the name of a command to the code that carries it out.

use bson::Document;
use tokio::time::Instant;

use crate::call::Call;
use crate::codes;
use crate::failure::Failure;
use crate::{catalog, reading, updates, writes};

/// Carries out a command that has arrived.
pub(crate) async fn carry_out(call: &Call) -> Result<Document, Failure> {
    let name = call.body.keys().next().expect("a command").clone();
    {
        let state = call.model.state.lock();
        call.check(&state)?;
        let writes = ["delete", "update", "insert", "create", "createIndexes", "drop"];
        if writes.contains(&name.as_str()) && state.primary_from > Instant::now() {
            return Err(Failure::new(codes::NOT_WRITABLE_PRIMARY, "not primary"));
        }
    }
    match name.as_str() {
        "find" => reading::find(call).await,
        "aggregate" => reading::aggregate(call).await,
        "count" => reading::count(call),
        "explain" => reading::explain(call),
        "getMore" => reading::get_more(call),
        "killCursors" => reading::kill_cursors(call),
        "delete" => writes::delete(call).await,
        "insert" => writes::insert(call).await,
        "update" => updates::update(call).await,
        name => catalog::carry_out(call, name),
    }
}
