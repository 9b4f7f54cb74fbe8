//! Times and sizes for people, and numbers for programs.

/// A time for people: three digits and a unit.
pub(crate) fn time(ns: f64) -> String {
    if ns == 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value >= 100.0 { 0 } else { usize::from(value >= 10.0).abs_diff(2) };
    format!("{value:.decimals$} {unit}")
}

/// A class of sizes, from its smallest.
pub(crate) fn size(from_bytes: Option<u64>) -> String {
    match from_bytes {
        None => "-".to_owned(),
        Some(from) if from < 2 => format!("{from} B"),
        Some(from) => format!("{}-{} B", from, from * 2 - 1),
    }
}

/// Whole numbers as such, others to a tenth of a nanosecond.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SizeClass;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in
            [(0.0, "0"), (7.0, "7.00 ns"), (423_000.0, "423 us"), (1_500_000.0, "1.50 ms"), (12.34e9, "12.3 s")]
        {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn size_classes_end_before_the_next_begins() {
        let text = |bytes| size(Some(SizeClass::of(bytes).from_bytes()));
        assert_eq!(
            [text(0), text(1), text(2), text(3), text(64), text(127)],
            ["0 B", "1 B", "2-3 B", "2-3 B", "64-127 B", "64-127 B"]
        );
    }
}
