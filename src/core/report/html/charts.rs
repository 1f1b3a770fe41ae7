//! Charts of a rule as inline SVG. They contain only numbers, dates and periods. `style.css` selects the colours by their values
//! to replace them.

use maud::{Markup, html};

use crate::base::text::{clean, compact};

/// Width of every chart in pixels: one chart fits the screen of a phone, and three fit the screen of a desktop.
const WIDTH: i32 = 360;

const EXPIRED: &str = "#C2410C";
const KEPT: &str = "#8FA6BC";
const TEXT: &str = "#5B6570";
const GRID: &str = "#D9DEE3";

/// One bar of a chart.
pub(super) struct Bar {
    pub label: String,
    pub expired: u64,
    /// Documents that have not expired, drawn after the expired ones.
    pub kept: u64,
}

impl Bar {
    fn sum(&self) -> f64 {
        self.expired as f64 + self.kept as f64
    }
}

/// Draws horizontal bars, one below the other, each with its number as `show` writes it.
pub(super) fn rows(bars: &[Bar], show: fn(f64) -> String) -> Markup {
    const ROW: i32 = 18;
    const LEFT: i32 = 88;
    const RIGHT: i32 = 52;
    let most = bars.iter().map(Bar::sum).fold(1.0, f64::max);
    let length = |number: f64| pixels(number / most * f64::from(WIDTH - LEFT - RIGHT), number);
    let height = ROW * bars.len() as i32 + 4;
    svg(
        height,
        html! {
            (line((LEFT, 0), (LEFT, height)))
            @for (bar, top) in bars.iter().zip((2..).step_by(ROW as usize)) {
                @let expired = LEFT + length(bar.expired as f64);
                @let all = (LEFT + length(bar.sum())).max(expired + i32::from(bar.kept > 0));
                (text(&bar.label, (LEFT - 6, top + ROW / 2), "end"))
                (block((LEFT, top + 3), (expired, top + ROW - 3), EXPIRED))
                (block((expired, top + 3), (all, top + ROW - 3), KEPT))
                (text(&show(bar.sum()), (all + 6, top + ROW / 2), "start"))
            }
        },
    )
}

/// Draws vertical bars over time, with a scale on the left and the labels of at most five bars below.
pub(super) fn columns(bars: &[Bar]) -> Markup {
    const HEIGHT: i32 = 156;
    const LEFT: i32 = 52;
    const FLOOR: i32 = HEIGHT - 20;
    const TOP: i32 = 10;
    let scale = round_up(bars.iter().map(Bar::sum).fold(0.0, f64::max));
    let height = |number: f64| pixels(number / scale * f64::from(FLOOR - TOP), number);
    let slot = f64::from(WIDTH - LEFT) / bars.len().max(1) as f64;
    let middle = |index: usize| LEFT + ((index as f64 + 0.5) * slot) as i32;
    let half = ((slot * 0.4) as i32).clamp(1, 16);
    let step = bars.len().div_ceil(5).max(1);
    svg(
        HEIGHT,
        html! {
            @for share in if scale > 1.0 { &[0.0, 0.5, 1.0][..] } else { &[0.0, 1.0] } {
                @let y = FLOOR - height(scale * share);
                (line((LEFT, y), (WIDTH, y)))
                (text(&short(scale * share), (LEFT - 6, y), "end"))
            }
            @for (index, bar) in bars.iter().enumerate() {
                (block((middle(index) - half, FLOOR - height(bar.sum())), (middle(index) + half, FLOOR), EXPIRED))
                @if index % step == 0 { (text(&bar.label, (middle(index).clamp(LEFT, WIDTH - 18), HEIGHT - 8), "middle")) }
            }
        },
    )
}

fn svg(height: i32, drawing: Markup) -> Markup {
    html! { svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) { (drawing) } }
}

/// Rounds a length to whole pixels, to at least 1 if the `number` that it stands for is above 0.
fn pixels(length: f64, number: f64) -> i32 {
    (length.round() as i32).max(i32::from(number > 0.0))
}

fn block((left, top): (i32, i32), (right, bottom): (i32, i32), colour: &str) -> Markup {
    html! {
        @if right > left && bottom > top { rect x=(left) y=(top) width=(right - left) height=(bottom - top) fill=(colour) {} }
    }
}

fn line((x1, y1): (i32, i32), (x2, y2): (i32, i32)) -> Markup {
    html! { line x1=(x1) y1=(y1) x2=(x2) y2=(y2) stroke=(GRID) {} }
}

/// Writes a text whose `start`, `middle` or `end`, as `anchor` says, is at a point.
fn text(text: &str, (x, y): (i32, i32), anchor: &str) -> Markup {
    html! {
        text x=(x) y=(y) text-anchor=(anchor) dominant-baseline="central" font-family="sans-serif" font-size="11" fill=(TEXT) { (clean(text)) }
    }
}

/// Returns the upper end of a scale, whose half is a whole number as well, except the half of 1.
fn round_up(most: f64) -> f64 {
    if most <= 1.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powi(most.log10().floor() as i32);
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].into_iter().map(|step| step * magnitude).find(|end| *end >= most).unwrap_or(most)
}

/// Writes a number as short as a chart needs it.
pub(super) fn short(number: f64) -> String {
    // A cast from float saturates.
    compact(number as u64)
}

#[cfg(test)]
mod tests {
    use maud::PreEscaped;

    use super::*;

    #[test]
    fn scales_are_round() {
        for (most, end) in [(0.0, 1.0), (1.0, 1.0), (3.0, 4.0), (10.0, 10.0), (11.0, 20.0), (8_100.0, 10_000.0)] {
            assert_eq!(round_up(most), end, "{most}");
        }
    }

    #[test]
    fn what_there_is_one_of_among_millions_can_be_seen() {
        let bars = [(1, 0), (0, 1), (5_000_000, 0)].map(|(expired, kept)| Bar { label: String::new(), expired, kept });
        let PreEscaped(svg) = rows(&bars, short);
        assert_eq!(svg.matches(" width=\"1\"").count(), 2, "{svg}");
        assert_eq!(columns(&bars).0.matches(" height=\"1\"").count(), 2);
    }

    #[test]
    fn labels_cannot_leave_their_text() {
        for chart in [|bars: &[Bar]| rows(bars, short), |bars: &[Bar]| columns(bars)] {
            let PreEscaped(svg) = chart(&[Bar { label: "</text><script>'\"&".into(), expired: 1, kept: 0 }]);
            assert!(svg.contains("&lt;/text&gt;&lt;script&gt;'&quot;&amp;") && !svg.contains("<script"), "{svg}");
        }
        assert!(rows(&[], short).0.starts_with("<svg") && columns(&[]).0.contains("</svg>"));
    }
}
