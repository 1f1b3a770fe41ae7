//! The pages and the comments read easily: short sentences, and lines that fit a window.

use super::pages;

/// Most words of a sentence. Inline code counts as one word.
const WORDS: usize = 30;

/// Most columns of a line. A row of a table cannot be broken, and may be longer.
const COLUMNS: usize = 130;

/// Most columns of a line of the README, rows of tables and examples included.
const OF_README: usize = 160;

/// Replaces inline code by one word, and links by their text.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find('`') {
        let fence = rest[begin..].find(|c| c != '`').unwrap_or(rest.len() - begin);
        let (open, content) = (&rest[begin..begin + fence], &rest[begin + fence..]);
        let Some(end) = content.find(open) else { break };
        plain += &rest[..begin];
        plain.push('X');
        rest = &content[end + fence..];
    }
    plain += rest;
    while let Some(begin) = plain.find("](") {
        let Some(end) = plain[begin..].find(')') else { break };
        plain.replace_range(begin..=begin + end, "");
    }
    plain
}

/// Returns the sentences of a text that have too many words.
fn long(text: &str, is_end: fn(char) -> bool) -> Vec<String> {
    let text = plain(text);
    let mut sentences = vec![Vec::new()];
    for word in text.split_whitespace() {
        let last = sentences.last_mut().expect("one at least");
        last.push(word);
        if word.trim_end_matches([')', '*', '"', ']']).ends_with(is_end) {
            sentences.push(Vec::new());
        }
    }
    sentences.iter().filter(|words| words.len() > WORDS).map(|words| words.join(" ")).collect()
}

#[test]
fn lines_fit_a_window() {
    for page in pages::all() {
        for (place, line) in page.prose().filter(|(_, line)| !line.starts_with('|')) {
            assert!(line.chars().count() <= COLUMNS, "{place}: {} columns: {line}", line.chars().count());
        }
    }
    let readme = std::fs::read_to_string(pages::root().join("README.md")).expect("README.md");
    let wide = readme.lines().find(|line| line.chars().count() > OF_README);
    assert_eq!(wide, None);
}

#[test]
fn sentences_are_short() {
    for page in pages::all() {
        let mut paragraph = (String::new(), String::new());
        for (place, line) in page.prose().chain([(String::new(), "")]) {
            if let Some(row) = line.strip_prefix('|') {
                // Cells are no whole sentences: a semicolon ends a thought as well.
                for cell in row.split(" | ") {
                    let found = long(cell, |c| matches!(c, '.' | '?' | '!' | ';'));
                    assert!(found.is_empty(), "{place}: {found:#?}");
                }
            }
            let item = line.trim_start();
            if line.is_empty() || line.starts_with(['|', '#']) || item.starts_with("- ") {
                let (begin, text) = std::mem::take(&mut paragraph);
                let found = long(&text, |c| matches!(c, '.' | '?' | '!'));
                assert!(found.is_empty(), "{begin}: {found:#?}");
            }
            if !line.is_empty() && !line.starts_with(['|', '#']) {
                if paragraph.1.is_empty() {
                    paragraph.0 = place;
                }
                paragraph.1 = format!("{} {}", paragraph.1, item.trim_start_matches("- "));
            }
        }
    }
}

/// An example in a comment is code, and a drawing of the steps of a sweep has columns of its own.
#[test]
fn comments_fit_a_window_and_their_sentences_are_short() {
    for path in ["src", "tests", "benches"].into_iter().flat_map(|name| pages::sources(&pages::root().join(name))) {
        let text = std::fs::read_to_string(&path).expect("a source");
        let (mut paragraph, mut is_example, mut checked) = (String::new(), false, Vec::new());
        for (number, line) in text.lines().chain([""]).enumerate() {
            let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim_start());
            is_example ^= comment.is_some_and(|comment| comment.starts_with("```"));
            let place = format!("{}:{}", path.display(), number + 1);
            let prose = comment.filter(|comment| !is_example && !comment.starts_with(['|', '`', '#']));
            let is_new = prose.is_none_or(|prose| prose.is_empty() || prose.starts_with("- "));
            if is_new && !paragraph.is_empty() {
                checked.push((place.clone(), std::mem::take(&mut paragraph)));
            }
            if let Some(prose) = prose {
                assert!(line.chars().count() <= COLUMNS, "{place}: {} columns: {line}", line.chars().count());
                paragraph = format!("{paragraph} {prose}");
            }
        }
        for (place, paragraph) in checked {
            // As in a table, a colon and a semicolon end a thought as well.
            let found = long(&paragraph, |c| matches!(c, '.' | '?' | '!' | ';' | ':'));
            assert!(found.is_empty(), "above {place}: {found:#?}");
        }
    }
}

#[test]
fn a_long_sentence_is_found_wherever_its_code_and_its_links_are() {
    let words = |count: usize| vec!["word"; count].join(" ");
    let is_end = |c| c == '.';
    assert!(long(&format!("{}. {}.", words(30), words(30)), is_end).is_empty());
    assert_eq!(long(&format!("Short. {}.", words(31)), is_end).len(), 1);
    assert!(long(&format!("{} `a b c` [d](e.md).", words(28)), is_end).is_empty());
    assert_eq!(long(&format!("{} `a b c` ``d ` e`` [d](e.md).", words(28)), is_end).len(), 1);
}
