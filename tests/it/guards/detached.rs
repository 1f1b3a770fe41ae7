//! A member of a replica set that runs without its set, and a shard that is connected to directly: nothing is written there, and
//! every command says why.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use crate::support::archives::{archive, directory, restore};
use crate::support::faults::{dated, days};
use crate::support::mongod::Mongod;
use crate::support::native::{command, index, indexes, native, ttl};
use crate::support::proxy::{Proxy, Service};
use crate::support::replica_set::ReplicaSet;
use crate::support::site::Site;
use crate::support::sweeper::{Case, Report, id_set, run, sweeper};
use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 90}\n";
const MEMBER: &str = "this member of a replica set runs without its set";
const SHARD: &str = "this is a shard of a sharded cluster, connected to directly";

/// The TTL monitor begins no pass within a test.
const RARELY: [&str; 2] = ["--setParameter", "ttlMonitorSleepSecs=86400"];

/// Starts the only member of a set, and fills `c`: of ten documents seven have expired.
async fn set(extra: &'static [&'static str]) -> (ReplicaSet, Case) {
    let args = [extra, &RARELY].concat();
    let set = tokio::task::spawn_blocking(move || ReplicaSet::start(1, &args)).await.unwrap();
    let case = Case::at(&set.members[0].uri(), set.members[0].client().await, "t");
    fill(&case).await;
    (set, case)
}

async fn fill(case: &Case) {
    case.fill("c", dated(0..7, days(-3)).chain(dated(7..10, days(3)))).await;
    index(&case.db, "c", doc! { "at": 1 }, "at_1", ttl(3600)).await;
}

/// Ends a server as a person does, and starts it with the same data and other options. A member that is killed has lost what its
/// oplog would bring back.
async fn restart(mongod: &mut Mongod, extra: &[&str]) {
    // The server closes the connection instead of an answer.
    let _ = mongod.client().await.database("admin").run_command(doc! { "shutdown": 1, "force": true, "timeoutSecs": 0 }).await;
    mongod.child.wait().expect("the server ends");
    mongod.extra = extra.iter().chain(&RARELY).map(|arg| (*arg).to_owned()).collect();
    mongod.restart();
}

/// Switches the TTL monitor on, which the harness starts servers without.
async fn switch_on(mongod: &Mongod) {
    let admin = mongod.client().await.database("admin");
    command(&admin, doc! { "setParameter": 1, "ttlMonitorEnabled": true }).await;
}

/// Makes a server a shard, as `addShard` does.
async fn make_shard(client: &Client) {
    let identity = doc! {
        "_id": "shardIdentity", "shardName": "shard0", "clusterId": ObjectId::new(), "configsvrConnectionString": "configs/127.0.0.1:1",
    };
    client.database("admin").collection("system.version").insert_one(identity).await.expect("an identity");
}

/// Runs every command that says what a sweep would do, and the sweep: the guard refuses all rules, and nothing goes.
async fn assert_refused(case: &Case, why: &str) {
    for (args, code) in [(&["check", "--connect"][..], 5), (&["audit"], 0), (&["sweep", "--dry-run"], 0), (&["sweep"], 5)] {
        let ran = case.run(RULES, &[args, &["--format", "json"]].concat()).await;
        let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
        let report = Report { json, ran };
        assert_eq!(report.ran.code, Some(code), "{args:?}: {report:?}");
        assert_eq!((report.rule(0, "status"), report.rule(0, "reason")), (&"refused".into(), &"detached".into()), "{report:?}");
        assert!(report.rule(0, "error").as_str().is_some_and(|error| error.starts_with(why)), "{report:?}");
        assert_eq!(report.rule(0, "deletedCount"), 0, "{report:?}");
        if matches!(args, ["audit"] | ["sweep", "--dry-run"]) {
            assert_eq!(report.rule(0, "expiredCount"), 7, "{report:?}");
        }
    }
    let quiet = case.run(RULES, &["sweep", "-q"]).await;
    assert!(quiet.code == Some(5) && quiet.stderr.contains(why), "{quiet:?}");
    let namespace = case.collection("c").namespace().to_string();
    let mut command = sweeper(&["why", "--uri", &case.uri, &namespace, "0", "--policy"]);
    command.arg(case.policy(RULES));
    let explained = run(command).await;
    let kept = format!("but the rule deletes nothing: refused (detached): {why}");
    assert!(explained.code == Some(0) && explained.stdout.contains(&kept), "{explained:?}");
    assert_eq!(case.ids("c").await, id_set(0..10));
}

#[tokio::test]
async fn a_member_that_runs_without_its_set_is_swept_only_once_it_is_back() {
    let (mut set, case) = set(&[]).await;
    restart(&mut set.members[0], &[]).await;
    switch_on(&set.members[0]).await;
    assert_refused(&case, MEMBER).await;
    // Its monitor does not run, so that no TTL index deletes next to the rule.
    for args in [&["--dry-run"][..], &[]] {
        let report = case.report(RULES, args).await;
        let warnings = report.rule(0, "warnings").to_string();
        let idle =
            "the TTL index `at_1` (expireAfterSeconds 3600) deletes nothing: this member of a replica set runs as a standalone";
        assert!(warnings.contains(idle) && !warnings.contains("as well"), "{report:?}");
    }
    restart(&mut set.members[0], &["--replSet", "rs0"]).await;
    until_primary(&case.client).await;
    switch_on(&set.members[0]).await;
    let report = case.report(RULES, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &7.into()), "{report:?}");
    assert!(report.rule(0, "warnings").to_string().contains("deletes from this collection as well"), "{report:?}");
    assert_eq!(case.ids("c").await, id_set(7..10));
}

async fn until_primary(client: &Client) {
    let admin = client.database("admin");
    for _ in 0..600 {
        let hello = admin.run_command(doc! { "hello": 1 }).await.unwrap_or_default();
        if hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("no primary in a minute");
}

/// Returns the collections of a database, each with the number of its documents.
async fn content(case: &Case) -> BTreeSet<(String, u64)> {
    let mut content = BTreeSet::new();
    for name in case.db.list_collection_names().await.unwrap() {
        let documents = case.collection(&name).count_documents(doc! {}).await.unwrap();
        content.insert((name, documents));
    }
    content
}

#[tokio::test]
async fn nothing_at_all_is_written_to_a_detached_member() {
    let (mut set, case) = set(&[]).await;
    let archiving = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, filter: {{_id: 0}}, archive: {{directory: {}}}}}\n",
        directory(&case).display()
    );
    assert_eq!(case.report(&archiving, &[]).await.rule(0, "deletedCount"), 1);
    let archived = archive(&directory(&case));
    restart(&mut set.members[0], &[]).await;
    let before = (content(&case).await, indexes(&case.db, "c").await);

    let recorded = format!("{RULES}history: {{collection: DB.runs}}\nlock: {{collection: DB.locks}}\n");
    let swept = case.report(&recorded, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "reason")), (Some(5), &"detached".into()), "{swept:?}");
    assert!(swept.ran.stderr.contains("it is not recorded there"), "{swept:?}");
    for args in [&["apply", "--yes"][..], &["apply", "--dry-run"]] {
        let (applied, rows) = native(&case, RULES, args).await;
        let change = &rows["rows"][0]["change"];
        assert_eq!((&change["status"], &change["expiredCount"]), (&"refused".into(), &6.into()), "{rows:#}");
        assert!(change["error"].as_str().unwrap().starts_with(MEMBER), "{rows:#}");
        assert_eq!(applied.code, Some(if args[1] == "--yes" { 5 } else { 0 }), "{applied:?}");
    }
    for args in [&[][..], &["--replace"], &["--dry-run"]] {
        let restored = restore(&case, &archived, args).await;
        assert_eq!(restored.code, Some(5), "{restored:?}");
        assert!(restored.stderr.contains(MEMBER) && restored.stderr.contains("; nothing was inserted"), "{restored:?}");
    }
    assert_eq!((content(&case).await, indexes(&case.db, "c").await), before);
    // Looking is no harm.
    let (diff, rows) = native(&case, RULES, &["diff"]).await;
    assert_eq!((diff.code, &rows["rows"][0]["state"]), (Some(5), &"differs".into()), "{diff:?}");
}

#[tokio::test]
async fn a_shard_is_known_by_its_replies_and_by_its_identity() {
    let (mut set, case) = set(&["--shardsvr"]).await;
    let shard = &mut set.members[0];
    switch_on(shard).await;
    let before = case.report(RULES, &["--dry-run"]).await;
    assert_eq!((before.rule(0, "status"), before.rule(0, "expiredCount")), (&"complete".into(), &7.into()), "{before:?}");
    make_shard(&case.client).await;
    assert_refused(&case, SHARD).await;
    // The monitor of a shard deletes all the same.
    let dry = case.report(RULES, &["--dry-run"]).await;
    assert!(dry.rule(0, "warnings").to_string().contains("deletes from this collection as well"), "{dry:?}");
    // Started as a mere set, it has nothing but its identity to tell.
    restart(shard, &["--replSet", "rs0"]).await;
    until_primary(&case.client).await;
    assert_refused(&case, SHARD).await;
}

#[tokio::test]
async fn a_standalone_with_the_identity_of_a_shard_is_refused_and_its_router_is_not() {
    let mongod = tokio::task::spawn_blocking(|| Mongod::start(&[])).await.unwrap();
    make_shard(&mongod.client().await).await;
    let mut case = Case::on(&mongod, "t").await;
    fill(&case).await;
    assert_refused(&case, SHARD).await;
    let proxy = Proxy::start(mongod.port, Service::Mongos).await;
    case.uri = proxy.uri();
    let swept = case.report(RULES, &[]).await;
    assert_eq!((swept.ran.code, &swept.json["server"]["topology"]), (Some(0), &"sharded".into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(7..10));
    let asked = proxy.requests_of("find");
    let asked: Vec<&str> = asked.iter().filter_map(|request| request.body.get_str("find").ok()).collect();
    assert!(!asked.contains(&"system.version") && !asked.contains(&"system.replset"), "{asked:?}");
}

/// Creates users: one with all rights, one with what a sweep needs and no more, and one who may look at the server as well.
async fn add_users(mongod: &Mongod) {
    let admin = mongod.client().await.database("admin");
    let on = |collection: &str, actions: &[&str]| doc! { "resource": { "db": "t", "collection": collection }, "actions": actions.to_vec() };
    let privileges = vec![on("c", &["find", "remove", "listIndexes", "collStats"]), on("", &["listCollections"])];
    command(&admin, doc! { "createRole": "sweeper", "privileges": privileges, "roles": [] }).await;
    command(&admin, doc! { "createUser": "root", "pwd": "password", "roles": ["root"] }).await;
    command(&admin, doc! { "createUser": "few", "pwd": "password", "roles": ["sweeper"] }).await;
    command(&admin, doc! { "createUser": "monitoring", "pwd": "password", "roles": ["sweeper", "clusterMonitor"] }).await;
}

fn uri_of(user: &str, mongod: &Mongod) -> String {
    format!("mongodb://{user}:password@127.0.0.1:{}/?directConnection=true", mongod.port)
}

const RULE: &str = "  - {namespace: t.c, field: at, expireAfter: 1d, maxDeletePercent: 90}\n";

#[tokio::test]
async fn a_user_with_few_rights_is_kept_from_a_shard_as_well() {
    let (mut set, case) = set(&["--shardsvr"]).await;
    let shard = &mut set.members[0];
    add_users(shard).await;
    let key = case.file("key", "a key that all members share");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    restart(shard, &["--shardsvr", "--replSet", "rs0", "--keyFile", key.to_str().unwrap()]).await;
    let root = Client::with_uri_str(uri_of("root", shard)).await.unwrap();
    until_primary(&root).await;
    make_shard(&root).await;
    let site = Site::new();
    let report = site.report(&uri_of("few", shard), RULE, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"detached".into()), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 0);
}

#[tokio::test]
async fn a_user_who_may_not_look_is_told_so_and_one_who_may_is_refused() {
    let (mut set, _case) = set(&[]).await;
    let member = &mut set.members[0];
    add_users(member).await;
    restart(member, &["--auth"]).await;
    let site = Site::new();
    let (few, monitoring) = (uri_of("few", member), uri_of("monitoring", member));
    let refused = site.report(&monitoring, RULE, &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"detached".into()), "{refused:?}");
    let unknown = "whether this server is a member of a replica set that runs without its set, or a shard, is unknown";
    let checked = site.run(&monitoring, RULE, &["check", "--connect"]).await;
    assert!(checked.code == Some(5) && !checked.stderr.contains(unknown), "{checked:?}");
    let checked = site.run(&few, RULE, &["check", "--connect"]).await;
    assert!(checked.code == Some(0) && checked.stderr.contains(unknown), "{checked:?}");
    // A run is not refused only because its rights are few.
    let swept = site.report(&few, RULE, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &7.into()), "{swept:?}");
}

#[tokio::test]
async fn a_standalone_that_was_never_a_member_is_swept_after_three_looks_at_the_server() {
    let case = Case::new().await;
    fill(&case).await;
    case.fill("d", dated(0..2, days(-3))).await;
    let rules = format!("{RULES}  - {{namespace: DB.d, field: at, expireAfter: 1d}}\n");
    let swept = case.report(&rules, &["-vv"]).await;
    assert_eq!((swept.ran.code, &swept.json["totals"]["deletedCount"]), (Some(0), &9.into()), "{swept:?}");
    let commands: Vec<&str> = swept.ran.stderr.lines().filter_map(|line| line.strip_prefix("debug: command ")).collect();
    let is_look = |command: &&&str| ["find local.", "find admin.", "getParameter"].iter().any(|look| command.starts_with(look));
    let looks = commands.iter().filter(is_look);
    assert_eq!(looks.count(), 3, "{commands:#?}");
}

#[tokio::test]
async fn config_servers_are_no_shard_unless_they_hold_one() {
    let mongod = tokio::task::spawn_blocking(|| Mongod::start(&["--replSet", "configs", "--configsvr"])).await.unwrap();
    let admin = mongod.client().await.database("admin");
    let members = vec![doc! { "_id": 0, "host": format!("127.0.0.1:{}", mongod.port) }];
    command(&admin, doc! { "replSetInitiate": { "_id": "configs", "configsvr": true, "members": members } }).await;
    until_primary(&mongod.client().await).await;
    // As on MongoDB 7.0 and later.
    make_shard(&mongod.client().await).await;
    let archived = Case::new().await;
    fill(&archived).await;
    let rule = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n",
        directory(&archived).display()
    );
    archived.report(&rule, &[]).await;
    let case = Case::on(&mongod, "t").await;
    let restored = restore(&case, &archive(&directory(&archived)), &["--dry-run"]).await;
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let shard = doc! { "_id": "config", "host": format!("configs/127.0.0.1:{}", mongod.port) };
    case.client.database("config").collection::<Document>("shards").insert_one(shard).await.unwrap();
    let restored = restore(&case, &archive(&directory(&archived)), &["--dry-run"]).await;
    assert!(restored.code == Some(5) && restored.stderr.contains(SHARD), "{restored:?}");
}
