//! Errors of both services, with messages as reported by users.

use std::time::Duration;

use mongodb::bson::{Document, doc};

/// Returns the reply of a command that failed.
pub(crate) fn failed(code: i32, name: &str, text: &str) -> Document {
    doc! { "ok": 0.0, "errmsg": text, "code": code, "codeName": name }
}

/// Returns the same for Cosmos DB for MongoDB (RU), which adds the type of the reply. Source:
/// spring-projects/spring-data-mongodb#3196; hcengineering/huly-selfhost#29 shows a reply without the type.
pub(crate) fn of_cosmos(code: i32, name: &str, text: &str) -> Document {
    let mut reply = doc! { "_t": "OKMongoResponse" };
    reply.extend(failed(code, name, text));
    reply
}

/// Returns error 2, whose message quotes the reason given by the service behind the front end. Source:
/// hcengineering/huly-selfhost#29.
pub(crate) fn bad_request(why: &str) -> Document {
    let text = format!(
        "Error=2, Details='Response status code does not indicate success: BadRequest (400); Substatus: 0; ActivityId: \
         3318a5c9-d1b5-4893-861d-73dc4c97ff29; Reason: (Message: {{\"Errors\":[\"{why}\"]}}\r\n);"
    );
    of_cosmos(2, "BadValue", &text)
}

/// Returns the error of PostgreSQL with this SQLSTATE as the gateway of the DocumentDB engine passes it on: as a number, six bits
/// for each character. Source: microsoft/documentdb, `postgres_sqlstate_to_i32` in pg.rs of the gateway; `codeName`:
/// responses/error.rs.
pub(crate) fn sqlstate(state: &str, text: &str) -> Document {
    let code = state.bytes().rev().fold(0, |code, character| (code << 6) + i32::from(character - b'0'));
    failed(code, "DocumentDB error.", text)
}

/// Returns one entry of `writeErrors`; the sender adds the index of the statement.
pub(crate) fn write_error(code: i32, text: &str) -> Document {
    doc! { "index": 0, "code": code, "errmsg": text }
}

/// Returns the message of a throttled write, which claims that nothing was changed even if something was. Source:
/// MicrosoftDocs/azure-docs#69351.
fn throttled_text(wait: Option<Duration>) -> String {
    let wait = wait.map_or(String::new(), |wait| format!("RetryAfterMs={}, ", wait.as_millis()));
    format!(
        "Error=16500, {wait}Details='Response status code does not indicate success: TooManyRequests (429); Substatus: 3200; Reason: \
         ({{\r\n  \"Errors\": [\r\n    \"Request rate is large. More Request Units may be needed, so no changes were made. Please retry \
         this request later. Learn more: http://aka.ms/cosmosdb-error-429\"\r\n  ]\r\n}});"
    )
}

/// Returns the error of a write stopped by throttling, with the wait that the service asks for, if any.
pub(crate) fn throttled_write(wait: Option<Duration>) -> Document {
    write_error(16_500, &throttled_text(wait))
}

/// Returns the error of a command that throttling refused entirely. The form without a wait is from
/// spring-projects/spring-data-mongodb#3196.
pub(crate) fn throttled(wait: Option<Duration>) -> Document {
    let text = match wait {
        Some(_) => throttled_text(wait),
        None => {
            "Message: {\"Errors\":[\"Request rate is large\"]}\r\nActivityId: 63ea6aa0-0000-0000-0000-000000000000, StatusCode: \
                 429, SubStatusCode: 3200, RequestCharge: 0.38"
                .into()
        }
    };
    doc! { "_t": "OKMongoResponse", "ok": 0, "code": 16_500, "errmsg": &text, "$err": text }
}

/// Returns the error of a command on metadata that throttling refused. The text is from the API for NoSQL:
/// adobe/aio-lib-state#77; that it names a wait like other commands is an assumption.
pub(crate) fn throttled_metadata(wait: Option<Duration>) -> Document {
    let wait = wait.map_or(String::new(), |wait| format!("RetryAfterMs={}, ", wait.as_millis()));
    let text = format!(
        "Error=16500, {wait}Details='Response status code does not indicate success: TooManyRequests (429); Substatus: 3200; Reason: \
         (Message: {{\"Errors\":[\"The request did not complete due to a high rate of metadata requests. Increasing request units will \
         have no impact and is not recommended\"]}});"
    );
    of_cosmos(16_500, "", &text)
}

/// Returns the timeout of a command that waited for request units. Source: microsoft/FluidFramework,
/// mongoExceptionRetryRules/mongoError.
pub(crate) fn timed_out_throttled() -> Document {
    of_cosmos(50, "ExceededTimeLimit", "Request timed out. Retries due to rate limiting: True.")
}

/// Returns a timeout. Source for this and the three below: microsoft/FluidFramework, mongoExceptionRetryRules/mongoError.
pub(crate) fn timed_out() -> Document {
    of_cosmos(50, "ExceededTimeLimit", "Request timed out.")
}

pub(crate) fn too_large() -> Document {
    write_error(
        16,
        "Error=16, Details='Response status code does not indicate success: RequestEntityTooLarge (413); Substatus: 0;",
    )
}

pub(crate) fn unavailable() -> Document {
    write_error(1, "Error=1, Details='Response status code does not indicate success: ServiceUnavailable (503); Substatus: 0;")
}

pub(crate) fn request_timeout() -> Document {
    write_error(50, "Error=50, Details='Response status code does not indicate success: RequestTimeout (408); Substatus: 0;")
}

/// Returns the timeout of the engine of Azure DocumentDB. Source: microsoft/documentdb, pg.rs.
pub(crate) fn command_timeout() -> Document {
    let text = "The command being executed was terminated due to a command timeout. This may be due to concurrent transactions. \
                Consider increasing the maxTimeMS on the command.";
    failed(50, "ExceededTimeLimit", text)
}
