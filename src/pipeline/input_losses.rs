//! Finds the inputs that miss records, and when.
//!
//! In: the record series of the inputs. Out: one [`InputLoss`] per input that misses records, and
//! the same as a reason of the verdict. Times count from the first packet of all captures.

use crate::model::profile::Input;
use crate::model::trust::{InputLoss, LossTimes};
use crate::model::{MissingInBin, Profile, RecordSeries, count_either, printable};

/// Width of the window that the report of a long loss names.
const WORST_NS: i64 = 60_000_000_000;

/// The inputs that miss records. The bins of the series are those of the profile's timeline.
pub(super) fn input_losses(profile: &Profile, series: &[RecordSeries]) -> Vec<InputLoss> {
    let origin_ns = profile.coverage.first_time_ns.unwrap_or_default();
    let loss = |(input, series): (&Input, &RecordSeries)| {
        let bins: Vec<MissingInBin> = series.missing().into_iter().filter(|bin| bin.missing > 0).collect();
        InputLoss {
            input: printable(&input.name),
            missing_records: series.total.missing(),
            times: times(&bins, profile.bin_ns, origin_ns),
        }
    };
    profile.inputs.iter().zip(series).filter(|(_, series)| series.total.missing() > 0).map(loss).collect()
}

/// The span of the bins, and the worst minute if the span is longer.
fn times(bins: &[MissingInBin], bin_ns: i64, origin_ns: i64) -> Option<LossTimes> {
    let start_ns = |bin: &MissingInBin| bin.bin.saturating_mul(bin_ns).saturating_sub(origin_ns).max(0);
    let end_ns = |bin: &MissingInBin| (bin.bin + 1).saturating_mul(bin_ns).saturating_sub(origin_ns);
    let (from_ns, to_ns) = (start_ns(bins.first()?), end_ns(bins.last()?));
    let mut times = LossTimes { from_ns, to_ns, worst_from_ns: from_ns, worst_to_ns: to_ns, worst_records: 0 };
    let (mut first, mut sum) = (0, 0);
    for (last, bin) in bins.iter().enumerate() {
        sum += bin.missing;
        while first < last && end_ns(bin) - start_ns(&bins[first]) > WORST_NS {
            sum -= bins[first].missing;
            first += 1;
        }
        if sum > times.worst_records {
            (times.worst_from_ns, times.worst_to_ns, times.worst_records) = (start_ns(&bins[first]), end_ns(bin), sum);
        }
    }
    Some(times)
}

/// The loss as a reason of the verdict.
pub(super) fn reason(loss: &InputLoss) -> String {
    let seconds = |ns: i64| format!("{:.2}", ns as f64 / 1e9);
    let when = loss.times.map_or_else(String::new, |times| {
        let LossTimes { from_ns, to_ns, worst_from_ns, worst_to_ns, worst_records } = times;
        let span = format!(", from {} to {} s", seconds(from_ns), seconds(to_ns));
        if to_ns - from_ns <= WORST_NS {
            return span;
        }
        format!(
            "{span}, {worst_records} of them in the worst minute, from {} to {} s",
            seconds(worst_from_ns),
            seconds(worst_to_ns)
        )
    });
    format!(
        "{} misses {}{when}: lost by this capture, or on the fabric before its observation point; compare the rate at \
         that time with the link of the sink (`health --link`)",
        loss.input,
        count_either(loss.missing_records, "record that other records show", "records that other records show")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(bin: i64, missing: u64) -> MissingInBin {
        MissingInBin { bin, expected: 100, missing }
    }

    #[test]
    fn a_long_loss_names_its_worst_minute() {
        let second_ns = 1_000_000_000;
        let short = times(&[bin(5, 1), bin(9, 3)], second_ns, 2 * second_ns);
        let expected = LossTimes {
            from_ns: 3 * second_ns,
            to_ns: 8 * second_ns,
            worst_from_ns: 3 * second_ns,
            worst_to_ns: 8 * second_ns,
            worst_records: 4,
        };
        assert_eq!(short, Some(expected));
        // 3 + 4 records within the first 60 s, 4 + 5 + 1 from 59 to 111 s.
        let long = [bin(0, 3), bin(59, 4), bin(100, 5), bin(110, 1)];
        let found = times(&long, second_ns, 0).expect("times");
        assert_eq!(
            (found.worst_from_ns, found.worst_to_ns, found.worst_records),
            (59 * second_ns, 111 * second_ns, 10)
        );
        let loss = InputLoss { input: "sink.pcap".to_owned(), missing_records: 13, times: Some(found) };
        let expected = "sink.pcap misses 13 records that other records show, from 0.00 to 111.00 s, 10 of them in the worst \
                        minute, from 59.00 to 111.00 s: ";
        assert!(reason(&loss).starts_with(expected), "{}", reason(&loss));
        assert_eq!(times(&[], second_ns, 0), None);
    }
}
