//! The charts of a rule as inline SVG. They hold numbers and dates alone, never a name from outside; the colours are taken over by
//! `style.css`, which knows them by their values.

use std::io;

use maud::{Markup, PreEscaped};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::text::{clean, count};

/// Of every chart, in pixels: what fits a phone, and three times beside each other on a desk.
const WIDTH: i32 = 360;

const EXPIRED: RGBColor = RGBColor(0xC2, 0x41, 0x0C);
const KEPT: RGBColor = RGBColor(0x8F, 0xA6, 0xBC);
const TEXT: RGBColor = RGBColor(0x5B, 0x65, 0x70);
const GRID: RGBColor = RGBColor(0xD9, 0xDE, 0xE3);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// One bar of a chart.
pub struct Bar {
    pub label: String,
    pub expired: u64,
    /// Documents that have not expired, drawn behind the others.
    pub kept: u64,
}

impl Bar {
    fn sum(&self) -> f64 {
        self.expired as f64 + self.kept as f64
    }
}

/// Horizontal bars, one below the other, each with its number.
pub fn rows(bars: &[Bar]) -> Markup {
    const ROW: i32 = 18;
    const LEFT: i32 = 88;
    const RIGHT: i32 = 46;
    let most = bars.iter().map(Bar::sum).fold(1.0, f64::max);
    let length = |number: f64| pixels(number / most * f64::from(WIDTH - LEFT - RIGHT), number);
    svg(ROW * bars.len() as i32 + 4, |area| {
        line(area, (LEFT, 0), (LEFT, ROW * bars.len() as i32 + 4))?;
        for (bar, top) in bars.iter().zip((2..).step_by(ROW as usize)) {
            let (expired, all) = (LEFT + length(bar.expired as f64), LEFT + length(bar.sum()));
            text(area, &bar.label, (LEFT - 6, top + ROW / 2), HPos::Right)?;
            block(area, (LEFT, top + 3), (expired, top + ROW - 3), EXPIRED)?;
            block(area, (expired, top + 3), (all.max(expired + i32::from(bar.kept > 0)), top + ROW - 3), KEPT)?;
            text(area, &short(bar.sum()), (all + 6, top + ROW / 2), HPos::Left)?;
        }
        Ok(())
    })
}

/// Vertical bars over time, with a scale on the left and up to five of their labels below.
pub fn columns(bars: &[Bar]) -> Markup {
    const HEIGHT: i32 = 156;
    const LEFT: i32 = 44;
    const FLOOR: i32 = HEIGHT - 20;
    const TOP: i32 = 10;
    let scale = round_up(bars.iter().map(Bar::sum).fold(0.0, f64::max));
    let height = |number: f64| pixels(number / scale * f64::from(FLOOR - TOP), number);
    let slot = f64::from(WIDTH - LEFT) / bars.len().max(1) as f64;
    let middle = |index: usize| LEFT + ((index as f64 + 0.5) * slot) as i32;
    let half = ((slot * 0.4) as i32).clamp(1, 16);
    svg(HEIGHT, |area| {
        for share in if scale > 1.0 { &[0.0, 0.5, 1.0][..] } else { &[0.0, 1.0] } {
            let y = FLOOR - height(scale * share);
            line(area, (LEFT, y), (WIDTH, y))?;
            text(area, &short(scale * share), (LEFT - 6, y), HPos::Right)?;
        }
        let step = bars.len().div_ceil(5).max(1);
        for (index, bar) in bars.iter().enumerate() {
            block(area, (middle(index) - half, FLOOR - height(bar.sum())), (middle(index) + half, FLOOR), EXPIRED)?;
            if index % step == 0 {
                let x = middle(index).clamp(LEFT, WIDTH - 18);
                text(area, &bar.label, (x, HEIGHT - 8), HPos::Center)?;
            }
        }
        Ok(())
    })
}

fn svg(height: i32, draw: impl FnOnce(&Area) -> Drawn) -> Markup {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height.unsigned_abs())).into_drawing_area();
    let drawn = draw(&area).and_then(|()| area.present());
    drawn.expect("drawing goes to memory");
    drop(area);
    PreEscaped(text)
}

/// A length; a number above 0 can always be seen.
fn pixels(length: f64, number: f64) -> i32 {
    (length.round() as i32).max(i32::from(number > 0.0))
}

fn block(area: &Area, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Drawn {
    if from.0 == to.0 || from.1 == to.1 { Ok(()) } else { area.draw(&Rectangle::new([from, to], colour.filled())) }
}

fn line(area: &Area, from: (i32, i32), to: (i32, i32)) -> Drawn {
    area.draw(&PathElement::new([from, to], GRID))
}

fn text(area: &Area, text: &str, at: (i32, i32), side: HPos) -> Drawn {
    // plotters divides by 1.24: 11 pixels.
    let style = TextStyle::from(("sans-serif", 13.64).into_font()).color(&TEXT).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(clean(text), at, style))
}

/// The end of a scale that half of is a whole number as well, but for 1.
fn round_up(most: f64) -> f64 {
    if most <= 1.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powi(most.log10().floor() as i32);
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].into_iter().map(|step| step * magnitude).find(|end| *end >= most).unwrap_or(most)
}

/// A number in few characters: `9,999`, `12.3k`, `4.50M`.
fn short(number: f64) -> String {
    for (unit, letter) in [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if number >= unit && number >= 1e4 {
            let value = number / unit;
            let decimals = if value >= 100.0 { 0 } else { 1 };
            let rounded = format!("{value:.decimals$}");
            return format!("{}{letter}", rounded.strip_suffix(".0").unwrap_or(&rounded));
        }
    }
    count(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_numbers_are_round() {
        for (most, end) in [(0.0, 1.0), (1.0, 1.0), (3.0, 4.0), (10.0, 10.0), (11.0, 20.0), (8_100.0, 10_000.0)] {
            assert_eq!(round_up(most), end, "{most}");
        }
        for (number, text) in
            [(0.0, "0"), (9_999.0, "9,999"), (12_345.0, "12.3k"), (4e6, "4M"), (123_456.0, "123k"), (2e19, "20000P")]
        {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn what_there_is_one_of_among_millions_can_be_seen() {
        let bars = [(1, 0), (0, 1), (5_000_000, 0)].map(|(expired, kept)| Bar { label: String::new(), expired, kept });
        let PreEscaped(svg) = rows(&bars);
        assert_eq!(svg.matches(" width=\"1\"").count(), 2, "{svg}");
        assert_eq!(columns(&bars).0.matches(" height=\"1\"").count(), 2);
    }

    #[test]
    fn labels_cannot_leave_their_text() {
        for chart in [rows, columns] {
            let PreEscaped(svg) = chart(&[Bar { label: "</text><script>'\"&".into(), expired: 1, kept: 0 }]);
            assert!(svg.contains("&lt;/text&gt;&lt;script&gt;&apos;&quot;&amp;") && !svg.contains("<script"), "{svg}");
        }
        assert!(rows(&[]).0.starts_with("<svg") && columns(&[]).0.contains("</svg>"));
    }
}
