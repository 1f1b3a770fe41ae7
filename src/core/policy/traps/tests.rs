use crate::core::policy::parse::parse;

/// Returns the one problem of a policy, with its line and column.
fn problem(text: &str) -> String {
    let lines = parse("p", text, &|_| None, true).unwrap_err().lines();
    assert_eq!(lines.len(), 1, "{text}: {lines:?}");
    lines[0].clone()
}

#[test]
fn mistakes_of_yaml_are_named_where_they_are() {
    let indentation = "the indentation fits no line above; keys of one mapping begin in the same column";
    let blank = "an invisible character (U+00A0) is no space of YAML, and a part of what stands there; expected a space";
    for (rule, said) in [
        ("namespace: *.x", "p:3:16: `*.x` without quotes is an alias of YAML; expected \"*.x\" in quotes"),
        ("namespace: *", "p:3:16: `*` without quotes is an alias of YAML; expected \"*\" in quotes"),
        ("namespace: *app", "p:3:16: `*app` without quotes is an alias of YAML; expected \"*app\" in quotes"),
        ("exclude: [a.b, *.x]", "p:3:20: `*.x` without quotes is an alias of YAML; expected \"*.x\" in quotes"),
        ("name: &", "p:3:11: `&` at the beginning of a value marks an anchor of YAML; expected the value in quotes"),
        ("filter: {a: ${A}}", "p:3:17: a variable inside braces or brackets needs quotes; expected \"${NAME}\""),
        ("filter: {a: [1, ${A}]}", "p:3:21: a variable inside braces or brackets needs quotes; expected \"${NAME}\""),
        ("namespace:a.b\n    field: at", "p:3:5: no space after the colon of `namespace`; expected `namespace: ...`"),
        ("name: x\n    field:at\n    hint: x", "p:4:5: no space after the colon of `field`; expected `field: ...`"),
        ("name: x\n  -name: y", "p:4:3: no space after the `-` of an item; expected `- `"),
        ("name: a: b", "p:3:12: a value with a colon and a space in it needs quotes"),
        ("name: x\n   field: at", &format!("p:4:4: {indentation}")),
        ("name: x\n     field: at", &format!("p:4:11: {indentation}")),
        ("name: x\n    field", "p:4:5: expected a key, a colon and a space, then the value"),
        ("name: @x", "p:3:11: `@` cannot begin a value or a key without quotes; expected single quotes around it"),
        ("name: 'x\n    field: at", "p:3:11: the quote that opens here is not closed"),
        ("name: \"a\\d\"", r"p:3:13: `\` in double quotes begins an escape; expected `\\`, or single quotes around the value"),
        ("filter: {a: [1, 2}", "p:3:17: the `[` that opens here lacks its `]`, or a comma between two entries"),
        ("filter: {a: {b: 1}\n    field: at", "p:3:13: the `{` that opens here lacks its `}`, or a comma between two entries"),
        ("filter: {a: !done}", "p:3:17: `!` at the beginning of a value marks a tag of YAML; expected the value in quotes"),
        ("name: !!int x", "p:3:11: the value is none of its tag's type; expected the value without the tag"),
        (
            "namespace: |x",
            "p:3:16: `|` begins a block of lines, the first on the next line; expected a value that begins with it in quotes",
        ),
        (
            "filter: {a: #done}\n    field: at",
            "p:3:17: `#` behind a space begins a comment, so that no value is left; expected quotes around the value",
        ),
        (
            "filter: {a: #done}",
            "p:3:17: `#` behind a space begins a comment, so that no value is left; expected quotes around the value",
        ),
        ("filter: &f {a: *f}", "p:3:13: the anchor `&f` has its own alias `*f` inside; expected the value itself"),
        ("filter: {a: 'it's'}", "p:3:21: the quote before this place ends the value; expected `''` for one inside single quotes"),
        (
            "name: \"the \"old\" ones\"",
            r#"p:3:17: the quote before this place ends the value; expected `\"` for one inside double quotes"#,
        ),
        (
            "name: [old] carts",
            "p:3:17: the `]` before this place ends the value; expected nothing behind it, or the whole value in quotes",
        ),
        (
            "filter: {a: 1},",
            "p:3:19: the `}` before this place ends the value; expected nothing behind it, or the whole value in quotes",
        ),
        (
            "filter: {a: {$regex: ^[a-z]}}",
            "p:3:27: a value with brackets or braces in it needs quotes inside other brackets or braces",
        ),
        ("filter: {a: `b`}", "p:3:17: a backtick cannot begin a value or a key without quotes; expected single quotes around it"),
        ("name: ,b", "p:3:11: `,` cannot begin a value or a key without quotes; expected single quotes around it"),
        (
            "name: - b",
            "p:3:11: `-` and a space cannot begin a value in the line of its key; expected quotes, or a line of its own",
        ),
        ("filter:\n      a: $gt: 5", "p:4:13: an operator needs braces; expected {$gt: ...}"),
        ("filter:\n      $or:1\n      a: 2", "p:4:7: no space after the colon of `$or`; expected `$or: ...`"),
        ("name: x\n\u{a0}\u{a0}\u{a0}\u{a0}field: at", &format!("p:4:1: {blank}")),
        ("name: x\n    field:\u{a0}at\n    hint: x", &format!("p:4:11: {blank}")),
        ("name: x\n  – name: y", "p:4:3: `–` is no dash of YAML; expected `-`"),
        ("name: a\u{7}b", "p:3:12: a control character (U+0007), which no YAML has; expected text"),
        ("filter:\n\t{a: 1}", "p:4:1: found a tab character; YAML takes only spaces to indent and separate"),
    ] {
        assert_eq!(problem(&format!("version: 1\ncollections:\n  - {rule}\n")), said, "{rule}");
    }
    assert_eq!(
        problem("%version: 1\ncollections:\n  - name: x\n"),
        "p:1:9: `%` at the beginning of a line is a directive of YAML; expected a key, in quotes if it has a `%`"
    );
    assert_eq!(
        problem("version:1\ncollections:\n  - name: x\n"),
        "p:1:1: no space after the colon of `version`; expected `version: ...`"
    );
    let second = "more than one YAML document; expected one policy without a line `---` or `...` in its middle";
    for text in ["version: 1\n---\ncollections: []\n", "---\nversion: 1\n...\nx: 1\n", "# x\n---\nversion: 1\n---\n"] {
        let line = if text.starts_with('v') {
            2
        } else if text.starts_with('-') {
            3
        } else {
            4
        };
        assert_eq!(problem(text), format!("p:{line}:1: {second}"), "{text}");
    }
}

#[test]
fn a_file_of_another_kind_is_no_policy() {
    let said = "p: no policy; expected YAML with the keys `version` and `collections`, as `sweeper init` writes it";
    for text in ["[package]\nversion = \"1\"\n", "%PDF-1.4\n", "\u{7f}ELF\u{1}\n", "// x\n{\"a\": 1}\n", "a: 1\n---\nb: 2\n"] {
        assert_eq!(problem(text), said, "{text:?}");
    }
}

#[test]
fn a_mapping_whose_only_key_lacks_its_space_is_named() {
    let rules = "collections:\n  - {namespace: a.b, field: at, expireAfter: 1d}\n";
    let said = "p:2:7: `lock`: no space after the colon of `collection`; expected `collection: ...`";
    assert_eq!(problem(&format!("version: 1\nlock: collection:a.x\n{rules}")), said);
}

#[test]
fn no_value_is_quoted() {
    for uri in ["uri:mongodb://u:hunter2@h", "uri: mongodb://u:hunter2@h: x", "uri: 'mongodb://u:hunter2@h", "uri: @hunter2"] {
        for text in [format!("connection:\n  {uri}\nversion: 1\ncollections: []\n"), format!("version: 1\nconnection: {{{uri}\n")]
        {
            let said = parse("p", &text, &|_| None, true).unwrap_err().to_string();
            assert!(!said.contains("hunter2"), "{text}: {said}");
        }
    }
}
