use std::fmt;
use std::io::{self, Write};

use super::*;
use crate::base::terminal::Screen;
use crate::base::text::page;

#[test]
fn the_time_left_is_exact_for_slow_sweeps_as_well() {
    let left = |remaining, deleted, seconds| time_left(remaining, deleted, Duration::from_secs(seconds));
    assert_eq!(left(100, 15, 60), Some(Duration::from_secs(400)));
    assert_eq!(left(1_000_000, 4_000_000, 60), Some(Duration::from_secs(15)));
    assert_eq!((left(0, 5, 10), left(5, 0, 10)), (Some(Duration::ZERO), None));
    assert_eq!(left(u64::MAX, 1, u64::MAX), Some(Duration::MAX));
}

/// A terminal that breaks its lines when it is made narrower, and keeps what it has scrolled.
#[derive(Clone)]
struct Emulator(Arc<Mutex<avt::Terminal>>);

impl Emulator {
    /// Returns all lines, those that were broken as one.
    fn lines(&self) -> Vec<String> {
        let mut lines = self.0.lock().screen().text();
        lines.truncate(lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
        lines
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Emulator")
    }
}

impl Write for Emulator {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // As a terminal does for a program.
        self.0.lock().feed(str::from_utf8(text).unwrap().replace('\n', "\r\n").as_str());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen for Emulator {
    fn size(&self) -> (u16, u16) {
        let (columns, rows) = self.0.lock().size();
        (columns.try_into().unwrap(), rows.try_into().unwrap())
    }
}

#[test]
fn a_terminal_of_any_width_shows_each_bar_once_below_what_is_logged() {
    for (rules, above) in [(1, 0), (1, 40), (4, 0), (4, 40)] {
        let emulator = Emulator(Arc::new(Mutex::new(avt::Terminal::with_scrollback(120, 20, None).unwrap())));
        let mut terminal = Terminal::new(emulator.clone());
        let mut expected: Vec<String> = (0..=above).map(|line| format!("earlier {line}")).collect();
        terminal.write_all(page(&expected).as_bytes()).unwrap();

        let progress = Progress::on(&terminal, Show::Bars, rules, Some(100_000));
        // The last one has no bar, but a count.
        let running: Vec<_> =
            (0..rules).map(|rule| progress.begin(&format!("shop.collection{rule}"), (rule < 3).then_some(25_000))).collect();
        for (step, columns) in [120, 80, 50, 100, 79, 78, 30, 120, 12, 60].into_iter().enumerate() {
            emulator.0.lock().resize(columns, 20);
            if step % 2 == 1 {
                let warning = format!("warning: step {step} of a sweep whose warnings are longer than some of the widths");
                terminal.write_all(page([&warning]).as_bytes()).unwrap();
                expected.push(warning);
            }
            running[0].deleted(1_000);
            for running in progress.state.lock().running.values() {
                running.bar.force_draw();
            }
            let shown = emulator.lines();
            let (logged, bars) = shown.split_at(expected.len());
            assert_eq!(logged, expected, "{rules} at {columns}");
            assert_eq!(bars.len(), if rules == 1 { 1 } else { rules + 1 }, "{rules} at {columns}: {bars:#?}");
            for (rule, bar) in bars.iter().enumerate() {
                let name = match rule {
                    3 => "shop.collection3",
                    4 => "0 of 4 rules",
                    _ => &format!("shop.collection{rule}"),
                };
                assert!(bar.contains(&name[..name.len().min(columns - 2)]), "{rules} at {columns}: {bars:#?}");
                assert!(bar.chars().count() <= columns, "{rules} at {columns}: {bars:#?}");
            }
        }
        drop(running);
        drop(progress);
        assert_eq!(emulator.lines(), expected);
    }
}

impl RuleProgress<'_> {
    /// Returns the documents that are shown as deleted.
    pub(crate) fn shown(&self) -> u64 {
        self.progress.state.lock().deleted
    }
}

#[tokio::test(start_paused = true)]
async fn a_sample_has_the_speed_what_is_left_and_what_is_waited_for() {
    let last = LastSample::default();
    let progress = Progress::new(Show::Nothing, 2, Some(100)).seen_in(&last);
    let begun = ProgressSample { expected: Some(100), rules: 2, ..ProgressSample::default() };
    assert_eq!(*last.lock(), Some(begun.clone()));
    let (one, two) = (progress.begin("app.c", None), progress.begin("app.d", None));
    one.deleted(20);
    two.waits(Some(("lag", "db2 is 14 s behind")));
    tokio::time::advance(LINE_EVERY).await;
    progress.line();
    let waiting = vec![WaitingRule { namespace: "app.d".into(), reason: "lag" }];
    let time_left = Some(Duration::from_secs(40));
    let sample = ProgressSample { deleted: 20, per_second: 2, time_left, waiting, ..begun };
    assert_eq!(*last.lock(), Some(sample.clone()));
    two.waits(None);
    drop(one);
    tokio::time::advance(LINE_EVERY).await;
    progress.line();
    // Nothing was deleted in the second half.
    let sample = ProgressSample { per_second: 0, rules_ended: 1, time_left: None, waiting: Vec::new(), ..sample };
    assert_eq!(*last.lock(), Some(sample));
    drop(two);
    drop(progress);
    assert_eq!(*last.lock(), None);
}
