//! Windows: nothing is deleted outside of them, and a run that reaches the end of its window stops with exact counts.

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, id_set};
use chrono::{DateTime, TimeDelta, Utc};

/// Returns a window in UTC, with start and end in seconds from now.
fn window(from: i64, to: i64) -> String {
    zoned(from, to, "UTC", Utc::now())
}

fn zoned(from: i64, to: i64, timezone: &str, now: DateTime<Utc>) -> String {
    let time = |seconds| (now + TimeDelta::seconds(seconds)).format("%H:%M:%S");
    format!("{{start: '{}', end: '{}', timezone: {timezone}}}", time(from), time(to))
}

async fn filled(names: &[&str]) -> Case {
    let case = Case::new().await;
    for name in names {
        case.fill(name, dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    }
    case
}

#[tokio::test]
async fn nothing_goes_outside_of_the_window_and_another_rule_is_swept_in_its_own() {
    let case = filled(&["shut", "open", "never"]).await;
    let rules = format!(
        "  - {{namespace: DB.shut, field: at, expireAfter: 1d}}
  - {{namespace: DB.open, field: at, expireAfter: 1d, window: {}}}
defaults: {{window: {}}}\n",
        // Over midnight at some hour of the day.
        window(-3600, 72_000),
        window(3600, 7200),
    );
    let dry = case.report(&rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "status")), (&100.into(), &"complete".into()));
    assert!(dry.rule(0, "warnings")[0].as_str().unwrap().contains("it is not that time now"), "{dry:?}");
    assert!(dry.rule(1, "warnings").as_array().unwrap().is_empty(), "{dry:?}");

    let swept = case.report(&rules, &[]).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    assert_eq!((swept.rule(0, "status"), swept.rule(0, "reason")), (&"partial".into(), &"window".into()));
    assert_eq!((swept.rule(0, "deletedCount"), swept.rule(0, "batches")), (&0.into(), &0.into()));
    assert_eq!(swept.rule(1, "status"), "complete");
    assert_eq!(case.ids("shut").await, id_set(0..103));
    assert_eq!(case.ids("open").await, id_set(100..103));
}

#[tokio::test]
async fn the_time_zone_decides() {
    let case = filled(&["c"]).await;
    // By POSIX convention Etc/GMT-5 is five hours ahead of UTC, so a window around the UTC time in five hours is open there now.
    let there = Utc::now() + TimeDelta::hours(5);
    for (now, code, left) in [(Utc::now(), 4, id_set(0..103)), (there, 0, id_set(100..103))] {
        let rule =
            format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, window: {}}}\n", zoned(-3600, 3600, "Etc/GMT-5", now));
        let swept = case.report(&rule, &[]).await;
        assert_eq!(swept.ran.code, Some(code), "{swept:?}");
        assert_eq!(case.ids("c").await, left);
    }
}

#[tokio::test]
async fn one_of_several_windows_is_enough_on_its_days() {
    let now = Utc::now();
    let day = |days: i64| (now + TimeDelta::days(days)).format("%a").to_string().to_lowercase();
    // The windows go over midnight at some hour of the day, so that they belong to today or to yesterday.
    let both = format!("days: [{}, {}]", day(0), day(-1));
    let (open, shut) = (window(-3600, 3600), window(7200, 10_800));
    let on = |window: &str, days: &str| window.replace('}', &format!(", {days}}}"));
    let other = format!("days: [{}, {}]", day(2), day(3));
    for (windows, code) in [
        (format!("[{shut}, {open}]"), 0),
        (format!("[{shut}, {}]", on(&open, &both)), 0),
        (format!("[{}, {shut}]", on(&open, &other)), 4),
        (on(&open, &both), 0),
        (on(&open, &other), 4),
        (format!("[{shut}]"), 4),
    ] {
        let case = filled(&["c"]).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, window: {windows}}}\n");
        let swept = case.report(&rule, &[]).await;
        assert_eq!(swept.ran.code, Some(code), "{windows}: {swept:?}");
        assert_eq!(case.ids("c").await, if code == 0 { id_set(100..103) } else { id_set(0..103) }, "{windows}");
    }
}

#[tokio::test]
async fn a_window_that_closes_during_the_run_ends_it_as_partial() {
    let case = filled(&["c"]).await;
    let rule =
        |window: &str, more: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, window: {window}{more}}}\n");
    // At this rate the whole sweep would take more than half a minute.
    let swept = case.report(&rule(&window(-3600, 4), ", rate: 3"), &[]).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    assert_eq!((swept.rule(0, "status"), swept.rule(0, "reason")), (&"partial".into(), &"window".into()));
    let gone = 103 - case.ids("c").await.len();
    assert!((1..100).contains(&gone));
    assert_eq!(swept.rule(0, "deletedCount"), gone);
    assert!(swept.rule(0, "pausedMs")["rate"].as_u64().unwrap() > 0, "{swept:?}");
    assert!(case.ids("c").await.is_superset(&id_set(100..103)));

    let rerun = case.report(&rule(&window(-3600, 3600), ""), &[]).await;
    assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
}
