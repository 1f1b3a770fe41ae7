//! Lines of progress when stderr is not a terminal.

use crate::support::faults::{days, fill_many};
use crate::support::sweeper::Case;
use crate::support::terminal::Terminal;
use mongodb::bson::doc;

#[tokio::test]
async fn a_line_every_ten_seconds_says_how_far_each_rule_is() {
    let case = Case::new().await;
    fill_many(&case, "slow", 1200, days(-3)).await;
    fill_many(&case, "fast", 30, days(-3)).await;
    let rules =
        "  - {namespace: DB.slow, field: at, expireAfter: 1d, rate: 100}\n  - {namespace: DB.fast, field: at, expireAfter: 1d}\n";
    let auto = case.run(rules, &["sweep", "--format", "json"]);
    // The same sweeps at the same time without progress.
    let (never, quiet) = (Case::new().await, Case::new().await);
    for case in [&never, &quiet] {
        fill_many(case, "slow", 1200, days(-3)).await;
        fill_many(case, "fast", 30, days(-3)).await;
    }
    let (auto, never, quiet) =
        tokio::join!(auto, never.run(rules, &["sweep", "--progress", "never"]), quiet.run(rules, &["sweep", "-q"]));
    for ran in [&auto, &never, &quiet] {
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let lines: Vec<&str> = auto.stderr.lines().filter(|line| line.contains("per second")).collect();
    assert_eq!(lines.len(), 1, "a run of twelve seconds has one: {auto:?}");
    let name = case.db.name();
    let line = lines[0];
    assert!(line.contains(&format!("1 of 2 rules done; {name}.slow ")), "{line}");
    let documents = |before: &str, after: &str| -> u64 {
        let digits = line.split(after).next().and_then(|text| text.rsplit(before).next()).unwrap_or_default();
        digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number before {after:?}: {line}"))
    };
    // At 100 documents per second, and the 30 of the other rule.
    assert!((700..=1130).contains(&documents(" ", " deleted")), "{line}");
    assert!((70..=113).contains(&documents(" ", " per second")), "{line}");
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
