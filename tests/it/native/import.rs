//! `sweeper import`: a policy that sweeps what native TTL settings delete, and lists the settings that it leaves out.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::oracle::Oracle;
use crate::support::site::{assert_silent_about, secured};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};
use crate::support::version::version;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

const HOUR: i64 = 3_600_000;

async fn imported(uri: &str, args: &[&str]) -> Ran {
    let mut command = sweeper(&["import", "--uri", uri, "--policy", "/nonexistent/policy.yaml"]);
    command.args(args);
    run(command).await
}

/// Returns the policy without its comments.
fn rules(ran: &Ran) -> String {
    let rules = ran.stdout.split_once("collections:\n").unwrap_or_else(|| panic!("{ran:?}")).1;
    rules.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')).fold(
        String::new(),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    )
}

/// Returns documents of which the server deletes some under each of the settings below.
fn documents() -> Vec<Document> {
    let now = DateTime::now().timestamp_millis();
    let mut documents = Vec::new();
    let words: [Bson; 6] = ["done".into(), "DONE".into(), "open".into(), Bson::Null, vec!["x", "Done"].into(), 5.into()];
    for (n, word) in words.iter().enumerate() {
        for (k, age) in [-HOUR, HOUR / 2, 3 * HOUR, 48 * HOUR].into_iter().enumerate() {
            let (at, other) = (DateTime::from_millis(now - age), DateTime::from_millis(now - 3 * HOUR + age));
            let list: Vec<Bson> = vec!["s".into(), at.into(), DateTime::from_millis(now + HOUR).into()];
            let x: Bson = if k % 2 == 0 { at.into() } else { list.into() };
            documents.push(doc! { "_id": format!("{n} {k}"), "x": x, "y": other, "s": word.clone(), "n": k as i64 });
        }
    }
    let odd: [Bson; 5] = [Bson::Null, 0.into(), "2001-01-01".into(), ObjectId::from_bytes([0; 12]).into(), Bson::Array(vec![])];
    documents.extend(odd.into_iter().enumerate().map(|(n, x)| doc! { "_id": n as i32, "x": x, "s": "done" }));
    let reach = i64::from(i32::MAX) * 1000;
    let old = [now - reach - HOUR, now - reach + HOUR, -2_208_988_800_000, 0].into_iter().enumerate();
    documents.extend(old.map(|(n, at)| doc! { "_id": format!("old {n}"), "x": DateTime::from_millis(at), "s": "DONE" }));
    documents
}

fn dated_ids() -> Vec<Document> {
    let now = DateTime::now().timestamp_millis();
    let dates = [-HOUR, 0, HOUR / 2, 3 * HOUR, 48 * HOUR].map(|age| doc! { "_id": DateTime::from_millis(now - age) });
    dates.into_iter().chain([doc! { "_id": "s" }, doc! { "_id": ObjectId::from_bytes([0; 12]) }]).collect()
}

#[tokio::test]
async fn an_imported_policy_sweeps_what_the_monitor_deletes() {
    let native = Oracle::new("imported").await;
    let copy = Oracle::new("copied").await;
    let weak = doc! { "locale": "en", "strength": 2 };
    let hour = || doc! { "expireAfterSeconds": 3600 };
    let with = |options: Document| hour().into_iter().chain(options).collect::<Document>();
    let partial = || doc! { "partialFilterExpression": { "s": "done" } };
    let folded = || partial().into_iter().chain(doc! { "collation": &weak }).collect::<Document>();
    // Collection, options of the collection, its TTL indexes.
    let cases = [
        ("plain", doc! {}, vec![(doc! { "x": 1 }, hour())]),
        ("double", doc! {}, vec![(doc! { "x": 1 }, doc! { "expireAfterSeconds": 3600.9 })]),
        ("descending", doc! {}, vec![(doc! { "x": -1 }, hour())]),
        ("hidden", doc! {}, vec![(doc! { "x": 1 }, with(doc! { "hidden": true }))]),
        ("largest", doc! {}, vec![(doc! { "x": 1 }, doc! { "expireAfterSeconds": i32::MAX })]),
        ("sparse", doc! {}, vec![(doc! { "x": 1 }, with(doc! { "sparse": true }))]),
        ("partial", doc! {}, vec![(doc! { "x": 1 }, with(partial()))]),
        (
            "typed",
            doc! {},
            vec![(
                doc! { "x": 1 },
                with(doc! { "partialFilterExpression": { "n": { "$gte": 3_i64 }, "s": { "$type": "string" } } }),
            )],
        ),
        ("folded", doc! {}, vec![(doc! { "x": 1 }, with(folded()))]),
        ("default", doc! { "collation": &weak }, vec![(doc! { "x": 1 }, with(partial()))]),
        (
            "simple",
            doc! { "collation": &weak },
            vec![(doc! { "x": 1 }, with(partial().into_iter().chain(doc! { "collation": { "locale": "simple" } }).collect()))],
        ),
        ("two", doc! {}, vec![(doc! { "x": 1 }, with(partial())), (doc! { "y": 1 }, doc! { "expireAfterSeconds": 7200 })]),
        (
            "same field",
            doc! {},
            vec![(doc! { "x": 1 }, with(partial())), (doc! { "x": -1 }, doc! { "expireAfterSeconds": 86400 })],
        ),
    ];
    for (name, options, indexes) in &cases {
        for oracle in [&native, &copy] {
            let mut create = doc! { "create": name };
            create.extend(options.clone());
            oracle.command(create).await;
        }
        for (n, (key, options)) in indexes.iter().enumerate() {
            let mut index = doc! { "name": format!("i{n}"), "key": key };
            index.extend(options.clone());
            native.command(doc! { "createIndexes": name, "indexes": [index] }).await;
        }
    }
    let clustered = doc! { "create": "clustered", "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
    copy.command(clustered.clone()).await;
    native.command(clustered.into_iter().chain(doc! { "expireAfterSeconds": 3600_i64 }).collect()).await;
    let (documents, dated) = (documents(), dated_ids());
    let kept: BTreeSet<&str> = cases.iter().map(|case| case.0).collect();

    let ran = imported(&native.uri(), &["--only", "imported.*"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy.yaml");
    // Most documents have expired, and the policy would refuse to delete more than half of a collection.
    let text = ran.stdout.replace("imported.", "copied.").replace("maxDeletePercent: 50 ", "maxDeletePercent: 100 ");
    std::fs::write(&policy, text).unwrap();
    for args in [&["check"][..], &["check", "--connect"], &["sweep", "--format", "json"]] {
        if args[0] == "sweep" {
            for oracle in [&native, &copy] {
                for name in &kept {
                    oracle.fill(name, &documents).await;
                }
                oracle.fill("clustered", &dated).await;
            }
            native.let_the_monitor_pass().await;
        }
        let mut command = sweeper(args);
        command.arg("--policy").arg(&policy).env("MONGODB_URI", native.uri());
        let ran = run(command).await;
        assert_eq!(ran.code, Some(0), "{args:?} {ran:?}");
    }
    for name in kept.iter().copied().chain(["clustered"]) {
        let (by_monitor, by_sweep) = (native.ids(name).await, copy.ids(name).await);
        assert_eq!(by_sweep, by_monitor, "{name}");
        let all = if name == "clustered" { dated.len() } else { documents.len() };
        assert!((1..all).contains(&by_sweep.len()), "{name}: some documents are deleted, and some stay: {by_sweep:?}");
    }
    let left = copy.ids("largest").await;
    let all = id_set(documents.iter().map(|document| document.get("_id").unwrap().clone()));
    assert_eq!(&all - &left, id_set(["old 0", "old 2"]), "dates more than 68 years old");
    assert_eq!(copy.ids("folded").await.len(), copy.ids("default").await.len());
    assert!(copy.ids("partial").await.len() > copy.ids("folded").await.len());
}

#[tokio::test]
async fn the_policy_says_where_each_rule_comes_from_and_what_was_left_out() {
    let case = Case::new().await;
    let server = version(&case.db).await;
    let name = case.db.name().to_owned();
    let series = |name: &str| doc! { "create": name, "timeseries": { "timeField": "t", "metaField": "m" } };
    case.db.run_command(series("direct")).await.expect("a time-series collection");
    let index = |key: Document, name: &str, options: Document| {
        let mut index = doc! { "key": key, "name": name };
        index.extend(options);
        index
    };
    let ttl = |value: Bson| doc! { "expireAfterSeconds": value };
    for (collection, index) in [
        ("a", index(doc! { "at": 1 }, "a\u{2028}# -\n x", ttl(1.9.into()).into_iter().chain(doc! { "hidden": true }).collect())),
        ("b", index(doc! { "meta.at": -1 }, "first", ttl(60.into()))),
        ("b", index(doc! { "gone": 1 }, "second", ttl(0.into()))),
        ("hashed", index(doc! { "at": "hashed" }, "h", ttl(60.into()))),
        ("inactive", index(doc! { "at": 1 }, "i", ttl(i32::MAX.into()))),
        ("nan", index(doc! { "at": 1 }, "n", ttl(f64::NAN.into()))),
        ("none", index(doc! { "at": 1 }, "n", doc! {})),
        ("st*r", index(doc! { "at": 1 }, "s", ttl(60.into()))),
        ("system.buckets.direct", index(doc! { "control.max.t": -1 }, "max", ttl(70.into()))),
        ("system.buckets.direct", index(doc! { "control.min.t": 1 }, "min", ttl(80.into()))),
        ("system.buckets.direct", index(doc! { "meta.at": 1 }, "meta", ttl(80.into()))),
    ] {
        let made = case.db.run_command(doc! { "createIndexes": collection, "indexes": [index] }).await;
        if collection == "nan" && server.major >= 7 {
            made.expect_err("from 7.0 on NaN is refused");
            continue;
        }
        made.unwrap_or_else(|cause| panic!("{collection}: {cause}"));
    }
    let mut series = series("series");
    series.insert("expireAfterSeconds", 90_i64);
    case.db.run_command(series).await.expect("a time-series collection");
    case.db.run_command(doc! { "create": "view", "viewOn": "a", "pipeline": [] }).await.expect("a view");

    let ran = imported(&case.uri, &["--only", &format!("{name}.*")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // mongod 6.0 takes NaN and shows the largest value in its place.
    let largest: String = ["inactive", "nan"]
        .iter()
        .filter(|kind| **kind != "nan" || server.major < 7)
        .map(|kind| format!("- namespace: {name}.{kind}\n    field: at\n    expireAfterSeconds: 2147483647\n  "))
        .collect();
    let expected = format!(
        "  - namespace: {name}.a\n    field: at\n    expireAfterSeconds: 1\n  \
           - name: \"{name}.b first\"\n    namespace: {name}.b\n    field: meta.at\n    expireAfterSeconds: 60\n  \
           - name: \"{name}.b second\"\n    namespace: {name}.b\n    field: gone\n    expireAfterSeconds: 0\n  \
           - name: \"{name}.direct max\"\n    namespace: {name}.direct\n    field: t\n    expireAfterSeconds: 70\n  \
           - name: \"{name}.direct min\"\n    namespace: {name}.direct\n    field: t\n    expireAfterSeconds: 80\n  \
           {largest}- namespace: {name}.series\n    field: t\n    expireAfterSeconds: 90\n"
    );
    assert_eq!(rules(&ran), expected, "{}", ran.stdout);
    let comments: Vec<&str> = ran.stdout.lines().map(str::trim).filter(|line| line.starts_with('#')).collect();
    let host = case.uri.split('?').next().unwrap().trim_end_matches('/');
    assert!(comments[0].ends_with(&format!("from {host}: MongoDB {}.", server.text)), "{}", comments[0]);
    let whole_buckets = "time-series collection; the server keeps a bucket for another bucketMaxSpanSeconds (3600 s), \
         sweeper until its last measurement has expired, which can be earlier";
    let of_buckets = |index: &str| {
        format!(
            "# Careful: {name}.direct: the index \"{index}\" is of the buckets themselves, which `sweeper native` cannot set: its diff calls \
             the index extra and the rule missing"
        )
    };
    let mut expected = vec![
        r##"# TTL index "a\U00002028# -\n x", hidden: the server deletes by it all the same"##.to_owned(),
        "# TTL index \"first\"".into(),
        "# TTL index \"second\"".into(),
        format!("# TTL index \"max\" of a {whole_buckets}"),
        of_buckets("max"),
        format!("# TTL index \"min\" of a {whole_buckets}"),
        of_buckets("min"),
        "# TTL index \"i\"; 2147483647 s are 68 years: the server deletes dates up to …".into(),
        "# TTL index \"n\"; 2147483647 s are 68 years: the server deletes dates up to …".into(),
        format!("# {whole_buckets}"),
        "# Left out:".into(),
        format!("# - {name}.direct, index \"meta\": sweeper sweeps a time-series collection only by its timeField `t`"),
        format!("# - {name}.hashed, index \"h\": the server never deletes by an index of this kind (at: hashed)"),
        format!("# - \"{name}.st*r\", index \"s\": a `*` in its name would stand for other collections as well"),
    ];
    expected.retain(|line| server.major < 7 || !line.contains("\"n\""));
    // The instant is 68 years before the import.
    assert!(comments[5].starts_with("# Careful: the server's TTL monitor is switched off"), "{}", comments[5]);
    let said: Vec<String> = comments[6..]
        .iter()
        .map(|line| line.split_once(" up to 19").map_or_else(|| (*line).to_owned(), |(head, _)| format!("{head} up to …")))
        .collect();
    assert_eq!(said, expected);
    for kind in ["hashed", "st*r"] {
        assert!(ran.stderr.contains(&format!("{name}.{kind}")), "{kind}: {}", ran.stderr);
    }

    let file = case.dir.path().join("imported.yaml");
    let to_file = imported(&case.uri, &["--only", &format!("{name}.b"), "-o", file.to_str().unwrap()]).await;
    assert_eq!((to_file.code, to_file.stdout.as_str()), (Some(0), ""), "{to_file:?}");
    assert_eq!(checked(&file).await, 2);

    // A file that is there stays, unless it is meant to go.
    std::fs::write(&file, "mine").unwrap();
    let args = |more: &[&'static str]| {
        let only = format!("{name}.b");
        let mut command = sweeper(&["import", "--uri", &case.uri, "--only", &only, "-o", file.to_str().unwrap()]);
        command.args(more);
        command
    };
    let refused = run(args(&[])).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("it already exists; nothing was written\nhint: --force replaces it"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let forced = run(args(&["--force"])).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(checked(&file).await, 2);
    let advice = run(sweeper(&["check", "--uri", "mongodb://localhost", "--policy", file.to_str().unwrap()])).await;
    assert!(!advice.stdout.contains("maxDeletePercent"), "the policy has a limit: {advice:?}");
}

/// Returns the number of rules that `check` finds in a policy.
async fn checked(policy: &Path) -> u64 {
    let mut command = sweeper(&["check", "--format", "json", "--uri", "mongodb://localhost", "--policy"]);
    command.arg(policy);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a report");
    json["totals"]["rules"].as_u64().expect("a number")
}

#[tokio::test]
async fn without_anything_to_import_or_to_connect_to_nothing_is_written() {
    let case = Case::new().await;
    case.fill("c", [doc! { "_id": 1 }]).await;
    let file = case.dir.path().join("policy.yaml");
    let only = format!("{}.*", case.db.name());
    let none = imported(&case.uri, &["--only", &only, "-o", file.to_str().unwrap()]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""), "{none:?}");
    assert!(none.stderr.contains("no TTL setting in 1 collection; nothing was written"), "{none:?}");
    assert!(!file.exists());
    let nowhere = run(sweeper(&["import", "--policy", "/nonexistent/policy.yaml"])).await;
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (Some(2), ""), "{nowhere:?}");
    assert!(nowhere.stderr.contains("hint: pass --uri or set MONGODB_URI"), "{nowhere:?}");
    let format = imported(&case.uri, &["--format", "json"]).await;
    assert_eq!((format.code, format.stdout.as_str()), (Some(2), ""), "{format:?}");
}

#[tokio::test]
async fn a_user_imports_what_it_may_see_and_no_password_is_shown() {
    let server = secured();
    for database in ["seen", "unseen"] {
        let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 60 };
        let db = server.root().await.database(database);
        db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.expect("an index");
    }
    let roles = vec![doc! { "role": "read", "db": "seen" }];
    server.admin(doc! { "createUser": "importer", "pwd": "Sesame", "roles": roles }).await;
    let ran = imported(&server.uri("importer", "Sesame"), &["-vv"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(rules(&ran), "  - namespace: seen.c\n    field: at\n    expireAfterSeconds: 60\n");
    let version = version(&server.root().await.database("admin")).await.text;
    assert!(ran.stdout.contains(&format!("from mongodb://<redacted>@{}: MongoDB {version}.", server.host())), "{ran:?}");
    assert_silent_about(&ran, &["Sesame", "importer"]);
}
