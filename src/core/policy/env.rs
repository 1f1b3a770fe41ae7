//! `${NAME}` and `${NAME:-default}` inside the strings of a policy.

/// Replaces every reference in `raw`; `$${` stands for a literal `${`.
///
/// An empty variable counts as set for `${NAME}` and as unset for `${NAME:-default}`, as in a shell. The value is always text: it
/// is inserted after the YAML was parsed and cannot become a key, a number or a list.
///
/// Errors: what was found and what was expected; never the value of a variable.
pub(super) fn expand(raw: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at]);
            out.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let Some(length) = rest[at..].find('}') else {
            return Err("`${` is not closed; expected `${NAME}` or `${NAME:-default}`".into());
        };
        let reference = &rest[at + 2..at + length];
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Err(format!(
                "`${{{reference}}}` names no environment variable; expected `${{NAME}}` or `${{NAME:-default}}`"
            ));
        }
        match (env(name), default) {
            (Some(value), _) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (Some(_), None) => {}
            (None, None) => {
                return Err(format!(
                    "the environment variable `{name}` is not set; expected it in the environment, or a default: `${{{name}:-...}}`"
                ));
            }
        }
        rest = &rest[at + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_once() {
        let env = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRAP" => Some("${A}".to_owned()),
            _ => None,
        };
        for (raw, expected) in [
            ("plain $5 {x}", "plain $5 {x}"),
            ("${A}", "1"),
            ("x${A}y${A}", "x1y1"),
            ("${B:-two}", "two"),
            ("${B:-}", ""),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${TRAP}", "${A}"),
            ("$${A}", "${A}"),
        ] {
            assert_eq!(expand(raw, &env).as_deref(), Ok(expected), "{raw}");
        }
        for (raw, part) in [
            ("${B}", "`B` is not set"),
            ("${", "not closed"),
            ("${}", "names no environment variable"),
            ("${1A}", "names no environment variable"),
            ("${A B}", "names no environment variable"),
        ] {
            let message = expand(raw, &env).unwrap_err();
            assert!(message.contains(part), "{raw}: {message}");
        }
    }
}
