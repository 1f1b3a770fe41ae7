//! Values as a person writes them: as mongosh shows them, or as Extended JSON.

use std::iter::Peekable;
use std::str::CharIndices;

use bson::Bson;
use bson::oid::ObjectId;
use serde_json::{Map, Value, json};

use super::typed;

/// Maximum nesting of a value: no `_id` that a person types needs more.
const MAX_LEVELS: usize = 20;

/// Functions of mongosh that make a value.
const FUNCTIONS: [&str; 15] = [
    "ObjectId",
    "UUID",
    "ISODate",
    "Date",
    "NumberInt",
    "Int32",
    "NumberLong",
    "Long",
    "NumberDecimal",
    "Decimal128",
    "Double",
    "Timestamp",
    "BinData",
    "MinKey",
    "MaxKey",
];

/// Returns the values that a text may stand for. Digits may be a number or a string, and 24 hexadecimal digits an ObjectId or a
/// string; a text that is nothing else is a string.
///
/// Errors: the text begins as a value of mongosh or of Extended JSON, and is none.
pub(crate) fn candidates(text: &str) -> Result<Vec<Bson>, String> {
    let text = text.trim();
    let is_value = text.starts_with(['{', '[', '"', '\'']) || FUNCTIONS.iter().any(|name| calls(text, name));
    let read = parse(text);
    if is_value {
        return read.map(|value| vec![value]);
    }
    let mut candidates: Vec<Bson> = read.into_iter().collect();
    candidates.extend(ObjectId::parse_str(text).map(Bson::ObjectId));
    candidates.push(Bson::String(text.to_owned()));
    Ok(candidates)
}

fn calls(text: &str, name: &str) -> bool {
    let text = text.strip_prefix("new ").unwrap_or(text).trim_start();
    text.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('('))
}

/// Reads one value.
fn parse(text: &str) -> Result<Bson, String> {
    let mut reader = Reader { text, chars: text.char_indices().peekable() };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.chars.peek().is_some() {
        return Err(reader.expected("nothing more"));
    }
    Bson::try_from(value).map_err(|_| "no value of a type that MongoDB has".to_owned())
}

/// A reader of JSON with the liberties of mongosh, as far as they make values: names without quotes, single quotes, functions.
struct Reader<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl Reader<'_> {
    fn value(&mut self, level: usize) -> Result<Value, String> {
        self.blanks();
        match self.chars.peek().map(|(_, c)| *c) {
            _ if level > MAX_LEVELS => Err(format!("more than {MAX_LEVELS} levels")),
            Some('{') => self.object(level),
            Some('[') => self.list('[', ']', level).map(Value::Array),
            Some('"' | '\'') => self.string().map(Value::String),
            Some(c) if c.is_ascii_digit() || "-+.".contains(c) => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.word(level),
            _ => Err(self.expected("a value")),
        }
    }

    fn object(&mut self, level: usize) -> Result<Value, String> {
        self.take('{')?;
        let mut object = Map::new();
        while !self.is_next('}') {
            self.blanks();
            let key = match self.chars.peek() {
                Some((_, '"' | '\'')) => self.string()?,
                _ => self.name(),
            };
            self.take(':')?;
            if object.insert(key, self.value(level + 1)?).is_some() {
                return Err(self.expected("each key once"));
            }
            if !self.is_next('}') {
                self.take(',')?;
            }
        }
        self.take('}')?;
        let typed = object.keys().next().filter(|key| key.starts_with('$') && *key != "$ref").cloned();
        let value = Value::Object(object);
        match (typed, Bson::try_from(value.clone())) {
            (Some(key), Err(_)) => Err(format!("`{key}`: expected {}", typed::expected(&key))),
            (Some(key), Ok(Bson::Document(_))) => Err(format!("`{key}` is no type of Extended JSON")),
            _ => Ok(value),
        }
    }

    fn list(&mut self, open: char, close: char, level: usize) -> Result<Vec<Value>, String> {
        self.take(open)?;
        let mut values = Vec::new();
        while !self.is_next(close) {
            values.push(self.value(level + 1)?);
            if !self.is_next(close) {
                self.take(',')?;
            }
        }
        self.take(close)?;
        Ok(values)
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.chars.next().map_or('"', |(_, c)| c);
        let mut string = String::new();
        loop {
            match self.chars.next().map(|(_, c)| c) {
                Some(c) if c == quote => return Ok(string),
                Some('\\') => string.push(self.escaped()?),
                Some(c) => string.push(c),
                None => return Err(format!("expected {quote} at the end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        Ok(match self.chars.next().map(|(_, c)| c) {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('u') => {
                let digits: String = (0..4).filter_map(|_| self.chars.next()).map(|(_, c)| c).collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                code.ok_or_else(|| "expected four hexadecimal digits of a character after \\u".to_owned())?
            }
            Some(c) => c,
            None => return Err(self.expected("a character after \\")),
        })
    }

    fn number(&mut self) -> Result<Value, String> {
        let begin = self.position();
        while self.chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || "+-.".contains(*c)).is_some() {}
        let text = &self.text[begin..self.position()];
        let whole = text.parse::<i64>().ok().map(Value::from);
        let fraction = || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from);
        whole.or_else(fraction).ok_or_else(|| format!("`{text}` is no number"))
    }

    fn word(&mut self, level: usize) -> Result<Value, String> {
        let mut name = self.name();
        if name == "new" {
            self.blanks();
            name = self.name();
        }
        match name.as_str() {
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            "null" => return Ok(Value::Null),
            "NaN" | "Infinity" => return Ok(json!({ "$numberDouble": name })),
            _ => {}
        }
        if !self.is_next('(') {
            return Err(format!("`{name}` is no value"));
        }
        let arguments = self.list('(', ')', level)?;
        match made(&name, &arguments).filter(|value| Bson::try_from(value.clone()).is_ok()) {
            Some(value) => Ok(value),
            None if FUNCTIONS.contains(&name.as_str()) => Err(format!("`{name}`: expected {}", argument(&name))),
            None => Err(format!("`{name}` makes no value; expected one of {}", FUNCTIONS.join(", "))),
        }
    }

    fn name(&mut self) -> String {
        let begin = self.position();
        while self.chars.next_if(|(_, c)| c.is_alphanumeric() || "_$".contains(*c)).is_some() {}
        self.text[begin..self.position()].to_owned()
    }

    fn blanks(&mut self) {
        while self.chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
    }

    fn is_next(&mut self, c: char) -> bool {
        self.blanks();
        self.chars.peek().is_some_and(|(_, next)| *next == c)
    }

    fn take(&mut self, c: char) -> Result<(), String> {
        if self.is_next(c) {
            self.chars.next();
            return Ok(());
        }
        Err(self.expected(&format!("`{c}`")))
    }

    fn position(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn expected(&mut self, what: &str) -> String {
        let at = self.position();
        format!("expected {what} at character {}", self.text[..at].chars().count() + 1)
    }
}

/// Returns what a function of mongosh takes.
fn argument(name: &str) -> &'static str {
    typed::expected(match name {
        "ObjectId" => "$oid",
        "UUID" => "$uuid",
        "ISODate" | "Date" => "$date",
        "NumberInt" | "Int32" | "NumberLong" | "Long" => "$numberLong",
        "NumberDecimal" | "Decimal128" | "Double" => "$numberDecimal",
        "Timestamp" => "$timestamp",
        "BinData" => return "a number, and bytes in base64: `BinData(0, \"AQI=\")`",
        _ => return "nothing in its parentheses",
    })
}

/// Returns what a function of mongosh makes, as Extended JSON.
fn made(name: &str, arguments: &[Value]) -> Option<Value> {
    let as_text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    Some(match (name, arguments) {
        ("ObjectId", [Value::String(hex)]) => json!({ "$oid": hex }),
        ("UUID", [Value::String(text)]) => json!({ "$uuid": text }),
        ("ISODate" | "Date", [Value::String(text)]) => json!({ "$date": text }),
        ("Date", [Value::Number(millis)]) => json!({ "$date": { "$numberLong": millis.to_string() } }),
        ("NumberInt" | "Int32", [number]) => json!({ "$numberInt": as_text(number)? }),
        ("NumberLong" | "Long", [number]) => json!({ "$numberLong": as_text(number)? }),
        ("NumberDecimal" | "Decimal128", [number]) => json!({ "$numberDecimal": as_text(number)? }),
        ("Double", [number]) => json!({ "$numberDouble": as_text(number)? }),
        ("Timestamp", [Value::Object(parts)]) => json!({ "$timestamp": parts }),
        ("Timestamp", [t, i]) => json!({ "$timestamp": { "t": t, "i": i } }),
        ("BinData", [Value::Number(subtype), Value::String(base64)]) => {
            json!({ "$binary": { "base64": base64, "subType": format!("{:02x}", subtype.as_u64()?) } })
        }
        ("MinKey", []) => json!({ "$minKey": 1 }),
        ("MaxKey", []) => json!({ "$maxKey": 1 }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Decimal128, Timestamp, doc};

    use super::*;

    const HEX: &str = "0123456789abcdef01234567";

    #[test]
    fn values_are_read_as_mongosh_shows_them_and_as_extended_json() {
        let id = ObjectId::parse_str(HEX).unwrap();
        let uuid = bson::Uuid::parse_str("c8edabc3-f738-4ca3-b68d-ab92a91478a3").unwrap();
        for (text, value) in [
            (r#"ObjectId("0123456789abcdef01234567")"#, Bson::from(id)),
            ("new ObjectId('0123456789abcdef01234567')", id.into()),
            (r#"{"$oid": "0123456789abcdef01234567"}"#, id.into()),
            ("{$oid: '0123456789abcdef01234567'}", id.into()),
            ("UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')", uuid.into()),
            ("NumberLong(5)", 5_i64.into()),
            (r#"Long("-9223372036854775808")"#, i64::MIN.into()),
            ("NumberInt('7')", 7.into()),
            ("NumberDecimal('1.50')", "1.50".parse::<Decimal128>().unwrap().into()),
            ("ISODate('1970-01-01T00:00:01Z')", DateTime::from_millis(1000).into()),
            ("new Date(5)", DateTime::from_millis(5).into()),
            ("Timestamp({ t: 1, i: 2 })", Timestamp { time: 1, increment: 2 }.into()),
            ("Timestamp(1, 2)", Timestamp { time: 1, increment: 2 }.into()),
            (
                "{ tenant: 'a', n: NumberLong(1), at: [1, -2.5, null, true], }",
                doc! { "tenant": "a", "n": 1_i64, "at": [1, -2.5, Bson::Null, true] }.into(),
            ),
            (r#""a \"b\" \u00e9 \n""#, "a \"b\" é \n".into()),
            ("'5'", "5".into()),
            ("  'x' ", "x".into()),
        ] {
            assert_eq!(candidates(text), Ok(vec![value]), "{text}");
        }
        let binary = candidates("BinData(0, 'AQI=')").unwrap().remove(0);
        assert!(matches!(binary, Bson::Binary(binary) if binary.bytes == [1, 2]));
    }

    #[test]
    fn a_text_without_quotes_is_whatever_it_may_be() {
        let id = ObjectId::parse_str(HEX).unwrap();
        assert_eq!(candidates(HEX), Ok(vec![id.into(), HEX.into()]));
        assert_eq!(candidates("5"), Ok(vec![5.into(), "5".into()]));
        assert_eq!(candidates("-0.5"), Ok(vec![(-0.5).into(), "-0.5".into()]));
        assert_eq!(candidates("true"), Ok(vec![true.into(), "true".into()]));
        for text in ["alice@example.com", "order-5", "Longing", "5 apples", "", "1e999"] {
            assert_eq!(candidates(text), Ok(vec![text.into()]), "{text}");
        }
    }

    #[test]
    fn what_begins_as_a_value_and_is_none_is_refused() {
        for (text, why) in [
            ("{a: 1", "expected `,` at character 6"),
            ("{a: 1, a: 2}", "each key once"),
            ("'a", "expected ' at the end"),
            ("ObjectId('5')", "`ObjectId`: expected 24 hexadecimal digits"),
            ("ObjectId(5)", "`ObjectId`: expected 24 hexadecimal digits"),
            ("{a: {$oid: 'x'}}", "`$oid`: expected 24 hexadecimal digits"),
            ("ISODate('yesterday')", "`ISODate`: expected a date such as "),
            ("{$date: 'x'}", "`$date`: expected a date such as "),
            ("UUID('x')", "`UUID`: expected a UUID such as "),
            ("Timestamp(1)", "`Timestamp`: expected {t: 1, i: 1}"),
            ("BinData(0, '!')", "`BinData`: expected a number, and bytes in base64"),
            ("MinKey(5)", "`MinKey`: expected nothing in its parentheses"),
            ("{$foo: 1}", "`$foo` is no type of Extended JSON"),
            ("[1] 2", "expected nothing more at character 5"),
            ("{a: Foo(1)}", "`Foo` makes no value"),
            ("{a: b}", "`b` is no value"),
            ("NumberLong('x')", "`NumberLong`: expected a whole number in quotes"),
        ] {
            let refused = candidates(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!(candidates(&"[".repeat(100_000)).unwrap_err().contains("levels"));
    }
}
