//! Reports as JSON, and their JSON Schemas (draft 2020-12). The schemas are derived from the types: descriptions are the doc
//! comments, and no other key is allowed.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::base::text::clean_json;

/// Returns a value as indented JSON; the text ends with a newline.
pub fn render(report: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(report).expect("a report holds strings, numbers and lists only");
    clean_json(&text) + "\n"
}

/// Returns the values of a part of a report, by their names and in the order of its JSON.
pub(super) fn values(part: &impl Serialize) -> Map<String, Value> {
    let values = serde_json::to_value(part).and_then(serde_json::from_value);
    values.expect("a part of a report is an object of strings, numbers and lists")
}

/// Says why a text is no report in JSON, without the parser's words.
pub(crate) fn unread(cause: &serde_json::Error) -> String {
    let (line, column) = (cause.line(), cause.column());
    match cause.classify() {
        Category::Data => format!("JSON, but no report of this program, from line {line}, column {column} on"),
        Category::Eof => format!("the JSON ends too early, in line {line}"),
        Category::Syntax | Category::Io => format!("no JSON from line {line}, column {column} on"),
    }
}

/// Returns the schema of the JSON that sweeper writes for a type; the text ends with a newline.
pub fn schema<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(close));
    render(&settings.into_generator().into_root_schema_for::<T>())
}

/// Forbids further keys in an object whose keys are named.
fn close(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::report::Report;

    #[test]
    fn the_schema_names_every_key_and_allows_no_other() {
        let schema: Value = serde_json::from_str(&schema::<Report>()).unwrap();
        assert_eq!(schema["additionalProperties"], false);
        let rule = &schema["$defs"]["rule"];
        assert_eq!(rule["additionalProperties"], false);
        let required = rule["required"].as_array().unwrap();
        assert!(required.contains(&"unconfirmedCount".into()) && !required.contains(&"sampling".into()), "{required:?}");
        assert!(rule["properties"]["sampling"]["description"].as_str().unwrap().starts_with("In an audit"), "{rule:#}");
        let described = rule["properties"]["deletedCount"]["description"].as_str().unwrap();
        assert_eq!(described, "Deleted documents, summed from the server's replies.");
    }

    #[test]
    fn a_text_that_is_no_report_is_said_to_be_none() {
        for (text, said) in [
            ("x", "no JSON from line 1, column 1 on"),
            ("{\"a\":\n", "the JSON ends too early, in line 2"),
            ("{\"a\": 1}", "JSON, but no report of this program, from line 1, column 8 on"),
        ] {
            assert_eq!(unread(&serde_json::from_str::<Report>(text).unwrap_err()), said, "{text}");
        }
    }
}
