//! Tries that are counted anew once a command has done something, and what is said of the last one.

use super::super::{Attempts, Step};
use crate::base::values::raw::RawValue;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::{DeleteError, Reply};
use crate::shell::server::wire::retry::RETRY_WAITS;

fn attempts() -> Attempts {
    Attempts::new(Box::new(Restriction::one(RawValue::of(1).unwrap())), false)
}

fn reply(deleted: u64, error: DeleteError) -> Reply {
    Reply { deleted, unconfirmed: false, election: None, error: Some(error) }
}

#[test]
fn a_command_that_deletes_some_is_tried_again_as_often_as_the_first() {
    let mut attempts = attempts();
    let troubled = |deleted| reply(deleted, DeleteError { retryable: true, ..DeleteError::fatal("trouble") });
    for _ in 0..3 * RETRY_WAITS.len() {
        assert_eq!(attempts.next_step(troubled(1), 0.0), Step::Retry(RETRY_WAITS[0]));
    }
    for wait in &RETRY_WAITS[1..] {
        assert_eq!(attempts.next_step(troubled(0), 0.0), Step::Retry(*wait));
    }
    assert_eq!(attempts.next_step(troubled(0), 0.0), Step::End);
}

#[test]
fn the_last_reply_tells_why_the_batch_goes_on_and_whether_it_was_given_up() {
    let mut attempts = attempts();
    assert_eq!((attempts.message(), attempts.gave_up()), ("", false));
    attempts.next_step(reply(0, DeleteError { retryable: true, ..DeleteError::fatal("trouble") }), 0.0);
    assert_eq!((attempts.message(), attempts.gave_up()), ("trouble", false));
    attempts.next_step(reply(0, DeleteError { given_up: true, ..DeleteError::fatal("no answer") }), 0.0);
    assert_eq!((attempts.message(), attempts.gave_up()), ("no answer", true));
}
