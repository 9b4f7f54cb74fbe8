//! Text forms of durations, counts, number ranges and untrusted text.

/// A duration in the largest unit that needs at most three decimal places.
#[must_use]
pub fn duration(ns: i64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    for (unit_ns, name) in units {
        if ns >= unit_ns && ns % (unit_ns / 1_000) == 0 {
            let text = format!("{:.3}", ns as f64 / unit_ns as f64);
            return format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{ns} ns")
}

/// Formats an integer with its digits in groups of three.
#[must_use]
pub fn group(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a count and a noun: `1 packet`, `2 packets`.
#[must_use]
pub fn count_of(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", group(count), if count == 1 { "" } else { "s" })
}

/// Formats a count and a phrase whose plural is not the singular with an `s` at its end.
#[must_use]
pub fn count_either(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", group(count), if count == 1 { one } else { many })
}

/// Ascending numbers, with consecutive ones as ranges: `1-3, 7`.
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

/// Untrusted text without characters that control a terminal: control characters and changes of the
/// writing direction are escaped as `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> String {
    let changes_direction =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || changes_direction(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// Quotes text from a file: escaped for a terminal and at most 60 characters long.
#[must_use]
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    let ellipsis = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    format!("`{shown}{ellipsis}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_groups_of_digits_and_a_plural() {
        assert_eq!([group(0), group(1_234_567)], ["0", "1 234 567"]);
        assert_eq!([count_of(1, "NAK"), count_of(0, "NAK"), count_of(2000, "NAK")], ["1 NAK", "0 NAKs", "2 000 NAKs"]);
        assert_eq!([count_either(1, "is", "are"), count_either(2, "is", "are")], ["1 is", "2 are"]);
    }

    #[test]
    fn runs_of_numbers_are_ranges() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([4]), "4");
        assert_eq!(ranges([1, 2, 4, 5, 6, u32::MAX]), "1, 2, 4-6, 4294967295");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("n\u{f6}de \u{1b}[2J\u{202e}x"), "n\u{f6}de \\u{1b}[2J\\u{202e}x");
    }
}
