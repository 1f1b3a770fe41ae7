//! The types of the values of a document. Equal values can be of different types, which the server's comparison does not tell
//! apart.

use bson::RawDocument;
use bson::raw::{CStr, RawBsonRef};

use crate::base::values::raw::{ListItems, RawValue};

/// Maximum nesting of the values that are compared: every level nests the condition deeper as well, and the server takes 200
/// levels of BSON.
pub(crate) const MAX_DEPTH: usize = 30;

/// Bytes of the types of a document with about 15 fields.
const LIKELY_BYTES: usize = 256;

/// The types of all values of a document.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Types {
    /// The types in the form in which a statement compares them: a list with a string for each value, the name of the type, and
    /// after a space the text. For a value with values inside it is a list of the same.
    pub compared: RawValue,
    /// One entry for each field of the document.
    pub fields: Vec<FieldType>,
    /// Levels of values inside of values.
    pub depth: usize,
    /// Whether a value is JavaScript code with a scope. The scope has types of its own, which are not in `compared`.
    pub has_code_scope: bool,
}

/// The type of a field's value, by the effort that its comparison takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldType {
    /// The name of the type is enough.
    Named(&'static str),
    /// A scalar whose text is compared as well.
    WithText,
    /// A document or an array.
    Nested,
}

impl Types {
    /// Returns the types of a document; `None` if it is not valid BSON, or has a name twice. Of such a name mongod compares the
    /// first value twice, and the second never.
    pub(super) fn of(document: &RawDocument) -> Option<Self> {
        let mut walk = TypeWalk { fields: Vec::new(), deepest: 0, has_code_scope: false };
        let (compared, valid) = RawValue::written_list(LIKELY_BYTES, |types| walk.document(document, 0, types));
        valid.map(|()| Self { compared, fields: walk.fields, depth: walk.deepest, has_code_scope: walk.has_code_scope })
    }
}

/// The findings on the way through a document.
struct TypeWalk {
    /// One entry for each field of the document itself.
    fields: Vec<FieldType>,
    deepest: usize,
    has_code_scope: bool,
}

impl TypeWalk {
    fn document(&mut self, document: &RawDocument, depth: usize, types: &mut ListItems) -> Option<()> {
        let mut names = Vec::new();
        self.values(document, depth, Some(&mut names), types)?;
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1]).then_some(())
    }

    /// Writes the types of the values of a document or an array, and adds their names to a list.
    fn values<'a>(
        &mut self,
        values: &'a RawDocument,
        depth: usize,
        mut names: Option<&mut Vec<&'a CStr>>,
        types: &mut ListItems,
    ) -> Option<()> {
        self.deepest = depth.max(self.deepest);
        for element in values {
            let (name, value) = element.ok()?;
            if let Some(names) = &mut names {
                names.push(name);
            }
            let field = match value {
                // Never compared, because the document is too deep. The recursion must end.
                RawBsonRef::Document(_) | RawBsonRef::Array(_) if depth > MAX_DEPTH => FieldType::Nested,
                RawBsonRef::Document(inner) => {
                    types.items(|types| self.document(inner, depth + 1, types))?;
                    FieldType::Nested
                }
                RawBsonRef::Array(inner) => {
                    // An array has the bytes of a document, whose keys do not matter.
                    let inner = RawDocument::from_bytes(inner.as_bytes()).ok()?;
                    types.items(|types| self.values(inner, depth + 1, None, types))?;
                    FieldType::Nested
                }
                scalar => {
                    self.has_code_scope |= matches!(scalar, RawBsonRef::JavaScriptCodeWithScope(_));
                    let ScalarType { name, text } = ScalarType::of(scalar);
                    match text {
                        None => {
                            types.text(name);
                            FieldType::Named(name)
                        }
                        Some(text) => {
                            types.text(&format!("{name} {text}"));
                            FieldType::WithText
                        }
                    }
                }
            };
            if depth == 0 {
                self.fields.push(field);
            }
        }
        Some(())
    }
}

/// The type of a value without values inside.
struct ScalarType {
    /// The name that `$type` returns.
    name: &'static str,
    /// The text that `$toString` returns, for values that equal others of the same type: decimals, and zero.
    text: Option<String>,
}

impl ScalarType {
    fn of(value: RawBsonRef) -> Self {
        let text = match value {
            RawBsonRef::Double(value) if value == 0.0 => Some(if value.is_sign_negative() { "-0" } else { "0" }.to_owned()),
            RawBsonRef::Int32(0) | RawBsonRef::Int64(0) => Some("0".to_owned()),
            RawBsonRef::Decimal128(value) => Some(value.to_string()),
            _ => None,
        };
        Self { name: name(value), text }
    }
}

/// Returns the name that `$type` returns for a value.
fn name(value: RawBsonRef) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::DbPointer(_) => "dbPointer",
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::cstr;
    use bson::{Bson, Decimal128, JavaScriptCodeWithScope, RawArrayBuf, RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn a_name_twice_has_no_types() {
        let mut twice = RawDocumentBuf::new();
        twice.append(cstr!("b"), 1);
        twice.append(cstr!("a"), 1);
        let once = twice.clone();
        twice.append(cstr!("b"), 1);
        let within = |document: &RawDocumentBuf| {
            let mut list = RawArrayBuf::new();
            list.push(RawBsonRef::Document(document));
            list.push(RawBsonRef::Document(document));
            let mut outer = RawDocumentBuf::new();
            outer.append(cstr!("v"), list);
            outer
        };
        let has_types = |document: &RawDocumentBuf| Types::of(document).is_some();
        assert!(has_types(&once) && has_types(&within(&once)));
        assert!(!has_types(&twice) && !has_types(&within(&twice)));
    }

    #[test]
    fn types_are_names_and_where_equal_values_differ_texts() {
        let code = JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "javascript": 1 } };
        let document = doc! {
            "i": 7, "zero": 0, "long": 0_i64, "minus": -0.0, "half": 0.5, "s": "decimal 1",
            "d": "1.50".parse::<Decimal128>().unwrap(), "list": [1_i64, { "x": true }], "n": Bson::Null,
        };
        let types = |document: &bson::Document| Types::of(&RawDocumentBuf::try_from(document).unwrap()).unwrap();
        let found = types(&document);
        let compared = found.compared.decoded().unwrap();
        let list = Bson::from(vec![Bson::from("long"), Bson::from(vec!["bool"])]);
        let texts = ["int", "int 0", "long 0", "double -0", "double", "string", "decimal 1.50"].map(Bson::from);
        assert_eq!(compared, Bson::from([texts.as_slice(), &[list, "null".into()]].concat()));
        use FieldType::{Named, Nested, WithText};
        let fields =
            [Named("int"), WithText, WithText, WithText, Named("double"), Named("string"), WithText, Nested, Named("null")];
        assert_eq!((found.fields.as_slice(), found.depth, found.has_code_scope), (fields.as_slice(), 2, false));
        assert!(types(&doc! { "a": [{ "b": code }] }).has_code_scope);
        assert!(!types(&doc! { "javascriptWithScope": "javascriptWithScope" }).has_code_scope);
    }
}
