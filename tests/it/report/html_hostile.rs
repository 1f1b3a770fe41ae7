//! HTML reports with hostile texts and with very many rules: the page keeps its shape and stays small.

use crate::support::page::{all, audit, page, text, texts};
use scraper::{ElementRef, Html};
use serde_json::{Value, json};
use ttl_sweeper::base::text::clean;

/// Keys whose values are instants or words of the program, so that no outsider can write them.
const TYPED: [&str; 11] = [
    "status",
    "command",
    "runId",
    "strategy",
    "asOf",
    "startedAt",
    "threshold",
    "oldestExpired",
    "newestExpired",
    "from",
    "date",
];

/// Replaces every text of a report except the typed ones.
fn replace(value: &mut Value, key: &str, with: &str) {
    match value {
        Value::String(text) if !TYPED.contains(&key) => *text = with.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, key, with)),
        Value::Object(map) if key == "neverExpires" || key == "neverExpiresSamples" => {
            let entries = std::mem::take(map).into_iter().enumerate();
            map.extend(entries.map(|(index, (_, value))| (format!("{index}{with}"), value)));
            map.iter_mut().for_each(|(_, value)| replace(value, "", with));
        }
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| replace(value, key, with)),
        _ => {}
    }
}

/// Returns the elements of a page with the names of their attributes, in order.
fn shape(page: &str) -> Vec<String> {
    let html = Html::parse_document(page);
    let elements = html.root_element().descendants().filter_map(ElementRef::wrap);
    // A backtick in a text makes a part of it code, which holds nothing but text.
    let is_in_text = |element: &ElementRef| {
        let parent = element.parent().and_then(ElementRef::wrap);
        element.value().name() == "code" && parent.is_some_and(|parent| parent.value().name() == "bdi")
    };
    elements
        .filter(|element| !is_in_text(element))
        .map(|element| {
            let attributes: Vec<&str> = element.value().attrs().map(|(name, _)| name).collect();
            format!("{} {}", element.value().name(), attributes.join(" "))
        })
        .collect()
}

#[test]
fn texts_from_outside_cannot_change_the_page() {
    let with = |text: &str| {
        let mut report = audit();
        replace(&mut report, "", text);
        page(&report)
    };
    let plain = shape(&with("plain"));
    assert!(plain.len() > 500);
    for hostile in [
        "<script>alert(1)</script>",
        "</title></style></script></svg></text><img src=x onerror=alert(1)>",
        "\" onmouseover=\"alert(1)\" x=\"",
        "' onmouseover='alert(1)' x='",
        "--><svg onload=alert(1)><!--",
        "&lt;b&gt;&#60;i&#62;&amp;",
        "{{x}}${x}`]]>",
        "\u{202e}\u{2066}\u{200f}\u{feff}\u{0}\u{7}\u{1b}[31m\r\n\t\u{85}",
        "שלום مرحبا",
        "\u{1f600}aé\u{301}",
    ] {
        let page = with(hostile);
        assert_eq!(shape(&page), plain, "{hostile:?}");
        let hidden = |c: char| {
            c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c) || "\u{2066}\u{200f}\u{feff}".contains(c)
        };
        assert_eq!(page.chars().find(|c| hidden(*c)), None, "{hostile:?}");
        let html = Html::parse_document(&page);
        let shown = all(html.root_element(), "summary h3")[0].text().collect::<String>();
        assert!(shown.starts_with(&clean(hostile)), "{shown:?}");
    }
}

fn many(number: usize, rule: impl Fn(usize) -> Value) -> Value {
    let mut report = audit();
    let rules: Vec<Value> = (0..number)
        .map(|index| {
            let mut rule = rule(index);
            rule["name"] = json!(format!("rule {index}"));
            rule["namespace"] = json!(format!("tenant_{index}.jobs"));
            rule
        })
        .collect();
    report["rules"] = json!(rules);
    report
}

#[test]
fn rules_without_anything_to_say_are_folded_among_many() {
    let fixture = audit();
    let page = page(&many(200, |index| fixture["rules"][if index % 50 == 0 { 0 } else { 4 }].clone()));
    let html = Html::parse_document(&page);
    let root = html.root_element();
    assert_eq!(all(root, "section > .scroll tbody tr").len(), 4);
    assert_eq!(texts(root, ".quiet summary"), ["196 more rules with nothing expired"]);
    assert_eq!(all(root, ".quiet tbody tr").len(), 196);
    assert_eq!(all(root, "details.rule[open]").len(), 4);
    assert!(page.len() < 250_000, "{} bytes", page.len());
}

#[test]
fn two_thousand_rules_make_no_huge_file_and_lose_no_error_or_warning() {
    let fixture = audit();
    let page = page(&many(2_000, |index| {
        let mut rule = fixture["rules"][if index == 1_999 { 3 } else { index % 2 }].clone();
        rule["warnings"] = json!([format!("warning {index}")]);
        rule
    }));
    assert!(page.len() < 12_000_000, "{} bytes", page.len());
    let html = Html::parse_document(&page);
    let root = html.root_element();
    let rules = all(root, "details.rule");
    assert_eq!((rules.len(), all(root, "details.rule[open]").len()), (2_000, 0));
    for (index, rule) in rules.iter().enumerate() {
        assert!(text(*rule).contains(&format!("warning {index}")), "{index}");
    }
    assert!(text(rules[1_999]).contains("not authorised"));
    assert!(texts(root, ".attention li")[0].starts_with("failed rule 1999"), "the failed rule is named first");
    assert_eq!(all(root, "details.rule:has(.chart)").len(), 199, "the failed rule is shown in full, but has no chart");
    assert!(text(root).contains("shown for the 200 rules that went wrong or have most expired documents"));
}
