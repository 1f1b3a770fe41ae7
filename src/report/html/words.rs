//! Pieces that several parts of the page are made of: names, numbers and dates, each harmless whatever it holds.

use maud::{Markup, html};
use serde_json::Value;

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

/// An instant of the report, as it is there.
pub fn at(instant: &str) -> Markup {
    html! { time datetime=(clean(instant)) { (clean(instant)) } }
}

/// The same to the minute.
pub fn about(instant: &str) -> Markup {
    let minute = instant.get(..16).filter(|_| instant.ends_with('Z')).map(|minute| minute.replace('T', " "));
    let instant = clean(instant);
    html! { time datetime=(instant) title=(instant) { (minute.map_or_else(|| instant.clone(), |minute| clean(&minute))) } }
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

/// A number of seconds in the largest unit that gives a whole number: `90d`, `2y`, `36h`.
pub fn age(seconds: i64) -> String {
    let units = [(31_536_000, "y"), (86_400, "d"), (3_600, "h"), (60, "m")];
    match units.into_iter().find(|(unit, _)| seconds != 0 && seconds % unit == 0) {
        Some((unit, letter)) => format!("{}{letter}", seconds / unit),
        None if seconds == 0 => "0".to_owned(),
        None => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_instants_are_short() {
        for (seconds, text) in [(0, "0"), (90, "90s"), (3_600, "1h"), (129_600, "36h"), (7_776_000, "90d"), (63_072_000, "2y")] {
            assert_eq!(age(seconds), text);
        }
        assert!(about("2026-01-31T02:03:04.000Z").0.contains(">2026-01-31 02:03<"));
        assert!(about("253402300800000 ms since 1970").0.contains(">253402300800000 ms since 1970<"));
    }

    #[test]
    fn a_long_id_is_shown_by_its_beginning() {
        let markup = id(&Value::String("é".repeat(1_000))).0;
        assert_eq!(markup.matches('é').count(), MOST_ID - 1, "{markup}");
        assert!(markup.contains('…'));
    }
}
