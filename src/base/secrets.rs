//! Values that messages of a server or of the driver may quote, and that must not be shown: passwords, and what environment
//! variables stand for in filters.

use parking_lot::RwLock;

/// Shortest value that is replaced. Shorter ones are part of many words, and no secret.
const MIN_LENGTH: usize = 4;

/// Pairs of a value and what is shown in its place.
static SECRETS: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// Withholds a value from all further messages; `shown` takes its place.
pub(crate) fn withhold(value: &str, shown: &str) {
    if value.len() < MIN_LENGTH || SECRETS.read().iter().any(|(known, _)| known == value) {
        return;
    }
    let mut secrets = SECRETS.write();
    secrets.push((value.to_owned(), shown.to_owned()));
    // A value that holds another one goes first, so that no part of it stays.
    secrets.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
}

/// Returns a message without the values that are withheld.
pub(crate) fn without(message: String) -> String {
    SECRETS.read().iter().fold(message, |message, (value, shown)| match message.contains(value) {
        true => message.replace(value, shown),
        false => message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_value_is_replaced_first_and_short_ones_are_not() {
        for (value, shown) in [("secrets-tests-pw", "${PW}"), ("secrets-tests-pw-2", "${PW2}"), ("pw", "${SHORT}")] {
            withhold(value, shown);
        }
        assert_eq!(without("type secrets-tests-pw-2, secrets-tests-pw".into()), "type ${PW2}, ${PW}");
    }
}
