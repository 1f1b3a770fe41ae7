//! The errors of services and servers under too much load, in command errors and in `writeErrors` alike.

use std::time::Duration;

use super::codes;

/// The reason why a service did not complete a command that may succeed later, or in smaller parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overload {
    /// The request units of this second are used up, or the server takes no more commands. The work done before is not undone.
    Throttled {
        /// The wait that the service asks for, if it names one.
        retry_after: Option<Duration>,
    },
    /// The service timed out internally, and the amount of work done is unknown.
    TimedOut,
    /// A part of the service is not available for the moment.
    Unavailable,
    /// The command or its reply is longer than the service accepts: a smaller one may pass.
    TooLarge,
    /// The cache of the storage engine has no room for the transaction: a smaller one may pass, and so may the same one later.
    /// The amount of work done is unknown.
    CacheFull,
}

/// Recognises an overload by the code and the message of an error.
///
/// Sources: Microsoft, "Troubleshoot common issues in Azure Cosmos DB for MongoDB" (16500, 50); MicrosoftDocs/azure-docs#69351
/// and Azure/cosmos-explorer `MongoProxyClient.ts` (16500 with RetryAfterMs). Further sources: microsoft/FluidFramework
/// `mongoError` (50, 1, 16); microsoft/vscode-documentdb `DocumentDbStreamingWriter.ts` (429); mongo
/// `src/mongo/base/error_codes.yml`, TemporarilyUnavailable (365); SERVER-114890 and Atlas, "Handle Overload Errors" (462, 463).
pub(crate) fn read(code: i32, message: &str) -> Option<Overload> {
    let says = |words: &str| message.contains(words);
    match code {
        16_500 | 429 => Some(Overload::Throttled { retry_after: retry_after(message) }),
        50 if says("Request timed out") || says("(408)") || says("command timeout") => Some(Overload::TimedOut),
        _ if says("TooManyRequests (429)") => Some(Overload::Throttled { retry_after: retry_after(message) }),
        1 if says("(503)") => Some(Overload::Unavailable),
        16 if says("(413)") => Some(Overload::TooLarge),
        codes::TEMPORARILY_UNAVAILABLE => Some(Overload::CacheFull),
        codes::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED | codes::INGRESS_OPERATION_RATE_LIMIT_EXCEEDED => {
            Some(Overload::Throttled { retry_after: None })
        }
        _ => None,
    }
}

fn retry_after(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("RetryAfterMs=")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_service_are_understood() {
        let throttled = |millis: Option<u64>| Some(Overload::Throttled { retry_after: millis.map(Duration::from_millis) });
        for (code, message, expected) in [
            (16_500, "Error=16500, RetryAfterMs=8, Details='Response status code does not indicate success", throttled(Some(8))),
            (16_500, "Message: {\"Errors\":[\"Request rate is large\"]}", throttled(None)),
            (16_500, "RetryAfterMs=, Details=", throttled(None)),
            (429, "rate limit", throttled(None)),
            (50, "Request timed out. Retries due to rate limiting: True.", Some(Overload::TimedOut)),
            (
                50,
                "Error=50, Details='Response status code does not indicate success: RequestTimeout (408);",
                Some(Overload::TimedOut),
            ),
            (50, "The command being executed was terminated due to a command timeout.", Some(Overload::TimedOut)),
            (50, "operation exceeded time limit", None),
            (
                1,
                "Error=1, Details='Response status code does not indicate success: ServiceUnavailable (503)",
                Some(Overload::Unavailable),
            ),
            (1, "something else", None),
            (16, "Error=16, Details='... RequestEntityTooLarge (413)", Some(Overload::TooLarge)),
            (462, "Rate of requests exceeded", throttled(None)),
            (463, "Rate of operations exceeded", throttled(None)),
            (365, "Temporarily unavailable: unable to take ticket", Some(Overload::CacheFull)),
            (2, "BadRequest (400)", None),
        ] {
            assert_eq!(read(code, message), expected, "{code} {message}");
        }
    }
}
