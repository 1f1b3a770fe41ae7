//! Holds the floors that the crate documentation describes: reads the source and follows every path into this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The floors from the ground up: the folders of `src`. A file may use its own floor and those below.
const FLOORS: [&str; 5] = ["base", "core", "shell", "commands", "testing"];

/// The only files that name a type of the driver.
const DRIVER_FILES: [&str; 3] = ["shell::server::connect", "shell::server::wire::driver", "shell::server::wire::driver::errors"];

/// The only files that do something else in a test: there a simulation takes the place of the machine, its disk or the server.
const SEAMS: [&str; 3] = ["base::machine", "commands::session", "shell::archive"];

/// Paths that bring a clock, a file, a task or chance: values in, values out do without.
const IMPURE: [&[&str]; 7] =
    [&["fastrand"], &["mongodb"], &["std", "env"], &["std", "fs"], &["std", "io"], &["tokio"], &["tracing"]];

/// Keywords that name a type.
const KINDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// The files of the crate by the names of their modules, read once for all tests.
static FILES: LazyLock<BTreeMap<String, SourceFile>> = LazyLock::new(|| {
    let mut found = BTreeMap::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut found);
    found
});

/// The declarations and paths of a source file that the tests below compare.
struct SourceFile {
    /// The files that it declares under `#[cfg(test)]`.
    declared_for_tests: Vec<String>,
    /// Whether it has code under `#[cfg(test)]` that is not a module of tests.
    has_code_for_tests: bool,
    /// The types that it declares at its top level outside of tests.
    types: Vec<String>,
    /// The paths that it spells out outside of tests.
    paths: BTreeSet<Vec<String>>,
}

impl SourceFile {
    fn read(module: &str, file: &Path) -> Self {
        let tokens: TokenStream = fs::read_to_string(file).expect("a source file").parse().expect("Rust");
        let declared_for_tests = tests_of(tokens.clone()).iter().map(|name| format!("{module}::{name}")).collect();
        let has_code_for_tests = has_code_for_tests(tokens.clone());
        let tokens = without_tests(tokens);
        let words: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        let names = words.windows(2).filter(|pair| KINDS.contains(&pair[0].as_str()));
        let types = names.map(|pair| pair[1].clone()).collect();
        Self { declared_for_tests, has_code_for_tests, types, paths: paths(module, &tokens) }
    }

    /// Whether it spells out a path that begins with these names in another crate.
    fn spells(&self, module: &str, names: &[&str]) -> bool {
        let depth = module.split("::").count();
        self.paths.iter().any(|path| path.len() > depth + names.len() && names.iter().eq(&path[depth..depth + names.len()]))
    }
}

/// Returns the files that are compiled into the product.
fn product() -> impl Iterator<Item = (&'static str, &'static SourceFile)> {
    FILES.iter().map(|(module, file)| (module.as_str(), file)).filter(|(module, _)| !is_for_tests(module))
}

fn collect(dir: &Path, prefix: &str, found: &mut BTreeMap<String, SourceFile>) {
    for entry in fs::read_dir(dir).expect("a folder of the source").flatten() {
        let path = entry.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("names in UTF-8").to_owned();
        let name = if prefix.is_empty() { stem.clone() } else { format!("{prefix}::{stem}") };
        if path.is_dir() {
            collect(&path, &name, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !["main", "lib"].contains(&name.as_str()) {
            let file = SourceFile::read(&name, &path);
            found.insert(name, file);
        }
    }
}

/// Returns the names of the files that a file declares under `#[cfg(test)]`.
fn tests_of(tokens: TokenStream) -> Vec<String> {
    let words: Vec<String> = tokens.into_iter().map(|token| token.to_string().replace(' ', "")).collect();
    let of = |at: usize| {
        let after = words[at + 1..].iter().filter(|word| !word.starts_with("pub") && !word.starts_with('('));
        let [declares, name, end] = after.take(3).collect::<Vec<_>>()[..] else { return None };
        (declares == "mod" && end == ";").then(|| name.clone())
    };
    (0..words.len()).filter(|at| words[*at] == "[cfg(test)]").filter_map(of).collect()
}

/// Whether a file has code under `#[cfg(test)]` that is not a module of tests.
fn has_code_for_tests(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_attribute = |token: &TokenTree| token.to_string().replace(' ', "") == "[cfg(test)]";
    let is_module = |rest: &[TokenTree]| {
        let words: Vec<String> = rest.iter().take(3).map(ToString::to_string).collect();
        words.iter().find(|word| *word != "pub" && !word.starts_with('(')).is_some_and(|word| word == "mod")
    };
    let here = (0..tokens.len()).any(|at| is_attribute(&tokens[at]) && !is_module(&tokens[at + 1..]));
    here || tokens.into_iter().any(|token| matches!(token, TokenTree::Group(group) if has_code_for_tests(group.stream())))
}

/// Leaves out every item under `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_test = matches!((&token, tokens.peek()), (TokenTree::Punct(hash), Some(TokenTree::Group(attribute)))
            if hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)");
        if !is_test {
            kept.push(match token {
                TokenTree::Group(group) => {
                    Group::new(group.delimiter(), without_tests(group.stream()).into_iter().collect()).into()
                }
                token => token,
            });
            continue;
        }
        for skipped in tokens.by_ref() {
            let ends = match &skipped {
                TokenTree::Punct(punct) => [';', ','].contains(&punct.as_char()),
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            if ends {
                break;
            }
        }
    }
    kept
}

/// Returns the paths that a file spells out: the paths of this crate from its root, all others below the module itself.
fn paths(module: &str, tokens: &[TokenTree]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    walk(module, tokens, &mut found);
    found
}

fn walk(module: &str, tokens: &[TokenTree], found: &mut BTreeSet<Vec<String>>) {
    let own: Vec<String> = module.split("::").map(str::to_owned).collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => walk(module, &group.stream().into_iter().collect::<Vec<_>>(), found),
            TokenTree::Ident(ident) => {
                let base = match ident.to_string().as_str() {
                    "crate" => Vec::new(),
                    "super" => own[..own.len() - 1].to_vec(),
                    "self" => own.clone(),
                    // A path that begins with a child module, such as `pub use child::Thing`.
                    name => [own.as_slice(), &[name.to_owned()]].concat(),
                };
                follow(base, &tokens[index + 1..], found);
            }
            _ => {}
        }
    }
}

/// Follows `::name::{a, b::c}` from a base.
fn follow(mut base: Vec<String>, mut rest: &[TokenTree], found: &mut BTreeSet<Vec<String>>) {
    while let [TokenTree::Punct(first), TokenTree::Punct(second), next, further @ ..] = rest
        && (first.as_char(), second.as_char()) == (':', ':')
    {
        match next {
            TokenTree::Ident(name) if name == "super" => drop(base.pop()),
            TokenTree::Ident(name) => base.push(name.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')) {
                    if let [TokenTree::Ident(name), after @ ..] = part {
                        let base = if name == "self" { base.clone() } else { [base.as_slice(), &[name.to_string()]].concat() };
                        follow(base, after, found);
                    }
                }
                return;
            }
            _ => break,
        }
        rest = further;
    }
    found.insert(base);
}

/// Returns the modules that each module uses: the longest known beginning of each of its paths.
fn uses() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let resolve = |path: &[String]| {
        (1..=path.len()).rev().find_map(|length| FILES.get_key_value(&path[..length].join("::")).map(|(name, _)| name.as_str()))
    };
    let of = |module: &str, file: &SourceFile| {
        file.paths.iter().filter_map(|path| resolve(path)).filter(|used| *used != module).collect()
    };
    FILES.iter().map(|(module, file)| (module.as_str(), of(module, file))).collect()
}

fn floor(module: &str) -> usize {
    let root = module.split("::").next().unwrap_or_default();
    FLOORS.iter().position(|name| *name == root).unwrap_or_else(|| panic!("`{root}` is no floor: move it into one"))
}

/// Whether a module is compiled for tests only; it may import all others.
fn is_for_tests(module: &str) -> bool {
    module.split("::").any(|part| part == "testing" || part == "tests")
}

#[test]
fn files_for_tests_lie_under_testing_or_tests_or_are_named_tests() {
    let declared: Vec<&String> = FILES.values().flat_map(|file| &file.declared_for_tests).collect();
    let astray: Vec<&&String> = declared.iter().filter(|module| !is_for_tests(module)).collect();
    assert!(declared.len() > 10 && astray.is_empty(), "files that are compiled for tests only: {astray:?}");
}

#[test]
fn the_product_has_no_code_for_tests_but_where_a_simulation_takes_over() {
    let with_code: Vec<&str> = product().filter(|(_, file)| file.has_code_for_tests).map(|(module, _)| module).collect();
    assert_eq!(with_code, SEAMS);
}

#[test]
fn no_import_points_up() {
    let up: Vec<String> = uses()
        .iter()
        .flat_map(|(module, used)| used.iter().map(move |used| (*module, *used)))
        .filter(|(module, used)| !is_for_tests(module) && floor(used) > floor(module))
        .map(|(module, used)| format!("{module} ({}) -> {used} ({})", FLOORS[floor(module)], FLOORS[floor(used)]))
        .collect();
    assert!(up.is_empty(), "imports that point up:\n{}", up.join("\n"));
}

/// What decides is on the way to a delete; a report only tells. Nothing that decides asks a report.
#[test]
fn below_the_commands_only_reports_know_reports() {
    let is_report = |module: &str| module == "core::report" || module.starts_with("core::report::");
    let below = |module: &str| FLOORS[floor(module)] != "commands" && !is_for_tests(module) && !is_report(module);
    let knowing: Vec<String> = uses()
        .iter()
        .filter(|(module, _)| below(module))
        .flat_map(|(module, used)| used.iter().filter(|used| is_report(used)).map(move |used| format!("{module} -> {used}")))
        .collect();
    assert!(knowing.is_empty(), "imports of reports:\n{}", knowing.join("\n"));
}

/// A name stands for one thing: whoever searches for a type finds one.
#[test]
fn each_type_of_the_product_has_a_name_of_its_own() {
    let mut named: BTreeMap<&String, Vec<&str>> = BTreeMap::new();
    for (module, file) in product() {
        file.types.iter().for_each(|name| named.entry(name).or_default().push(module));
    }
    assert!(named.len() > 300, "{}", named.len());
    named.retain(|_, modules| modules.len() > 1);
    assert!(named.is_empty(), "types of one name: {named:#?}");
}

/// A module and the files of its own folder may use each other: only circles that leave the folder count.
#[test]
fn no_two_files_import_each_other() {
    let uses = uses();
    let is_own = |a: &str, b: &str| a.starts_with(&format!("{b}::")) || b.starts_with(&format!("{a}::"));
    let others = |module: &str| uses[module].iter().copied().filter(|used| !is_own(module, used)).collect();
    let others: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|module| (*module, others(module))).collect();
    assert_no_circle(&others, "files");
}

/// A room is a folder or a file of a floor, with all below it.
#[test]
fn no_two_rooms_import_each_other() {
    let mut rooms: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let is_in_room = |module: &str| module.contains("::") && !is_for_tests(module);
    for (module, used) in uses().into_iter().filter(|(module, _)| is_in_room(module)) {
        let others = used.into_iter().filter(|used| is_in_room(used)).map(room).filter(|used| *used != room(module));
        rooms.entry(room(module)).or_default().extend(others);
    }
    assert_no_circle(&rooms, "rooms");
}

/// Fails if a walk along `uses` comes back to where it began.
fn assert_no_circle(uses: &BTreeMap<&str, BTreeSet<&str>>, of: &str) {
    let next = |module: &str| uses.get(module).into_iter().flatten().copied().collect::<Vec<_>>();
    let in_circle: Vec<&str> = uses.keys().copied().filter(|module| reaches(module, module, &next)).collect();
    let lines: Vec<String> = in_circle
        .iter()
        .flat_map(|module| next(module).into_iter().map(move |used| (*module, used)))
        .filter(|(module, used)| reaches(used, module, &next))
        .map(|(module, used)| format!("{module} -> {used}"))
        .collect();
    assert!(lines.is_empty(), "{of} that import each other:\n{}", lines.join("\n"));
}

/// Returns the room of a module.
fn room(module: &str) -> &str {
    module.match_indices("::").nth(1).map_or(module, |(at, _)| &module[..at])
}

/// Whether a walk along `next` comes from one module to another.
fn reaches<'a>(from: &'a str, to: &str, next: &impl Fn(&str) -> Vec<&'a str>) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = next(from);
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            open.extend(next(module));
        }
    }
    false
}

#[test]
fn only_the_server_names_the_driver() {
    let others = product().filter(|(module, _)| !DRIVER_FILES.contains(module));
    let named: Vec<&str> = others.filter(|(module, file)| file.spells(module, &["mongodb"])).map(|(module, _)| module).collect();
    assert!(named.is_empty(), "files that name the driver: {named:?}");
}

#[test]
fn the_core_has_no_clock_no_files_and_no_driver() {
    // A type that tells the time, such as `Instant::now`; a variable may well be called `now`.
    let is_clock = |path: &[String]| matches!(path, [.., of, now] if now == "now" && of.starts_with(char::is_uppercase));
    let impure: Vec<String> = product()
        .filter(|(module, _)| FLOORS[floor(module)] == "core")
        .flat_map(|(module, file)| {
            let named = IMPURE.iter().filter(|path| file.spells(module, path)).map(|path| path.join("::"));
            let clocks = file.paths.iter().filter(|path| is_clock(path)).map(|path| path[path.len() - 2..].join("::"));
            named.chain(clocks).map(|name| format!("{module}: {name}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(impure.is_empty(), "values in, values out, but for:\n{}", impure.join("\n"));
}
