//! A service without room that does not say how much it had deleted.

use crate::shell::server::delete::{DeleteError, Reply};
use crate::shell::server::wire::overload::Overload;
use crate::shell::sweep::batch::attempts::{Attempts, Step};
use crate::testing::made_up::sweep::ids_of;

fn attempts() -> Attempts {
    Attempts::new(Box::new(ids_of(0..10)), false)
}

fn throttled(deleted: u64, uncounted: bool) -> Reply {
    let overload = Some(Overload::Throttled { retry_after: None });
    let error = DeleteError { retryable: true, overload, uncounted, ..DeleteError::fatal("16500") };
    Reply { deleted, unconfirmed: false, election: None, error: Some(error) }
}

#[test]
fn a_count_is_uncertain_only_where_the_next_attempt_finds_less() {
    for (replies, uncertain) in [
        (vec![throttled(0, true), done(10)], false),
        (vec![throttled(0, true), done(7)], true),
        (vec![throttled(4, false), throttled(0, true), done(6)], false),
        (vec![throttled(4, false), throttled(0, true), done(5)], true),
        // Others deleted some: every reply had a count.
        (vec![throttled(4, false), done(5)], false),
    ] {
        let mut attempts = attempts();
        let last = replies.iter().map(|reply| attempts.next_step(reply.clone(), 0.5)).last();
        assert_eq!((last, attempts.end().uncertain), (Some(Step::End), uncertain), "{replies:?}");
    }
}

#[test]
fn the_count_of_one_part_says_nothing_about_the_next() {
    let mut attempts = attempts();
    let too_large = DeleteError { retryable: true, overload: Some(Overload::TooLarge), ..DeleteError::fatal("too large") };
    let replies = [
        Reply { deleted: 0, unconfirmed: false, election: None, error: Some(too_large) },
        done(5),
        // The second half.
        throttled(0, true),
        done(3),
    ];
    let steps = replies.map(|reply| attempts.next_step(reply, 0.5));
    assert!(matches!(steps, [Step::Next, Step::Next, Step::Yield(_), Step::End]), "{steps:?}");
    let result = attempts.end();
    assert_eq!((result.deleted, result.uncertain), (8, true));
}

fn done(deleted: u64) -> Reply {
    Reply { deleted, unconfirmed: false, election: None, error: None }
}
