//! What lines are made of: words, numbers, and names with their references.

/// The first word and what follows it.
pub(super) fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    let end = text.find(' ').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(' '))
}

/// A number at the start, and what follows it.
pub(super) fn number<N: core::str::FromStr>(text: &str) -> Option<(N, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `NAME: NUMBER` at the end: what stands before it, and the number.
pub(super) fn last<'a, N: core::str::FromStr>(text: &'a str, name: &str) -> Option<(&'a str, N)> {
    let at = text.rfind(name)?;
    Some((&text[..at], text[at + name.len()..].trim_end().parse().ok()?))
}

/// `" <REFERENCE>` at the end.
pub(super) fn last_reference(text: &str) -> Option<u64> {
    let at = text.rfind("\" <")?;
    text[at + 3..].trim_end().strip_suffix('>')?.parse().ok()
}

/// `"NAME" <REFERENCE>` and then `next`: the name, the reference, and what follows `next`.
pub(super) fn named<'a>(text: &'a str, next: &str) -> Option<(&'a str, u64, &'a str)> {
    let text = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let end = from + text[from..].find("\" <")?;
        if let Some((reference, rest)) = number(&text[end + 3..])
            && let Some(rest) = rest.strip_prefix('>').and_then(|rest| rest.strip_prefix(next))
        {
            return Some((&text[..end], reference, rest));
        }
        from = end + 3;
    }
}
