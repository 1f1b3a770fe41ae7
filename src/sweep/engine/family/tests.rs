use bson::DateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::lock::lease::Leases;
use crate::pause_file::PauseFile;
use crate::plan::SweepRule;
use crate::progress::{Progress, Show};
use crate::report::counts::Counts;
use crate::report::made_up::with_children;
use crate::server::Deployment;
use crate::server::grant::{Consent, DeleteGrant};
use crate::server::scripted::Script;
use crate::server::scripted::ScriptedReply::{self, Batch, Reply};
use crate::server::watches::Watches;
use crate::stop::Stop;
use crate::sweep::{Limits, RunBudget};

fn sweep_of(deployment: &Deployment, rule: &SweepRule) -> RuleSweep {
    let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
    RuleSweep::new(deployment, rule, &Counts::default(), &grant, &Watches::none(), &Leases::default(), None)
}

#[test]
fn parents_and_children_go_by_a_majority_whatever_the_connection_string_says() {
    let with_children = with_children();
    let alone = SweepRule { family: None, ..with_children.clone() };
    let mut deployment = Script::new([]).deployment();
    deployment.write_concern = doc! { "w": 1, "j": true };
    let sweep = sweep_of(&deployment, &with_children);
    let majority = doc! { "w": "majority", "j": true };
    assert_eq!((&sweep.write_concern, &sweep.children[0].write_concern), (&majority, &majority));
    assert!(!sweep.is_of_children() && sweep.children[0].is_of_children());
    assert_eq!(sweep_of(&deployment, &alone).write_concern, doc! { "w": 1, "j": true });
}

/// Finishes a journal with one entry, of parent 1 and 30 hours old. Returns the names of the collections from which something was deleted, and
/// whether the entry is kept.
async fn finish(after: impl IntoIterator<Item = ScriptedReply>) -> (Vec<String>, bool) {
    let hours = |hours: i64| DateTime::from_millis(1_600_000_000_000 + hours * 3_600_000);
    let entry = doc! { "_id": 1, "at": hours(0), "field": "_id", "parents": [1] };
    let script = Script::new([Reply(doc! { "localTime": hours(30) }), Batch(vec![entry])].into_iter().chain(after));
    let sweep = Arc::new(sweep_of(&script.deployment(), &with_children()));
    let limits = Limits { max_deletes: None, rate: None, concurrency: None, leases: Leases::default() };
    let budget = RunBudget::new(Instant::now(), &limits);
    let progress = Progress::new(Show::Nothing, 1, None);
    let progress = progress.begin("app.c", None);
    let (_signals, receiver) = watch::channel(None);
    let (stop, pause) = (Stop::by(receiver), PauseFile::default());
    let run = RunContext { budget: &budget, progress: &progress, stop: &stop, pause: &pause };
    let mut engine = Engine::new(sweep.clone(), run, Family::of(&sweep, run));
    if let Err(End::Failed(why)) = engine.finish_journal().await {
        panic!("{why}: {:?}", script.sent());
    }
    let sent = script.sent();
    let deletes = sent.iter().filter_map(|command| command.get_str("delete").ok().map(str::to_owned)).collect();
    (deletes, engine.family.is_some_and(|family| family.is_kept))
}

#[tokio::test(start_paused = true)]
async fn an_old_entry_stays_while_no_majority_knows_whether_its_parents_are_gone() {
    let parent = || Batch(vec![doc! { "_id": 1 }]);
    let nothing = || ScriptedReply::End;
    // Each look asks a majority, and then the primary. Then come the children, and the next entry.
    let gone = (0..=LOOKS).flat_map(|_| [parent(), nothing(), nothing()]);
    assert_eq!(finish(gone.chain([nothing(), nothing()])).await, (Vec::new(), true));
    let created_again = (0..=LOOKS).flat_map(|_| [nothing(), parent(), nothing()]);
    assert_eq!(finish(created_again.chain([nothing(), nothing()])).await, (Vec::new(), true));
    let removed = Reply(doc! { "n": 1, "ok": 1.0 });
    assert_eq!(finish([nothing(), nothing(), nothing(), removed, nothing()]).await, (vec!["j".into()], false));
}
