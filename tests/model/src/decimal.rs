//! Decimal numbers of 34 digits, as far as comparing them needs it.

use std::cmp::Ordering;

use bson::Bson;

/// A number in a form that compares exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// 0 for NaN, 1 for minus infinity, 2 for a number, and 3 for infinity.
    class: u8,
    /// -1, 0 or 1.
    sign: i8,
    /// Place of the first digit, counted from the point.
    magnitude: i64,
    /// The digits without zeros at either end.
    digits: String,
}

impl Decimal {
    pub(crate) const NAN: Self = Self { class: 0, sign: 0, magnitude: 0, digits: String::new() };

    /// Returns a number of any type; NaN for everything else.
    pub(crate) fn of(value: &Bson) -> Self {
        match value {
            Bson::Int32(n) => Self::read(&n.to_string()),
            Bson::Int64(n) => Self::read(&n.to_string()),
            // The server converts a double into a decimal of 34 digits.
            Bson::Double(n) => Self::read(&format!("{n:.33e}")),
            Bson::Decimal128(n) => Self::read(&n.to_string()),
            _ => Self::NAN,
        }
    }

    fn read(text: &str) -> Self {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let sign = if is_negative { -1 } else { 1 };
        match text.to_ascii_lowercase().as_str() {
            "nan" => return Self::NAN,
            "inf" | "infinity" => return Self { class: if is_negative { 1 } else { 3 }, sign, ..Self::NAN },
            _ => {}
        }
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i64 = exponent.trim_start_matches('+').parse().expect("an exponent");
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).expect("few digits");
        let digits = digits.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Self { class: 2, ..Self::NAN };
        }
        let magnitude = exponent + i64::try_from(whole.len()).expect("few digits") - zeros;
        Self { class: 2, sign, magnitude, digits }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.class.cmp(&other.class).then(self.sign.cmp(&other.sign));
        let by_size = || self.magnitude.cmp(&other.magnitude).then_with(|| self.digits.cmp(&other.digits));
        by_sign.then_with(|| if self.sign < 0 { by_size().reverse() } else { by_size() })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
