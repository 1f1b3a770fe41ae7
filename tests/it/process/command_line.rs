//! Output derived from the definition of the command line: help, completions, manual pages, and replies to typing errors.

use std::process::Command as Process;

use crate::support::sweeper::{Ran, run, sweeper};
use clap::Command;
use ttl_sweeper::commands::cli;

fn command() -> Command {
    let mut command = cli::command_line();
    command.build();
    command
}

/// Returns the subcommands of a command except `help`.
fn inner(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
}

async fn said(args: &[&str]) -> Ran {
    let mut command = sweeper(args);
    command.env("COLUMNS", "80");
    run(command).await
}

/// Returns bash's completions of the last of these words.
async fn completed(words: &[&str]) -> Vec<String> {
    let script = said(&["completions", "bash"]).await.stdout;
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_sweeper sweeper \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let mut bash = Process::new("bash");
    bash.args(["--norc", "-c", &ask]);
    let ran = run(bash).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    ran.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_commands_options_and_values() {
    let offered = completed(&["sweeper", ""]).await;
    for command in inner(&command()) {
        assert!(offered.iter().any(|word| word == command.get_name()), "{}: {offered:?}", command.get_name());
    }
    assert_eq!(completed(&["sweeper", "sweep", "--dry"]).await, ["--dry-run"]);
    assert_eq!(completed(&["sweeper", "native", "ap"]).await, ["apply"]);
    assert_eq!(completed(&["sweeper", "schema", "re"]).await, ["report"]);
    assert_eq!(completed(&["sweeper", "sweep", "--color", "al"]).await, ["always"]);
}

#[tokio::test]
async fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = said(&["completions", shell]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}: {ran:?}");
        assert!(ran.stdout.contains("dry-run"), "{shell}");
    }
    let ran = said(&["completions", "tcsh"]).await;
    assert_eq!(ran.code, Some(2));
}

#[tokio::test]
async fn every_command_has_a_manual_page_with_all_of_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let mut man = sweeper(&["man", "--directory"]);
    man.arg(dir.path().join("man1"));
    let ran = run(man).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""), "{ran:?}");
    let mut pages = 0;
    let mut left = vec![command()];
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or("sweeper").to_owned();
        let page = std::fs::read_to_string(dir.path().join("man1").join(format!("{name}.1")))
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&option.replace('-', "\\-")), "{name}: {option}");
        }
        assert!(page.contains("MONGODB_URI") && page.contains("SWEEPER_POLICY"), "{name}");
        pages += 1;
        left.extend(inner(&command).cloned());
    }
    assert_eq!(std::fs::read_dir(dir.path().join("man1")).unwrap().count(), pages);
    let ran = said(&["man"]).await;
    assert_eq!(ran.stdout, std::fs::read_to_string(dir.path().join("man1/sweeper.1")).unwrap());
    let section =
        ran.stdout.split(".SH \"FIRST STEPS\"\n.nf\n").nth(1).or_else(|| ran.stdout.split(".SH FIRST STEPS\n.nf\n").nth(1));
    assert!(section.is_some_and(|lines| lines.starts_with("sweeper init  ")), "examples keep their lines: {}", ran.stdout);
}

#[tokio::test]
async fn help_fits_80_columns_and_ends_with_the_options_of_every_command() {
    let mut left = vec![(Vec::new(), command())];
    while let Some((path, command)) = left.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let ran = said(&words).await;
        assert_eq!(ran.code, Some(0), "{words:?} {ran:?}");
        let wide = ran.stdout.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{words:?}");
        if let Some(own) = ran.stdout.find("\nOptions:\n") {
            assert!(ran.stdout.find("\nOptions of every command:\n").is_some_and(|common| own < common), "{words:?}");
        }
        left.extend(inner(&command).map(|inner| ([path.as_slice(), &[inner.get_name().to_owned()]].concat(), inner.clone())));
    }
}

#[tokio::test]
async fn the_name_alone_shows_the_help_whatever_the_environment_holds() {
    for variables in [&[][..], &[("MONGODB_URI", "mongodb://h"), ("SWEEPER_POLICY", "p.yaml")]] {
        let mut command = sweeper(&[]);
        command.envs(variables.iter().copied());
        let ran = run(command).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("Commands:") && ran.stderr.contains("sweeper init"), "{ran:?}");
        assert!(!ran.stderr.contains("mongodb://h"), "{ran:?}");
    }
}

#[tokio::test]
async fn what_was_mistyped_is_answered_with_what_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("p.yaml");
    let rules = "version: 1\ncollections:\n  - {namespace: app.sessions, field: a, expireAfter: 1d}\n  \
                 - {name: old jobs, namespace: 'tenant.jobs', field: a, expireAfter: 1d}\n";
    std::fs::write(&policy, rules).unwrap();
    let policy = policy.to_str().unwrap();
    for (args, part) in [
        (&["sweeep"][..], "'sweep'"),
        (&["sweep", "--dryrun"], "'--dry-run'"),
        (&["check", "--format", "jsn"], "'json'"),
        (&["sweep", "--max-duration", "2 hours"], "expected `2h`?"),
        (&["check", "-p", policy, "--only", "sesions"], "--only 'app.sessions'?"),
        (&["check", "-p", policy, "--only", "sessions"], "--only 'app.sessions'?"),
        (&["check", "-p", policy, "--only", "app.session"], "--only 'app.sessions'?"),
        (&["check", "-p", policy, "--only", "tenant"], "--only 'tenant.jobs'?"),
        (&["check", "-p", policy, "--only", "old job"], "--only 'old jobs'?"),
        (&["check", "-p", policy, "--only", "zzz"], "hint: the policy's rules are `app.sessions`, `old jobs`"),
    ] {
        let ran = said(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?} {ran:?}");
        assert!(ran.stderr.contains(part), "{args:?} {ran:?}");
    }
}
