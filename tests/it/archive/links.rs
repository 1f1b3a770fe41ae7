//! Links, pipes and directories in an archive: nothing is read or written through them, and nothing waits for them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::archives::{archive, archives, directory, into, restore, restored, rules, swept};
use crate::support::faults::{dated, days, end, start};
use crate::support::sweeper::{Case, Ran, Report, id_set, run, sweeper};

const A_LINK: &str = "is a symbolic link, and links in an archive are not followed; put what it leads to in its place";

async fn archive_command(args: &[&str], directory: &Path) -> Ran {
    let mut command = sweeper(&[&["archive"], args].concat());
    command.arg(directory);
    run(command).await
}

/// Puts another entry in the place of a file, and returns the file to its place.
fn moved(path: &Path, away: &Path) {
    std::fs::rename(path, away).unwrap();
}

#[tokio::test]
async fn no_file_and_no_directory_of_an_archive_may_be_a_link_to_elsewhere() {
    let (case, run) = swept().await;
    let database = run.join(case.db.name());
    let away = case.dir.path().join("away");
    let file = database.join("c.bson.zst");
    let metadata = database.join("c.metadata.json");
    for (path, is_listed) in [
        (&file, true),
        (&metadata, true),
        (&database, true),
        (&run.join("journal.jsonl"), false),
        (&run.join("manifest.json"), false),
    ] {
        // What the link leads to is whole.
        moved(path, &away);
        symlink(&away, path).unwrap();
        let shown = path.display();
        for dry in [&["--dry-run"][..], &["--yes"]] {
            let ran = restore(&case, &run, dry).await;
            assert_eq!(ran.code, Some(1), "{shown}: {ran:?}");
            assert!(ran.stderr.contains(A_LINK) && ran.stderr.contains("nothing was inserted"), "{shown}: {ran:?}");
        }
        assert!(case.ids("c").await.is_empty(), "{shown}");
        let ran = archive_command(&["verify", "--format", "json"], &directory(&case)).await;
        assert!(ran.code == Some(3) && ran.stdout.contains(A_LINK), "{shown}: {ran:?}");
        let ran = archive_command(&["list", "--format", "json"], &directory(&case)).await;
        assert_eq!(
            (ran.code, ran.stdout.contains(A_LINK)),
            if is_listed { (ran.code, false) } else { (Some(3), true) },
            "{shown}: {ran:?}"
        );
        std::fs::remove_file(path).unwrap();
        moved(&away, path);
    }
    // Without records, the files are found by their names.
    for record in ["journal.jsonl", "manifest.json"] {
        moved(&run.join(record), &case.dir.path().join(record));
    }
    moved(&file, &away);
    symlink(&away, &file).unwrap();
    let ran = restore(&case, &run, &["--yes"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains(A_LINK), "{ran:?}");
    std::fs::remove_file(&file).unwrap();
    moved(&away, &file);
    moved(&database, &away);
    symlink(&away, &database).unwrap();
    // Nothing is left that its name would place.
    let ran = restore(&case, &run, &["--yes"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("nothing was inserted"), "{ran:?}");
    assert!(case.ids("c").await.is_empty());
}

#[tokio::test]
async fn the_directory_that_is_named_may_be_a_link_and_a_run_in_it_may_not() {
    let (case, run) = swept().await;
    let link = case.dir.path().join("link");
    symlink(directory(&case), &link).unwrap();
    let name = run.file_name().unwrap();
    let ran = archive_command(&["verify"], &link).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (json, ran) = restored(&case, &link.join(name), &["--namespace", &into(&case, "c", "d")]).await;
    assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(0), &50.into()), "{json}");
    let to_run = case.dir.path().join("run");
    symlink(&run, &to_run).unwrap();
    let (json, ran) = restored(&case, &to_run, &["--namespace", &into(&case, "c", "e")]).await;
    assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(0), &50.into()), "{json}");
    // A link with the name of a run is said; one with another name, such as that to the latest run, is none.
    symlink(&run, directory(&case).join("latest")).unwrap();
    assert_eq!(archive_command(&["verify"], &directory(&case)).await.code, Some(0));
    let moved_run = directory(&case).join("20200101T000000Z-1a2b3c4d");
    symlink(&run, &moved_run).unwrap();
    let ran = archive_command(&["verify", "--format", "json"], &directory(&case)).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains(&format!("`{}` {A_LINK}", moved_run.display())), "{ran:?}");
    // A sweep into a directory that is a link archives in what it leads to.
    std::fs::remove_file(&moved_run).unwrap();
    case.fill("c", dated(100..110, days(-3))).await;
    let rules = rules(&case, "").replace(&directory(&case).display().to_string(), &link.display().to_string());
    assert_eq!(case.run(&rules, &["sweep"]).await.code, Some(0));
    assert_eq!(archives(&directory(&case)).len(), 3);
}

#[tokio::test]
async fn a_pipe_a_socket_or_a_directory_in_place_of_a_file_is_named_and_not_waited_for() {
    let (case, run) = swept().await;
    let file = run.join(case.db.name()).join("c.bson.zst");
    let away = case.dir.path().join("away");
    for path in [&file, &run.join("journal.jsonl"), &run.join("manifest.json")] {
        moved(path, &away);
        for found in ["a pipe", "a socket", "a directory"] {
            let _listener = match found {
                "a pipe" => {
                    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
                    None
                }
                "a socket" => Some(std::os::unix::net::UnixListener::bind(path).unwrap()),
                _ => {
                    std::fs::create_dir(path).unwrap();
                    None
                }
            };
            let expected = format!("it is {found}; expected a regular file");
            let ran = restore(&case, &run, &["--yes"]).await;
            assert!(ran.code == Some(1) && ran.stderr.contains(&expected), "{found} at {}: {ran:?}", path.display());
            assert!(ran.stderr.contains(path.file_name().unwrap().to_str().unwrap()), "{ran:?}");
            let ran = archive_command(&["verify", "--format", "json"], &directory(&case)).await;
            assert!(ran.code == Some(3) && ran.stdout.contains(&expected), "{found} at {}: {ran:?}", path.display());
            if found == "a directory" {
                std::fs::remove_dir(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        moved(&away, path);
    }
    assert!(case.ids("c").await.is_empty());
}

#[tokio::test]
async fn a_sweep_writes_nothing_through_a_link_that_takes_a_place_below_its_archive() {
    let case = Case::new().await;
    case.fill("c", dated(0..500, days(-3))).await;
    case.fill("d", dated(0..20, days(-3))).await;
    let to = directory(&case);
    let elsewhere = case.dir.path().join("elsewhere");
    // The first rule is so slow that the link is there long before its end, and the second begins when it has ended.
    let second = rules(&case, "").replace("DB.c", "DB.d");
    let text = rules(&case, ", batchSize: 5, rate: 20") + &second + "run: {concurrency: 1}\n";
    let child = start(case.command(&text, &["sweep", "--format", "json"]));
    let journal = || archives(&to).first().and_then(|run| std::fs::read_to_string(run.join("journal.jsonl")).ok());
    while !journal().is_some_and(|journal| journal.contains("\"segment\"")) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let database = archive(&to).join(case.db.name());
    moved(&database, &elsewhere);
    symlink(&elsewhere, &database).unwrap();
    let ran = end(child).await;
    let report = Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran };
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    for rule in [0, 1] {
        let error = report.rule(rule, "error").as_str().unwrap();
        assert!(error.contains(A_LINK) && error.contains("archiving to"), "{error}");
    }
    let left = case.ids("c").await.len() as u64;
    assert_eq!((report.rule(0, "deletedCount"), case.ids("d").await), (&(500 - left).into(), id_set(0..20)), "{report:?}");
    assert!(left > 0 && !elsewhere.join("d.bson.zst").exists(), "{report:?}");
}
