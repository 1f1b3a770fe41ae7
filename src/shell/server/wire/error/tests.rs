use bson::doc;

use super::*;

#[test]
fn errors_are_told_apart_by_what_may_have_been_done() {
    for (code, is_reply_lost, is_retryable, is_refused) in [
        (codes::UNAUTHORIZED, false, false, true),
        (codes::SHARD_KEY_NOT_FOUND, false, false, true),
        (codes::NOT_WRITABLE_PRIMARY, false, true, true),
        (codes::PRIMARY_STEPPED_DOWN, true, true, false),
        (codes::MAX_TIME_MS_EXPIRED, true, false, false),
        (codes::QUERY_PLAN_KILLED, true, false, false),
        (codes::DUPLICATE_KEY, false, false, false),
        (50_463_173, false, true, true),
    ] {
        let error = ServerError::reported(code, "message", "");
        let found = (error.is_reply_lost(), error.is_retryable(), error.is_refused());
        assert_eq!(found, (is_reply_lost, is_retryable, is_refused), "{code}");
    }
    for code in [82, 112, 133, 145, 150, 202, 249, 319, 343, 407, 412, 13_388] {
        let error = ServerError::reported(code, "message", "");
        assert!(error.is_retryable() && error.is_reply_lost() && !error.is_refused(), "{code}");
    }
    let causes = |codes: &[i32]| {
        let causes: Vec<Document> = codes.iter().map(|code| doc! { "code": *code, "errmsg": "of a shard" }).collect();
        doc! { "code": 65, "errmsg": "multiple errors", "errInfo": { "causedBy": causes } }
    };
    for (codes, decisive) in [(&[133, 6][..], 133), (&[6, 20, 13], 20), (&[], 65)] {
        assert_eq!(ServerError::read(&causes(codes)).code, Some(decisive), "{codes:?}");
    }
    let late = "Failed to parse number 'sweeper: the time of this delete is over' in $convert with no onError value";
    let late = ServerError::reported(codes::CONVERSION_FAILURE, late, "ConversionFailure");
    assert!(late.is_refused() && late.is_retryable_delete() && !late.is_reply_lost() && !late.is_unanswered());
    assert!(late.to_string().starts_with("it came to the server too late for its lease"), "{late}");
    let unconnected = ServerError::reported(1, "error connecting to server: Connection refused", "Internal Error");
    assert!(unconnected.is_refused() && !unconnected.is_reply_lost());
    assert!(unconnected.labelled_retryable(false).is_retryable(), "the driver sees no label");
    let network = ServerError::new(FailureStage::Network, String::new());
    assert!(network.is_reply_lost() && network.is_retryable() && !network.is_unreachable() && network.is_unanswered());
    // A mongos reports so that it lost a shard.
    assert!(ServerError::reported(codes::SOCKET_EXCEPTION, "", "").is_unanswered());
    let unreachable = ServerError::new(FailureStage::Unreachable, String::new());
    assert!(
        !unreachable.is_reply_lost()
            && !unreachable.is_unanswered()
            && unreachable.is_retryable()
            && unreachable.is_unreachable()
    );
    let invalid = ServerError::new(FailureStage::InvalidReply, String::new());
    assert!(invalid.is_reply_lost() && !invalid.is_retryable());
    let labelled = ServerError::reported(0, "", "").labelled_retryable(true);
    assert!(labelled.is_retryable() && !labelled.is_reply_lost());
    let busy = [false, true].map(|is_labelled| ServerError::reported(0, "", "").labelled_overloaded(is_labelled).overload());
    assert_eq!(busy, [None, Some(Overload::Throttled { retry_after: None })]);
}

#[test]
fn a_command_that_the_server_does_not_have_is_recognised_by_code_or_words() {
    for (code, message, expected) in [
        (115, "Command Hello not supported prior to authentication", true),
        (115, "Unknown request received: hello", true),
        (59, "no such command: 'hello'", true),
        (2, "Command hostInfo not supported.", true),
        (0, "no such cmd: hello", true),
        (13, "Unauthorized", false),
        (16_500, "Request rate is large", false),
    ] {
        assert_eq!(ServerError::reported(code, message, "").is_unsupported(), expected, "{code} {message}");
    }
    assert!(ServerError::reported(codes::UNAUTHORIZED, "no", "").is_unavailable());
    assert!(!ServerError::other("sessions are not supported").is_unsupported());
}

#[test]
fn messages_show_no_value() {
    for (code, message, shown) in [
        (189, "stepped down. labels: {..}", "stepped down (code 189)"),
        (
            2,
            "PlanExecutor error :: caused by :: cannot compare {a: 'secret'}",
            "an expression of the filter failed on a document (code 2)",
        ),
        (59, "Executor error :: caused by :: cannot compare {a: 'secret'}", "cannot compare (code 59)"),
        (
            241,
            "Executor error :: caused by :: Failed to parse 'secret'",
            "an expression of the filter failed on a document (code 241)",
        ),
        (16_554, "PlanExecutor error :: caused by :: 'secret'", "an expression of the filter failed on a document (code 16554)"),
        (
            17_276,
            "Use of undefined variable: x",
            "the filter is not valid, or an expression of it failed on a document (code 17276)",
        ),
        (241, "Failed to parse 'secret'", "the filter is not valid, or an expression of it failed on a document (code 241)"),
        (51_091, "Regular expression is invalid: missing )", "a regular expression of the filter is not valid (code 51091)"),
        (40_415, "BSON field 'find.x' is an unknown field.", "the server does not take the fields of the command (code 40415)"),
        (
            291,
            "hint $natural is not allowed, because 'notablescan' is enabled",
            "the server goes through no collection (`notablescan`), and no index serves the query; create one on the field of the date (code 291)",
        ),
        // Source: mongo `src/mongo/db/exec/update_stage.cpp`.
        (
            31_025,
            "Shard key update is not allowed without specifying the full shard key in the query",
            "the document that is there has another shard key, and a replacement may not change it (code 31025)",
        ),
        (
            2,
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index",
            "the index is still being built, was dropped during the run, or is missing on one of the shards; try again when it is ready (code 2)",
        ),
        (52_461_700, "function f does not exist", "function f does not exist (SQLSTATE 42883)"),
        (2, "can't $divide by zero", "cannot $divide by zero (code 2)"),
        (
            2,
            "PlanExecutor error during aggregation :: caused by :: can't $divide by zero",
            "an expression of the filter failed on a document (code 2)",
        ),
        (2, "unknown operator: $nosuch", "unknown operator: $nosuch (code 2)"),
        (
            50,
            "Executor error during find command :: caused by :: operation exceeded time limit",
            "operation exceeded time limit (code 50)",
        ),
    ] {
        assert_eq!(ServerError::reported(code, message, "").to_string(), shown);
    }
    assert_eq!(
        ServerError::reported(13, "not authorized on a to execute command { find }", "Unauthorized").to_string(),
        "not authorized on a (code 13, Unauthorized)"
    );
}

#[test]
fn errors_inside_of_replies_are_read() {
    let reply = doc! {
        "n": 1, "ok": 1.0,
        "writeErrors": [{ "index": 0, "code": 11000.0, "errmsg": "E11000 duplicate key error" }],
        "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting" },
    };
    assert!(ServerError::of_write(&reply).unwrap().has_code(codes::DUPLICATE_KEY));
    let concern = ServerError::of_write_concern(&reply).unwrap();
    assert_eq!(concern.to_string(), "waiting (code 64, WriteConcernTimeout)");
    assert_eq!(ServerError::of_write(&doc! { "n": 1 }), None);
    assert_eq!(ServerError::of_write_concern(&doc! { "n": 1 }), None);
}
