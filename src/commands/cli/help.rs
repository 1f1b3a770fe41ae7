//! Examples and exit codes at the end of the help texts.

use crate::base::exit;
use crate::base::text::fold;

/// Defines the first steps, which begin the long list of examples as well.
macro_rules! first_steps {
    () => {
        "\
First steps:
  sweeper init                 write a first policy
  sweeper check                is it right?
  sweeper check --connect      and does it fit the deployment?
  sweeper sweep --dry-run      what would go? deletes nothing
  sweeper sweep                delete, after asking
"
    };
}

pub(super) const FIRST_STEPS: &str = first_steps!();

pub(super) const EVERYTHING: &str = concat!(
    first_steps!(),
    "
More:
  sweeper audit -o audit.html  how old it is, what comes next, what never goes
  sweeper sweep --plan audit.json
                               only what a saved audit approved
  sweeper why app.orders 4711  when does this document go, or why not?
  sweeper history              the last runs
  sweeper import -o sweeper.yaml
                               a policy from the TTL indexes that are there
  sweeper native diff          the TTL indexes compared with the policy
  sweeper diff monday.json tuesday.json
                               what changed between two reports?
  sweeper archive verify DIRECTORY
                               is what was archived whole?
  sweeper restore DIRECTORY    put back what was archived
  sweeper reclaim --dry-run    the space that `compact` would give back
  sweeper completions bash     for the shell; also zsh, fish and others
"
);

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  sweeper check                only the file
  sweeper check --connect      and what it means on the deployment
  sweeper check -p new.yaml --connect --only 'app.*'
";

pub(super) const RECLAIM_EXAMPLES: &str = "\
Examples:
  sweeper reclaim --dry-run    what would each member give back?
  sweeper reclaim --only app.sessions --max-duration 2h
  sweeper reclaim --primary --yes
";

pub(super) const DIFF_EXAMPLES: &str = "\
Examples:
  sweeper diff monday.json tuesday.json
  sweeper diff audit.json swept.json --only app.sessions -o changes.csv
";

pub(super) const HISTORY_EXAMPLES: &str = "\
Examples:
  sweeper history              the last 20 runs
  sweeper history -n 5 --only app.sessions
  sweeper history --format json
";

pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  sweeper restore /backups/ttl/20260131T020000Z-1a2b3c4d --dry-run
                               is it whole? what would come back?
  sweeper restore /backups/ttl/20260131T020000Z-1a2b3c4d \\
    --only app.sessions --namespace app.sessions=app.found
                               next to what is there
";

pub(super) const WHY_EXAMPLES: &str = "\
Examples:
  sweeper why app.sessions 65a1b2c3d4e5f60718293a4b
  sweeper why app.orders 4711 --format json
";

pub(super) const ARCHIVE_LIST_EXAMPLES: &str = "\
Examples:
  sweeper archive list /backups/ttl
  sweeper archive list /backups/ttl --only app.sessions --format json
";

pub(super) const ARCHIVE_VERIFY_EXAMPLES: &str = "\
Examples:
  sweeper archive verify /backups/ttl
  sweeper archive verify /backups/ttl/20260131T020000Z-1a2b3c4d
";

pub(super) const IMPORT_EXAMPLES: &str = "\
Examples:
  sweeper import               on the terminal
  sweeper import --only 'app.*' -o sweeper.yaml
";

pub(super) const INIT_EXAMPLES: &str = "\
Examples:
  sweeper init                 asks
  sweeper init --namespace app.sessions --field lastModified --expire-after 1h
  sweeper init \\
    --namespace app.sessions --field lastModified --expire-after 1h \\
    --namespace app.jobs --field finishedAt --expire-after 30d
                               two rules
";

pub(super) const AUDIT_EXAMPLES: &str = "\
Examples:
  sweeper audit                on the terminal
  sweeper audit -o audit.html -o audit.json
                               for people, and for `sweep --plan`
  sweeper audit --only 'app.*' --read-preference secondary
";

pub(super) const SWEEP_EXAMPLES: &str = "\
Examples:
  sweeper sweep --dry-run      what would go?
  sweeper sweep                delete, after asking
  sweeper sweep --only 'app.*' --max-deletes 100000 --rate 2000
  sweeper sweep --plan audit.json
                               only what a saved audit approved
  sweeper sweep -q -o /var/log/sweeper.json
                               from cron: silent unless something is wrong
";

pub(super) const NATIVE_DIFF_EXAMPLES: &str = "\
Examples:
  sweeper native diff
  sweeper native diff --only 'app.*' --format json
";

pub(super) const NATIVE_APPLY_EXAMPLES: &str = "\
Examples:
  sweeper native apply --dry-run
                               which commands, and what would go at once?
  sweeper native apply --only app.sessions
";

/// Returns examples, followed by the exit codes.
pub(super) fn with_exit_codes(examples: &str) -> String {
    let codes: Vec<String> =
        exit::ALL.iter().flat_map(|exit| fold(&format!("  {:<3}  {}", exit.code, exit.meaning), "       ")).collect();
    let order = fold(
        "  When several apply: 3 before 5 before 4 before 6. A dry run and an audit report what a guard would refuse and exit 0.",
        "  ",
    );
    format!("{examples}\nExit codes:\n{}\n{}", codes.join("\n"), order.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_examples_and_fit_a_terminal() {
        let help = with_exit_codes("Examples:\n  sweeper sweep\n");
        assert!(help.starts_with("Examples:\n  sweeper sweep\n\nExit codes:\n  0    all done"), "{help}");
        assert!(help.contains("\n  143  SIGTERM, or SIGHUP without --every: the same\n  When several apply:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
