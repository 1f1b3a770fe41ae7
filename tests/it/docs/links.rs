//! The documentation is consistent: links have targets, tables agree with the code, no sentence is repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ttl_sweeper::base::exit;

use super::pages::{self, root};
use crate::support::sweeper::sweeper;

#[test]
fn every_link_leads_to_a_file_and_an_anchor_that_exist() {
    let mut seen = 0;
    for page in pages::all() {
        let folder = Path::new(&page.name).parent().expect("a folder");
        for (place, target) in page.links() {
            seen += 1;
            assert!(!target.contains("://"), "{place}: {target}: links lead to files of this repository");
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let name = if file.is_empty() { page.name.clone() } else { normalized(&folder.join(file)) };
            assert!(root().join(&name).is_file(), "{place}: {target}: there is no {name}");
            if let Some(anchor) = anchor {
                let anchors = pages::one(&name).anchors();
                assert!(anchors.iter().any(|known| known == anchor), "{place}: {target}: {anchors:?}");
            }
        }
        let anchors = page.anchors();
        assert_eq!(anchors.iter().collect::<BTreeSet<_>>().len(), anchors.len(), "{}: {anchors:?}", page.name);
    }
    assert!(seen > 30, "{seen}");
}

/// Turns `docs/../README.md` into `README.md`.
fn normalized(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()) {
        match part.as_str() {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn the_readme_is_short_and_leads_to_the_shelves_and_they_to_every_page() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let lines = text.lines().count();
    assert!(lines <= 200, "{lines} lines");
    assert!(text.contains("](docs/README.md)"), "the shelves are not linked");
    let shelves = std::fs::read_to_string(root().join("docs/README.md")).expect("docs/README.md");
    for page in pages::all().iter().filter(|page| !page.name.ends_with("README.md")) {
        let name = page.name.strip_prefix("docs/").expect("a page of docs/");
        assert_eq!(shelves.matches(&format!("]({name})")).count(), 1, "{name} stands on one shelf");
    }
}

#[test]
fn every_page_leads_with_an_example() {
    let others = ["README.md", "docs/README.md", "docs/policy-keys.md", "docs/troubleshooting.md"];
    for page in pages::all().iter().filter(|page| !others.contains(&page.name.as_str())) {
        let before = page.prose().take_while(|(_, line)| !line.starts_with("## ")).map(|(_, line)| line);
        let example =
            page.blocks(&["yaml", "sh", "console", "cron"]).first().map(|block| block.place.clone()).unwrap_or_default();
        let line: usize = example.rsplit_once(':').and_then(|(_, line)| line.parse().ok()).unwrap_or(usize::MAX);
        assert!(line <= 8, "{}: the first example begins in line {line}, after {:?}", page.name, before.collect::<Vec<_>>());
    }
}

#[test]
fn no_sentence_stands_in_two_places() {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for page in pages::all() {
        // Paragraphs are wrapped: a sentence may span lines.
        let text: Vec<&str> = page.prose().map(|(_, line)| line).filter(|line| !line.starts_with(['|', '#'])).collect();
        for sentence in text.join(" ").split(['.', ':', ';']).map(str::trim).filter(|sentence| sentence.len() > 60) {
            if let Some(other) = places.insert(sentence.to_owned(), page.name.clone()) {
                panic!("{other} and {}: {sentence}", page.name);
            }
        }
    }
    assert!(places.len() > 50, "{}", places.len());
}

#[test]
fn the_exit_codes_are_those_of_the_code() {
    let readme = pages::one("README.md");
    let of_readme: BTreeMap<u8, String> = readme
        .prose()
        .filter_map(|(_, line)| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            Some((cells.next()?.parse().ok()?, cells.next()?.replace('`', "")))
        })
        .collect();
    assert_eq!(of_readme, exit::ALL.iter().map(|exit| (exit.code, exit.meaning.to_owned())).collect());
}

/// Returns the source code as one text, with multi-line strings joined.
fn code() -> String {
    let text = |path| std::fs::read_to_string(path).expect("a file of src/");
    let text: String = pages::sources(&root().join("src")).into_iter().map(text).collect();
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

#[test]
fn the_messages_of_the_troubleshooting_page_are_those_of_the_code() {
    let code = code();
    let page = pages::one("docs/troubleshooting.md");
    let mut seen = 0;
    for (place, line) in page.prose().filter(|(_, line)| line.starts_with("| `")) {
        let cell = line.split(" | ").next().expect("a first column");
        for message in pages::code_in(cell) {
            seen += 1;
            for part in message.split('…').filter(|part| !part.trim().is_empty()) {
                assert!(code.contains(part), "{place}: no message contains `{part}`");
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// Camel-case words of MongoDB that sweeper does not use.
const OF_MONGODB: [&str; 6] = ["bulkWrite", "dbAdmin", "deleteMany", "dryRun", "moveCollection", "waitQueueTimeoutMS"];

#[test]
fn names_in_the_text_are_names_of_the_code() {
    let mut code = code() + include_str!("../../../sweeper.example.yaml");
    for of in ["policy", "report"] {
        let schema = sweeper(&["schema", of]).output().expect("sweeper starts");
        code.push_str(&String::from_utf8(schema.stdout).expect("UTF-8"));
    }
    let mut seen = 0;
    for page in pages::all() {
        for (place, text) in page.code() {
            if ["src/", "tests/", ".ci/", "benches/"].iter().any(|folder| text.starts_with(folder)) {
                assert!(root().join(text).exists(), "{place}: there is no `{text}`");
                continue;
            }
            let is_name = |word: &&str| {
                word.starts_with(|c: char| c.is_ascii_lowercase()) && word.contains(|c: char| c.is_ascii_uppercase())
            };
            for name in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_name) {
                seen += 1;
                assert!(code.contains(name) || OF_MONGODB.contains(&name), "{place}: the code does not contain `{name}`");
            }
        }
    }
    assert!(seen > 60, "{seen}");
}
