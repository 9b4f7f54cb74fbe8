//! Durations and foreign texts for people.

/// A duration in the largest unit that leaves no fraction beyond three digits.
#[must_use]
pub fn duration(ns: i64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    for (unit_ns, name) in units {
        if ns >= unit_ns && ns % (unit_ns / 1_000) == 0 {
            let text = format!("{:.3}", ns as f64 / unit_ns as f64);
            return format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{ns} ns")
}

/// Ascending numbers, with runs as ranges: `1-3, 7`.
#[must_use]
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A text that someone else wrote, without what a terminal would obey: control characters, and those that turn the direction of writing, as `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// What stands in a file, made fit for a terminal and not longer than a line.
#[must_use]
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    let cut = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    format!("`{shown}{cut}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_ranges() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([4]), "4");
        assert_eq!(ranges([1, 2, 4, 5, 6, u32::MAX]), "1, 2, 4-6, 4294967295");
    }

    #[test]
    fn terminals_are_not_given_orders() {
        assert_eq!(printable("n\u{f6}de \u{1b}[2J\u{202e}x"), "n\u{f6}de \\u{1b}[2J\\u{202e}x");
    }
}
