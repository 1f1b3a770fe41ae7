//! Checksums in the records of an archive: each is the last field of its JSON text, and covers every byte before it.

use crate::base::text::sha256;

/// Hexadecimal digits of a checksum.
const DIGITS: usize = 16;

/// The bytes before and after the checksum in a text.
#[derive(Debug, Clone, Copy)]
pub struct Seal {
    before: &'static str,
    after: &'static str,
}

impl Seal {
    /// An object in one line.
    pub const LINE: Self = Self { before: ",\"sum\":\"", after: "\"}\n" };
    /// An object in indented lines.
    pub const INDENTED: Self = Self { before: ",\n  \"sum\": \"", after: "\"\n}\n" };

    /// Adds the checksum to a JSON object that has fields.
    pub fn close(&self, json: &str) -> Vec<u8> {
        let body = json.strip_suffix('}').unwrap_or(json).trim_end();
        format!("{body}{}{}{}", self.before, sum(body.as_bytes()), self.after).into_bytes()
    }

    /// Returns the object without its checksum; `None` if the text is not what was written.
    pub fn open(&self, text: &[u8]) -> Option<Vec<u8>> {
        let text = text.strip_suffix(self.after.as_bytes())?;
        let (text, found) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
        let body = text.strip_suffix(self.before.as_bytes())?;
        (sum(body).as_bytes() == found).then(|| [body, b"}"].concat())
    }
}

fn sum(body: &[u8]) -> String {
    let mut sum = sha256(body);
    sum.truncate(DIGITS);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_opened_only_as_it_was_closed() {
        let line = Seal::LINE.close("{\"a\":{\"b\":1}}");
        assert!(line.starts_with(b"{\"a\":{\"b\":1},\"sum\":\"") && line.ends_with(b"\"}\n"));
        let indented = Seal::INDENTED.close("{\n  \"a\": []\n}");
        assert!(indented.starts_with(b"{\n  \"a\": [],\n  \"sum\": \"") && indented.ends_with(b"\"\n}\n"));
        for (seal, text, object) in
            [(Seal::LINE, line, &b"{\"a\":{\"b\":1}}"[..]), (Seal::INDENTED, indented, b"{\n  \"a\": []}")]
        {
            assert_eq!(seal.open(&text).as_deref(), Some(object));
            for bit in 0..text.len() * 8 {
                let mut flipped = text.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(seal.open(&flipped), None, "bit {bit}");
            }
            for cut in 0..text.len() {
                assert_eq!(seal.open(&text[..cut]), None, "cut at {cut}");
            }
        }
    }
}
