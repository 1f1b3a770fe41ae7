//! Pieces that several parts of the page are made of: names, numbers and dates, each harmless whatever it holds.

use maud::{Markup, html};
use serde_json::Value;

use crate::instant::Instant;
use crate::text::{self, clean, count};

/// Longer `_id`s are shown by their beginning.
const MOST_ID: usize = 160;

/// Text from outside, with a direction of its own.
pub fn name(text: &str) -> Markup {
    html! { bdi { (clean(text)) } }
}

pub fn code(text: &str) -> Markup {
    html! { code { bdi { (clean(text)) } } }
}

pub fn unmeasured() -> Markup {
    html! { span.none { "not measured" } }
}

pub fn measured(value: Option<u64>) -> Markup {
    html! { @if let Some(number) = value { (count(number)) } @else { (unmeasured()) } }
}

/// An instant to the millisecond.
pub fn at(instant: Instant) -> Markup {
    html! { time datetime=(instant) { (instant) } }
}

/// An instant to the minute.
pub fn about(instant: Instant) -> Markup {
    html! { time datetime=(instant) title=(instant) { (instant.minute()) } }
}

/// An `_id`, cut where it is long.
pub fn id(value: &Value) -> Markup {
    let text = text::id(value);
    match text.char_indices().nth(MOST_ID) {
        Some((end, _)) => html! { code { bdi { (text[..end]) } "…" } },
        None => html! { code { bdi { (text) } } },
    }
}

/// The cell of a number in a table that can be sorted.
pub fn number_cell(value: Option<u64>) -> Markup {
    html! { td.n data-v=(value.map(|number| number.to_string()).unwrap_or_default()) { (measured(value)) } }
}

/// A part of a whole as a bar, with its number.
pub fn share(percent: Option<f64>) -> Markup {
    html! {
        @if let Some(percent) = percent {
            span.bar style=(format!("--share:{percent}%")) {} span { (format!("{percent:.1} %")) }
        } @else { (unmeasured()) }
    }
}

/// A table that scrolls on its own where it is too wide, also by keyboard.
pub fn scrolling(label: &str, table: Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(label) { (table) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_to_the_minute() {
        let about = |millis| about(Instant(bson::DateTime::from_millis(millis))).0;
        assert!(about(1_769_824_984_000).contains(">2026-01-31 02:03<"));
        assert!(about(253_402_300_800_000).contains(">253402300800000 ms since 1970<"));
    }

    #[test]
    fn a_long_id_is_shown_by_its_beginning() {
        let markup = id(&Value::String("é".repeat(1_000))).0;
        assert_eq!(markup.matches('é').count(), MOST_ID - 1, "{markup}");
        assert!(markup.contains('…'));
    }
}
