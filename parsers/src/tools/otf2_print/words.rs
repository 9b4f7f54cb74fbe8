//! Elements of `otf2-print` lines: words, numbers, and names with references.

/// The first word and the rest.
pub(super) fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    let end = text.find(' ').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(' '))
}

/// A number at the start of the text, and the rest.
pub(super) fn number<N: core::str::FromStr>(text: &str) -> Option<(N, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `NAME: NUMBER` at the end of the text: the text before it, and the number. `name` includes the
/// separators.
pub(super) fn last_number<'a, N: core::str::FromStr>(text: &'a str, name: &str) -> Option<(&'a str, N)> {
    let at = text.rfind(name)?;
    Some((&text[..at], text[at + name.len()..].trim_end().parse().ok()?))
}

/// The reference of `" <REFERENCE>` at the end of the text.
pub(super) fn last_reference(text: &str) -> Option<u64> {
    let at = text.rfind("\" <")?;
    text[at + 3..].trim_end().strip_suffix('>')?.parse().ok()
}

/// `"NAME" <REFERENCE>` followed by `next`: the name, the reference and the text after `next`.
pub(super) fn split_at_name<'a>(text: &'a str, next: &str) -> Option<(&'a str, u64, &'a str)> {
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
