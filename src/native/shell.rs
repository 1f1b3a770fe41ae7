//! Commands as a person would paste them into mongosh.

use bson::{Bson, Document};

use crate::policy::namespace::Namespace;

/// The command that does the same in mongosh.
pub fn command(namespace: &Namespace, command: &Document) -> String {
    let database = serde_json::Value::from(namespace.database.as_str());
    format!("db.getSiblingDB({database}).runCommand({})", document(command))
}

fn document(document: &Document) -> String {
    let entries: Vec<String> = document.iter().map(|(name, value)| format!("{}: {}", key(name), literal(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn key(name: &str) -> String {
    let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    // Between quotation marks this one would still set the prototype.
    if name == "__proto__" {
        "[\"__proto__\"]".to_owned()
    } else if is_identifier {
        name.to_owned()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

fn literal(value: &Bson) -> String {
    match value {
        Bson::Document(inner) => document(inner),
        Bson::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Bson::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        Bson::Boolean(_) | Bson::Null | Bson::Int32(_) => value.to_string(),
        Bson::Int64(n) => format!("NumberLong(\"{n}\")"),
        // mongosh sends a whole number as an int32.
        Bson::Double(n) if n.is_finite() => format!("Double({n:?})"),
        other => format!("EJSON.deserialize({})", other.clone().into_canonical_extjson()),
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn values_keep_their_types() {
        let namespace = Namespace { database: "a\"b".into(), collection: "c".into() };
        let given = doc! {
            "collMod": "c d", "x.y": [1, 2_i64, 1.0, true, Bson::Null], "at": DateTime::from_millis(1), "__proto__": "\n",
        };
        assert_eq!(
            command(&namespace, &given),
            "db.getSiblingDB(\"a\\\"b\").runCommand({collMod: \"c d\", \"x.y\": [1, NumberLong(\"2\"), Double(1.0), true, null], \
             at: EJSON.deserialize({\"$date\":{\"$numberLong\":\"1\"}}), [\"__proto__\"]: \"\\n\"})"
        );
    }
}
