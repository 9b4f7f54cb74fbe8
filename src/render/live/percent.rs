//! Shares in percent.

/// A share in percent: a part above 0 is never shown as 0 %, a part below `all` never as 100 %.
pub(super) fn percent(part: u64, all: u64) -> String {
    if part == 0 || all == 0 {
        return "0 %".to_owned();
    }
    if part >= all {
        return "100 %".to_owned();
    }
    format!("{:.2} %", (part as f64 * 100.0 / all as f64).clamp(0.01, 99.99))
}
