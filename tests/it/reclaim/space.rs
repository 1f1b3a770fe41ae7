//! A set of three, most of whose documents are gone: what each member says that it gives back, and gives back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::emptied::{RULE, emptied, files, read};
use crate::support::sweeper::ids;

/// Returns a value of each row, by the name of its member.
fn of<'a>(report: &'a Value, key: &str) -> Vec<&'a Value> {
    report["rows"].as_array().unwrap().iter().map(|row| &row[key]).collect()
}

#[tokio::test]
async fn each_member_gives_back_what_the_dry_run_says_and_the_primary_only_when_it_is_told_to() {
    let emptied = emptied().await;
    let before = emptied.files().await;
    let documents = ids(&emptied.c).await;
    let dry = read(emptied.run(&["--dry-run"]).await);
    assert_eq!((&dry["exitCode"], &dry["dryRun"]), (&json!(0), &json!(true)), "{dry:#}");
    assert_eq!(of(&dry, "status"), ["planned", "planned", "skipped"], "{dry:#}");
    assert_eq!(of(&dry, "role"), ["secondary", "secondary", "primary"], "{dry:#}");
    let members: BTreeSet<&str> = of(&dry, "member").into_iter().filter_map(Value::as_str).collect();
    assert_eq!(members.len(), 3, "{dry:#}");
    assert_eq!(emptied.files().await, before, "a dry run changes nothing");

    let reclaimed = read(emptied.run(&[]).await);
    assert_eq!(of(&reclaimed, "status"), ["done", "done", "skipped"], "{reclaimed:#}");
    for (row, said) in reclaimed["rows"].as_array().unwrap().iter().zip(of(&dry, "reclaimableBytes")).take(2) {
        let (freed, said) = (row["freedBytes"].as_u64().unwrap(), said.as_u64().unwrap());
        assert!(said > 20_000_000 && freed.abs_diff(said) <= said / 10, "{freed} of {said}");
    }
    let after = emptied.files().await;
    let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
    assert_eq!(changed, [false, true, true], "the first member is the primary");

    let primary = read(emptied.run(&["--primary"]).await);
    assert_eq!(of(&primary, "status"), ["nothing", "nothing", "done"], "{primary:#}");
    assert!(files(&emptied.set.members[0]).await < before[0] / 2);
    assert_eq!(ids(&emptied.c).await, documents);

    let table = emptied.site.run(&emptied.set.uri(), RULE, &["reclaim", "--primary"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.lines().next().unwrap().starts_with("member"), "{table:?}");
    assert!(table.stdout.contains("gave back 0 B"), "{table:?}");
}
