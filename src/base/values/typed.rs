//! Values with a type in Extended JSON.

/// Returns what a typed value of Extended JSON holds.
pub(crate) fn expected(key: &str) -> &'static str {
    match key {
        "$date" => "a date such as \"2026-01-01T00:00:00Z\", or {$numberLong: \"...\"} with milliseconds",
        "$oid" => "24 hexadecimal digits",
        "$numberInt" | "$numberLong" => "a whole number in quotes",
        "$numberDouble" | "$numberDecimal" => "a number in quotes",
        "$timestamp" => "{t: 1, i: 1}",
        "$regularExpression" => "{pattern: \"...\", options: \"...\"}",
        "$binary" => "{base64: \"...\", subType: \"00\"}",
        "$uuid" => "a UUID such as \"c8edabc3-f738-4ca3-b68d-ab92a91478a3\"",
        _ => "what MongoDB's Extended JSON says of it",
    }
}
