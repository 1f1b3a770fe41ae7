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
    assert_eq!(completed(&["sweeper", "schema", "rep"]).await, ["report"]);
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
        let synopsis = page.split(".SH ").find(|section| section.starts_with("SYNOPSIS")).expect("a synopsis");
        for arg in command.get_arguments() {
            let Some(option) = arg.get_long() else { continue };
            let written = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert_eq!(page.contains(&format!("{written}\\fR")), !arg.is_hide_set(), "{name}: {option}");
            let is_own = arg.get_help_heading() != Some(cli::COMMON);
            assert_eq!(
                synopsis.contains(&format!("{written}\\fR")),
                is_own && !arg.is_hide_set(),
                "{name}: {option}: {synopsis}"
            );
        }
        for (option, variable) in [("uri", "MONGODB_URI"), ("policy", "SWEEPER_POLICY")] {
            let means_something = command.get_arguments().any(|arg| arg.get_id() == option && !arg.is_hide_set());
            assert_eq!(page.contains(variable), means_something, "{name}: {variable}");
        }
        assert_eq!(page.contains(".SH \"EXIT CODES\"") || page.contains(".SH EXIT CODES"), has_exit_codes(&command), "{name}");
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

/// Whether the help of a command has the exit codes: the help of the program, and of the commands that judge rules.
fn has_exit_codes(command: &Command) -> bool {
    ["sweeper", "sweep", "audit", "check"].contains(&command.get_name())
}

/// Returns each command with the words that call it.
fn commands() -> Vec<(Vec<String>, Command)> {
    let mut found = vec![(Vec::new(), command())];
    let mut next = 0;
    while let Some((path, command)) = found.get(next).cloned() {
        found.extend(inner(&command).map(|inner| ([path.as_slice(), &[inner.get_name().to_owned()]].concat(), inner.clone())));
        next += 1;
    }
    assert!(found.len() > 15, "{}", found.len());
    found
}

/// Returns the help of a command on a terminal of 80 columns.
async fn help(path: &[String], option: &str) -> String {
    let words: Vec<&str> = path.iter().map(String::as_str).chain([option]).collect();
    let ran = said(&words).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?} {ran:?}");
    let wide = ran.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{words:?}");
    ran.stdout
}

#[tokio::test]
async fn the_short_help_of_every_command_is_one_screen() {
    for (path, _) in commands() {
        let text = help(&path, "-h").await;
        assert!(text.lines().count() <= 40, "{path:?}: {} lines\n{text}", text.lines().count());
        assert!(!text.contains("Exit codes:"), "{path:?}");
    }
}

#[tokio::test]
async fn the_long_help_has_every_option_that_means_something_and_ends_with_the_common_ones() {
    for (path, command) in commands() {
        let text = help(&path, "--help").await;
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for arg in command.get_arguments() {
            let Some(option) = arg.get_long().map(|name| format!("--{name}")) else { continue };
            let is_of_it = |line: &&str| {
                let words: Vec<&str> = line.split([' ', '.']).collect();
                words[0] == option || (words[0].len() == 3 && words.get(1) == Some(&option.as_str()))
            };
            assert_eq!(lines.iter().any(is_of_it), !arg.is_hide_set(), "{path:?}: {option}");
        }
        if let Some(own) = text.find("\nOptions:\n") {
            assert!(text.find(&format!("\n{}:\n", cli::COMMON)).is_some_and(|common| own < common), "{path:?}");
        }
        assert_eq!(text.contains("\nExit codes:\n"), has_exit_codes(&command), "{path:?}");
    }
}

#[tokio::test]
async fn an_option_that_means_nothing_for_a_command_is_left_out_of_its_help_and_accepted() {
    let texts = ["diff", "schema", "archive list"].map(|words| words.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for (path, option) in texts.iter().zip(["--uri", "--policy", "--uri-file"]) {
        assert!(!help(path, "--help").await.contains(option), "{path:?}: {option}");
    }
    let ran = said(&["schema", "--policy", "p.yaml", "--progress", "never"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
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
