//! Reads the README and the pages of `docs/` as Markdown: fenced blocks, inline code, headings, links, prose.

use std::path::{Path, PathBuf};

/// A page of the documentation.
pub(super) struct Page {
    /// Path in the repository, such as `docs/policy.md`.
    pub name: String,
    lines: Vec<Line>,
}

struct Line {
    number: usize,
    text: String,
    /// Start and language of the fenced block that the line belongs to; `None` outside of blocks.
    block: Option<(usize, String)>,
}

/// A fenced block.
pub(super) struct Block {
    /// Page and line, for messages.
    pub place: String,
    pub language: String,
    pub text: String,
}

/// Returns the root of the repository.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads the README and every page of `docs/`.
pub(super) fn all() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .expect("docs/")
        .map(|entry| entry.expect("an entry of docs/").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 8, "{paths:?}");
    paths.insert(0, root().join("README.md"));
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Returns the files of Rust below a folder.
pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Reads one page by its path in the repository.
pub(super) fn one(name: &str) -> Page {
    Page::read(&root().join(name))
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
        let name = path.strip_prefix(root()).expect("a path in the repository").display().to_string();
        let mut block: Option<(usize, String)> = None;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            match (line.strip_prefix("```"), &block) {
                (Some(language), None) => block = Some((number, language.to_owned())),
                (Some(_), Some(_)) => block = None,
                (None, _) => lines.push(Line { number, text: line.to_owned(), block: block.clone() }),
            }
        }
        assert!(block.is_none(), "{name}: the block of line {block:?} is not closed");
        Self { name, lines }
    }

    /// Returns the fenced blocks in any of these languages.
    pub(super) fn blocks(&self, languages: &[&str]) -> Vec<Block> {
        let mut found: Vec<(usize, Block)> = Vec::new();
        for line in &self.lines {
            let Some((begin, language)) = line.block.clone() else { continue };
            if found.last().is_none_or(|(last, _)| *last != begin) {
                let place = format!("{}:{}", self.name, begin + 1);
                found.push((begin, Block { place, language, text: String::new() }));
            }
            let (_, block) = found.last_mut().expect("just pushed");
            block.text.push_str(&line.text);
            block.text.push('\n');
        }
        found.into_iter().map(|(_, block)| block).filter(|block| languages.contains(&block.language.as_str())).collect()
    }

    /// Returns the lines outside of blocks with their places.
    pub(super) fn prose(&self) -> impl Iterator<Item = (String, &str)> {
        self.lines
            .iter()
            .filter(|line| line.block.is_none())
            .map(|line| (format!("{}:{}", self.name, line.number), line.text.as_str()))
    }

    /// Returns inline code with its places.
    pub(super) fn code(&self) -> impl Iterator<Item = (String, &str)> {
        self.prose().flat_map(|(place, line)| code_in(line).into_iter().map(move |code| (place.clone(), code)))
    }

    /// Returns the targets of links with their places.
    pub(super) fn links(&self) -> impl Iterator<Item = (String, &str)> {
        let targets = |line: &str| -> Vec<(usize, usize)> {
            let begins = line.match_indices("](").map(|(at, _)| at + 2);
            begins.filter_map(|at| Some((at, at + line[at..].find(')')?))).collect()
        };
        // A link may be wrapped over two lines, but not within its target.
        self.prose()
            .flat_map(move |(place, line)| targets(line).into_iter().map(move |(from, to)| (place.clone(), &line[from..to])))
    }

    /// Returns the anchors of the headings, as GitHub makes them.
    pub(super) fn anchors(&self) -> Vec<String> {
        let headings =
            self.prose().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| line.trim_start_matches('#').trim());
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
    }
}

/// Returns the inline code of one line of Markdown.
pub(super) fn code_in(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(begin) = rest.find('`') {
        let fence = rest[begin..].find(|c| c != '`').unwrap_or(rest.len() - begin);
        let content = &rest[begin + fence..];
        let Some(end) = content.find(&"`".repeat(fence)) else { break };
        found.push(if fence > 1 { content[..end].trim() } else { &content[..end] });
        rest = &content[end + fence..];
    }
    found
}
