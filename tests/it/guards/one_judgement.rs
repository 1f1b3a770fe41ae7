//! Every way to run names the same rules as refused, and the same guard: dry run, question, `--yes`, `--plan`, audit, check.

use crate::support::faults::{alone, dated, days, end, fail_commands, heal, signal, start, until_deleted_from};
use crate::support::sweeper::{Case, Report, id_set};
use crate::support::terminal::Terminal;
use mongodb::IndexModel;
use mongodb::bson::doc;
use serde_json::Value;

const LOOKS: [&[&str]; 3] = [&["check", "--connect"], &["sweep", "--dry-run"], &["audit"]];

/// Runs a command and reads its JSON report.
async fn report(case: &Case, rules: &str, args: &[&str]) -> Report {
    let ran = case.run(rules, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Returns status and reason of each rule.
fn verdicts(report: &Report) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    report.json["rules"].as_array().unwrap().iter().map(|rule| (text(&rule["status"]), text(&rule["reason"]))).collect()
}

fn pairs<const N: usize>(verdicts: [(&str, &str); N]) -> Vec<(String, String)> {
    verdicts.map(|(status, reason)| (status.to_owned(), reason.to_owned())).into()
}

/// The namespace whose documents show that the name is right is refused by another guard.
#[tokio::test]
async fn a_name_that_a_refused_namespace_shows_to_be_right_is_right_for_every_way_to_run() {
    let rules = "  - {namespace: 'DB.jobs_*', field: at, expireAfter: 1d, hint: ix, filter: {legalHold: {$ne: true}}}\n";
    let expected = pairs([("refused", "hint"), ("complete", "")]);
    let case = Case::new().await;
    case.fill("jobs_a", (0..3).map(|id| doc! { "_id": id, "at": days(-3), "legalHold": id == 1 })).await;
    let options = mongodb::options::IndexOptions::builder().name("ix".to_owned()).build();
    case.collection("jobs_b").create_index(IndexModel::builder().keys(doc! { "at": 1 }).options(options).build()).await.unwrap();
    let refill = || async {
        assert_eq!((case.ids("jobs_a").await, case.ids("jobs_b").await), (id_set(0..3), id_set::<i32>([])));
        case.fill("jobs_b", dated(0..4, days(-3))).await;
    };
    case.fill("jobs_b", dated(0..4, days(-3))).await;
    for args in LOOKS {
        assert_eq!(verdicts(&report(&case, rules, args).await), expected, "{args:?}");
    }
    let plan = case.dir.path().join("audit.json");
    let plan = plan.to_str().unwrap();
    assert_eq!(case.run(rules, &["audit", "-o", plan]).await.code, Some(0));

    let swept = report(&case, rules, &["sweep", "--yes"]).await;
    assert_eq!((swept.ran.code, verdicts(&swept)), (Some(5), expected.clone()), "{swept:?}");
    refill().await;
    let planned = report(&case, rules, &["sweep", "--yes", "--plan", plan]).await;
    assert_eq!(verdicts(&planned), pairs([("refused", "plan"), ("complete", "")]), "{planned:?}");
    refill().await;
    let asked = Terminal::open(&case.command(rules, &["sweep"])).until_asked().await.types("yes\n").end().await;
    assert_eq!(asked.code, Some(5), "{asked:?}");
    refill().await;
}

/// So does one whose lease another run holds.
#[tokio::test]
async fn a_name_that_a_leased_namespace_shows_to_be_right_is_right() {
    let rules = "  - {namespace: 'DB.jobs_*', field: at, expireAfter: 1d, filter: {legalHold: {$ne: true}}}\nlock: {collection: DB.locks}\n";
    let case = Case::new().await;
    case.fill("jobs_a", (0..100).map(|id| doc! { "_id": id, "at": days(-3), "legalHold": id == 1 })).await;
    case.fill("jobs_b", dated(0..4, days(-3))).await;
    let holder = start(case.command(rules, &["sweep", "--rate", "1", "--only", "*.jobs_a"]));
    until_deleted_from(&case, "jobs_a", 100).await;
    let swept = report(&case, rules, &["sweep"]).await;
    assert_eq!(verdicts(&swept), pairs([("refused", "lock"), ("complete", "")]), "{swept:?}");
    assert_eq!((swept.ran.code, swept.rule(1, "deletedCount")), (Some(6), &4.into()), "{swept:?}");
    signal(&holder, "TERM");
    end(holder).await;
}

#[tokio::test]
async fn a_rule_whose_field_went_with_the_documents_is_refused_by_every_way_to_run_and_may_be_allowed() {
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {legalHold: {$ne: true}}}\n";
    let case = Case::new().await;
    let old = (0..3).map(|id| doc! { "_id": id, "at": days(-3), "legalHold": false });
    case.fill("c", old.chain(dated(3..5, days(3)))).await;
    let first = report(&case, rule, &["sweep"]).await;
    assert_eq!((first.ran.code, first.rule(0, "deletedCount")), (Some(0), &3.into()), "{first:?}");
    for args in [&LOOKS[..], &[&["sweep"]]].concat() {
        let again = report(&case, rule, args).await;
        assert_eq!(verdicts(&again), pairs([("refused", "unknownField")]), "{args:?}: {again:?}");
    }
    let allowed = rule.replace("field: at", "field: at, allowUnknownFields: [legalHold]");
    let quiet = case.run(&allowed, &["sweep", "-q"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "", ""), "cron has nothing to mail");
    assert_eq!(case.ids("c").await, id_set(3..5));
}

#[tokio::test]
async fn of_two_guards_that_refuse_every_way_to_run_names_the_same() {
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 1, filter: {legalHold: {$ne: true}}, \
                holds: {collection: DB.none, key: tenant}}\n";
    let case = Case::new().await;
    case.fill("c", (0..5).map(|id| doc! { "_id": id, "at": days(-3), "tenant": id })).await;
    for args in [&LOOKS[..], &[&["sweep"]]].concat() {
        let refused = report(&case, rule, args).await;
        assert_eq!(verdicts(&refused), pairs([("refused", "unknownField")]), "{args:?}: {refused:?}");
    }
    let allowed = rule.replace("maxDeletePercent", "allowUnknownFields: [legalHold], maxDeletePercent");
    for args in [&LOOKS[..], &[&["sweep"]]].concat() {
        let refused = report(&case, &allowed, args).await;
        assert_eq!(verdicts(&refused), pairs([("refused", "holds")]), "{args:?}: {refused:?}");
    }
    assert_eq!(case.ids("c").await, id_set(0..5));
}

/// Nothing of it has to be counted, and a sweep would not look either.
#[tokio::test]
async fn a_check_refuses_a_rule_that_is_refused_although_a_look_at_it_fails() {
    let rules = "  - {name: a, namespace: DB.c, field: at, expireAfter: 1d, hint: nope, filter: {legalHold: {$ne: true}}}
  - {name: b, namespace: DB.c, field: at, expireAfter: 1d, filter: {legalHold: {$ne: true}}}\n";
    let (_mongod, case) = alone().await;
    case.fill("c", (0..3).map(|id| doc! { "_id": id, "at": days(-3), "legalHold": id == 1 })).await;
    fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["aggregate"], "namespace": "t.c", "errorCode": 2 }).await;
    let checked = report(&case, rules, LOOKS[0]).await;
    heal(&case.client).await;
    assert_eq!(verdicts(&checked), pairs([("refused", "hint"), ("failed", "")]), "{checked:?}");
    let warnings = checked.rule(0, "warnings").to_string();
    assert!(warnings.contains("looking for the fields that the policy names: "), "{checked:?}");
    // A refused rule is looked at as any other.
    let healed = report(&case, &rules.replace("field: at", "field: att"), LOOKS[0]).await;
    let warnings = healed.rule(0, "warnings").to_string();
    assert!(warnings.contains("no document found has `att` (`field`)"), "{healed:?}");
}
