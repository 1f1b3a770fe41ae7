//! Lines of progress when stderr is not a terminal.

use std::time::Instant;

use crate::support::faults::{days, fill_many};
use crate::support::sweeper::Case;
use crate::support::terminal::Terminal;
use mongodb::bson::doc;

#[tokio::test]
async fn a_line_every_ten_seconds_says_how_far_each_rule_is() {
    let case = Case::new().await;
    fill_many(&case, "slow", 1200, days(-3)).await;
    fill_many(&case, "fast", 30, days(-3)).await;
    // The slow rule takes twenty seconds or more, so that the last line comes ten seconds after the first delete or later.
    let rules =
        "  - {namespace: DB.slow, field: at, expireAfter: 1d, rate: 60}\n  - {namespace: DB.fast, field: at, expireAfter: 1d}\n";
    let started = Instant::now();
    let auto = async {
        let ran = case.run(rules, &["sweep", "--format", "json"]).await;
        (ran, started.elapsed().as_secs())
    };
    // The same sweeps at the same time without progress.
    let (never, quiet) = (Case::new().await, Case::new().await);
    for case in [&never, &quiet] {
        fill_many(case, "slow", 1200, days(-3)).await;
        fill_many(case, "fast", 30, days(-3)).await;
    }
    let ((auto, seconds), never, quiet) =
        tokio::join!(auto, never.run(rules, &["sweep", "--progress", "never"]), quiet.run(rules, &["sweep", "-q"]));
    for ran in [&auto, &never, &quiet] {
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let lines: Vec<&str> = auto.stderr.lines().filter(|line| line.contains("per second")).collect();
    assert!((1..=seconds / 10).contains(&(lines.len() as u64)), "one each ten seconds of {seconds}: {auto:?}");
    let number = |line: &str, before: &str, after: &str| -> u64 {
        let digits = line.split(after).next().and_then(|text| text.rsplit(before).next()).unwrap_or_default();
        digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number before {after:?}: {line}"))
    };
    let deleted: Vec<u64> = lines.iter().map(|line| number(line, " ", " deleted")).collect();
    assert!(deleted.is_sorted(), "{auto:?}");
    let (line, deleted) = (lines.last().unwrap(), *deleted.last().unwrap());
    let name = case.db.name();
    assert!(line.contains(&format!("1 of 2 rules done; {name}.slow ")), "{line}");
    // The 30 of the other rule, and a part of the slow one's.
    assert!((31..1230).contains(&deleted), "{line}");
    // A slow machine may be below the rate, but none is above it.
    assert!((1..=68).contains(&number(line, " ", " per second")), "{line}");
    assert!(!never.stderr.contains("per second"), "{never:?}");
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[tokio::test]
async fn a_terminal_shows_a_bar_for_each_rule_and_a_total_for_several() {
    let case = Case::new().await;
    let one = "  - {namespace: DB.a, field: at, expireAfter: 1d, rate: 200}\n";
    let two = format!("{one}  - {{namespace: DB.b, field: at, expireAfter: 1d, rate: 200}}\n");
    for (rules, total) in [(one, false), (&two, true)] {
        for name in ["a", "b"] {
            fill_many(&case, name, 300, days(-3)).await;
            let index = doc! { "key": { "at": 1 }, "name": "at_1" };
            case.db.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.unwrap();
        }
        let ran = Terminal::open(&case.command(rules, &["sweep", "--yes"])).end().await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let name = case.db.name();
        assert!(ran.stdout.contains(&format!("{name}.a ")) && ran.stdout.contains("/300 "), "{ran:?}");
        assert!(ran.stdout.contains("/s eta "), "{ran:?}");
        assert_eq!(ran.stdout.contains("1 of 2 rules"), total, "{ran:?}");
        assert_eq!(case.ids("a").await.len(), 0);
    }
}
