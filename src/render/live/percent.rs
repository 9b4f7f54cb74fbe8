//! Shares of what is there.

/// A share in percent: what is there is never shown as nothing, what is not all never as all.
pub(super) fn percent(part: u64, all: u64) -> String {
    if part == 0 || all == 0 {
        return "0 %".to_owned();
    }
    if part >= all {
        return "100 %".to_owned();
    }
    format!("{:.2} %", (part as f64 * 100.0 / all as f64).clamp(0.01, 99.99))
}
