//! `_id`s of every type and value that a mongod stores, valid or not, written byte by byte: the driver decodes none that is not
//! valid.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use mongodb::bson::spec::ElementType;
use mongodb::bson::{DateTime, Decimal128, RawDocumentBuf, doc};

use super::sweeper::Case;

/// A value as BSON has it.
#[derive(Debug, Clone)]
pub(crate) struct Strange {
    kind: ElementType,
    bytes: Vec<u8>,
    pub is_valid: bool,
}

fn element(kind: ElementType, name: &[u8], bytes: &[u8]) -> Vec<u8> {
    [&[kind as u8], name, &[0], bytes].concat()
}

fn document(elements: &[Vec<u8>]) -> Vec<u8> {
    let body = elements.concat();
    let length = i32::try_from(body.len() + 5).unwrap();
    [&length.to_le_bytes()[..], &body, &[0]].concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&i32::try_from(text.len() + 1).unwrap().to_le_bytes()[..], text, &[0]].concat()
}

fn binary(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&i32::try_from(bytes.len()).unwrap().to_le_bytes()[..], &[kind], bytes].concat()
}

impl Strange {
    /// Returns one `_id` of every kind; those for another number are other ones. Of a type with one value there is one for the
    /// number 0.
    pub(crate) fn every(n: u8) -> Vec<Self> {
        let valid = |kind, bytes| Self { kind, bytes, is_valid: true };
        let invalid = |kind, bytes| Self { kind, bytes, is_valid: false };
        let text = |text: &str| string(&[text.as_bytes(), &[b'0' + n]].concat());
        let bad = string(&[b'a', 0xff, b'0' + n]);
        let float = |number: f64| number.to_le_bytes().to_vec();
        let decimal: Decimal128 = format!("1{n}.50").parse().unwrap();
        let scope = document(&[element(ElementType::String, b"s", &bad)]);
        let code_with_scope = |code: &[u8], scope: &[u8]| {
            let length = i32::try_from(4 + code.len() + scope.len()).unwrap();
            [&length.to_le_bytes()[..], code, scope].concat()
        };
        let mut all = vec![
            valid(ElementType::Int32, (1000 + i32::from(n)).to_le_bytes().to_vec()),
            valid(ElementType::Int64, ((1_i64 << 40) + i64::from(n)).to_le_bytes().to_vec()),
            valid(ElementType::Double, float(0.5 + f64::from(n))),
            valid(ElementType::Double, float(if n == 0 { f64::INFINITY } else { f64::NEG_INFINITY })),
            valid(ElementType::Decimal128, decimal.bytes().to_vec()),
            valid(ElementType::String, text("s")),
            valid(ElementType::Symbol, text("symbol")),
            valid(
                ElementType::EmbeddedDocument,
                document(&[
                    element(ElementType::Int32, b"n", &i32::from(n).to_le_bytes()),
                    element(ElementType::Double, b"x", &float(f64::NAN)),
                ]),
            ),
            valid(ElementType::EmbeddedDocument, document(&[element(ElementType::Int32, b"", &i32::from(n).to_le_bytes())])),
            valid(ElementType::Binary, binary(0xfe, &[1, n])),
            valid(ElementType::Binary, binary(2, &[2, 0, 0, 0, 1, n])),
            valid(ElementType::ObjectId, vec![n + 1; 12]),
            valid(ElementType::Boolean, vec![n]),
            valid(ElementType::DateTime, i64::from(n).to_le_bytes().to_vec()),
            valid(ElementType::Timestamp, u64::from(n).to_le_bytes().to_vec()),
            valid(ElementType::DbPointer, [text("a"), vec![7; 12]].concat()),
            valid(ElementType::JavaScriptCode, text("code")),
            valid(ElementType::JavaScriptCodeWithScope, code_with_scope(&text("code"), &document(&[]))),
            invalid(ElementType::String, bad.clone()),
            invalid(ElementType::Symbol, string(&[b's', 0xfe, b'0' + n])),
            invalid(ElementType::DbPointer, [bad.clone(), vec![7; 12]].concat()),
            invalid(ElementType::JavaScriptCode, bad.clone()),
            invalid(ElementType::JavaScriptCodeWithScope, code_with_scope(&bad, &scope)),
            invalid(ElementType::Binary, binary(2, &[99, 0, 0, 0, 1, n])),
            invalid(ElementType::EmbeddedDocument, document(&[element(ElementType::String, b"a", &bad)])),
            invalid(
                ElementType::EmbeddedDocument,
                document(&[element(ElementType::Int32, &[b'a', 0xff], &i32::from(n).to_le_bytes())]),
            ),
        ];
        if n == 0 {
            all.extend([
                valid(ElementType::Double, float(f64::NAN)),
                valid(ElementType::Double, float(-0.0)),
                valid(ElementType::Null, Vec::new()),
                valid(ElementType::MinKey, Vec::new()),
                valid(ElementType::MaxKey, Vec::new()),
            ]);
        }
        all
    }

    /// Returns the document with only this `_id`, in hexadecimal digits.
    pub(crate) fn hex(&self) -> String {
        hex::encode(document(&[element(self.kind, b"_id", &self.bytes)]))
    }
}

/// Inserts a document for each `_id`, with a date and, if asked for, a string that is not valid.
pub(crate) async fn fill(case: &Case, name: &str, ids: &[Strange], at: DateTime, with_invalid_field: bool) {
    let documents = ids.iter().enumerate().map(|(number, id)| {
        let date = element(ElementType::DateTime, b"at", &at.timestamp_millis().to_le_bytes());
        let mut elements = vec![element(id.kind, b"_id", &id.bytes), date];
        if with_invalid_field {
            elements.push(element(ElementType::String, b"text", &string(&[0xc3, 0x28])));
        }
        element(ElementType::EmbeddedDocument, number.to_string().as_bytes(), &document(&elements))
    });
    let documents = document(&documents.collect::<Vec<_>>());
    let insert = document(&[
        element(ElementType::String, b"insert", &string(name.as_bytes())),
        element(ElementType::Array, b"documents", &documents),
    ]);
    let inserted = case.db.run_raw_command(RawDocumentBuf::from_bytes(insert).unwrap()).await.unwrap();
    assert_eq!(inserted.get_i32("n").ok(), i32::try_from(ids.len()).ok(), "{inserted}");
}

/// Returns the `_id`s that are left, as [`Strange::hex`] returns them.
pub(crate) async fn left(case: &Case, name: &str) -> BTreeSet<String> {
    let found = case.db.collection::<RawDocumentBuf>(name).find(doc! {}).projection(doc! { "_id": 1 }).await.unwrap();
    let found: Vec<RawDocumentBuf> = found.try_collect().await.unwrap();
    found.iter().map(|document| hex::encode(document.as_bytes())).collect()
}

/// Returns the same for `_id`s.
pub(crate) fn hex_set<'a>(ids: impl IntoIterator<Item = &'a Strange>) -> BTreeSet<String> {
    ids.into_iter().map(Strange::hex).collect()
}
