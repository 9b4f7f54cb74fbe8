//! The csv of the commands whose numbers a page shows: for each view of the page, the command and
//! its output, deflated.
//!
//! In: the data of the page and the command line that read them. Out: one JSON object. The
//! functions of the commands write the outputs, so a file that is saved from the page equals the
//! output of the command. The csv of the matrix depends on the choices of the user, so the page
//! writes it (`matrix.js`). Invariant: the outputs of a page take at most [`MAX_PAGE_BYTES`]. If an
//! output is left out, the page offers only its command.

use super::{Page, packed};
use crate::analysis::collectives::collectives;
use crate::analysis::health::{PauseTimes, health_series};
use crate::analysis::latency::{self as latencies, DEFAULT_LIMIT_NS, LatencyGrouping, LatencySeriesOptions};
use crate::analysis::matrix::Selection;
use crate::analysis::phases::{PhaseOptions, phases};
use crate::analysis::rates::{DEFAULT_WINDOW_NS, RateGrouping, grouped_rates};
use crate::analysis::timeline::sender_timeline;
use crate::analysis::{AnalysisError, GroupBy};
use crate::crosscheck::Crosscheck;
use crate::model::Profile;
use crate::render::{
    collective_instances, crosscheck, diagnose, health, latency, matrix, phases as rendered, ranks, rates,
};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Maximum length of one output before it is deflated.
const MAX_CSV_BYTES: u64 = 8 << 20;
/// Maximum length of all deflated outputs of a page together.
const MAX_PAGE_BYTES: usize = 768 << 10;

/// The command line that read the data of a page, quoted for a shell.
#[derive(Clone, Debug, Default)]
pub struct ReportSource {
    /// The inputs.
    pub inputs: String,
    /// Options that change how the inputs are read, except for the time window.
    pub options: String,
    /// Options that choose and change ranks: `--job`, `--strict`.
    pub scope: String,
    /// `--from` and `--to`.
    pub window: String,
    /// True for a profile, false for captures.
    pub is_profile: bool,
    /// The path of the compared profile.
    pub compared: Option<String>,
    /// The trace, and the options of its comparison.
    pub trace: Option<[String; 2]>,
}

impl ReportSource {
    /// The command line of `ibscope name` with these inputs and options; `view` has further
    /// options.
    fn command(&self, name: &str, view: &str) -> String {
        line(&[name, &self.inputs, &self.options, &self.scope, view, &self.window])
    }

    /// Arguments from which the scripts of the page build commands.
    pub(super) fn document(&self) -> Value {
        let Self { inputs, options, scope, window, is_profile, .. } = self;
        json!({ "inputs": inputs, "options": options, "scope": scope, "window": window, "is_profile": is_profile })
    }
}

/// A command line from all words that are not empty.
fn line(words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    format!("ibscope {}", words.join(" "))
}

/// A duration in the form that `--bin` accepts, without rounding.
fn exact(ns: i64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let (unit_ns, unit) = units.into_iter().find(|(unit_ns, _)| ns % unit_ns == 0).unwrap_or((1, "ns"));
    format!("{}{unit}", ns / unit_ns)
}

/// Writes a view of a cross-check.
type CrosscheckWriter = fn(&Crosscheck, &mut dyn Write) -> io::Result<()>;

/// The exports by name: the command without its format, and its output; null if it is left out.
pub(super) fn document(page: &Page<'_>, bins: ExportBins) -> io::Result<Value> {
    let mut exports = Exports { exports: Map::new(), left_bytes: MAX_PAGE_BYTES };
    of_profile(page, bins, &mut exports)?;
    of_latencies(page, bins, &mut exports)?;
    let source = page.source;
    if let Some(found) = page.instances.filter(|found| found.unknown_because.is_none()) {
        let is_whole = found.beyond_bound == 0 && found.nccl_beyond_bound == 0;
        let command = source.command("collectives", "--view instances");
        exports.add("instances", &command, &|out| {
            if is_whole { collective_instances::csv(found, out) } else { absent() }
        })?;
    }
    if let (Some(comparison), Some(other)) = (page.comparison, &source.compared) {
        exports.add("compared", &line(&["compare", &source.inputs, other]), &|out| comparison.csv(out))?;
        for (name, inputs, found) in comparison.rates([&source.inputs, other]) {
            let view = format!("--bin {}", exact(found.bin_ns));
            exports.add(name, &line(&["rates", inputs, &view]), &|out| rates::csv(found, out))?;
        }
    }
    if let (Some(checked), Some([trace, options])) = (page.crosscheck, &source.trace) {
        let command =
            |view| line(&["crosscheck", &source.inputs, trace, &source.options, &source.scope, options, view]);
        // With captures, the command also compares single messages, which the page does not have.
        let of_profile = |write: CrosscheckWriter| {
            move |out: &mut dyn Write| if source.is_profile { write(checked, out) } else { absent() }
        };
        exports.add("crosscheck", &command(""), &of_profile(crosscheck::csv))?;
        exports.add("delays", &command("--view delays"), &of_profile(crosscheck::delays_csv))?;
        exports.add("clocks", &command("--view clocks"), &of_profile(crosscheck::clocks_csv))?;
        exports.add("calls", &command("--view calls"), &of_profile(crosscheck::calls_csv))?;
    }
    if let Some(diagnosis) = page.diagnosis {
        // With captures, the command uses narrower bins than the page.
        exports.add("findings", &source.command("diagnose", ""), &|out| {
            if source.is_profile { diagnose::csv(diagnosis, &source.inputs, out) } else { absent() }
        })?;
    }
    Ok(Value::Object(exports.exports))
}

/// The widths of the bins that a page shows, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportBins {
    /// Bins of the senders over time; `None` if the page does not show them.
    pub(super) senders_ns: Option<i64>,
    /// Bins of the percentiles over time; `None` if the page does not show them.
    pub(super) latencies_ns: Option<i64>,
}

fn of_profile(page: &Page<'_>, bins: ExportBins, exports: &mut Exports) -> io::Result<()> {
    let Page { profile, source, .. } = *page;
    let by_class = grouped_rates(profile, Some(RateGrouping::Class), None, DEFAULT_WINDOW_NS).ok();
    exports.add("rates", &source.command("rates", "--by class"), &|out| match &by_class {
        Some(found) if found.check_rows().is_ok() => rates::csv(found, out),
        _ => absent(),
    })?;
    let all = grouped_rates(profile, None, None, DEFAULT_WINDOW_NS).ok();
    exports.add("sizes", &source.command("rates", "--view sizes"), &|out| {
        all.as_ref().map_or_else(absent, |found| rates::sizes_csv(found, out))
    })?;
    if let Some(bin_ns) = bins.senders_ns {
        let by = sender_grouping(profile);
        let view = format!("--by {} --traffic all --view senders --bin {}", by.name(), exact(bin_ns));
        let senders = sender_timeline(profile, by, Selection::All, Some(bin_ns));
        exports.add("senders", &source.command("timeline", &view), &written(senders, matrix::timeline_csv))?;
    }
    let found = phases(profile, &PhaseOptions::default());
    exports.add("phases", &source.command("phases", ""), &|out| rendered::csv(&found, out))?;
    let table = collectives(profile, GroupBy::Rank);
    exports.add("collectives", &source.command("collectives", "--by rank"), &|out| {
        crate::render::collectives::csv(&table, out)
    })?;
    exports.add("health", &source.command("health", ""), &|out| health::csv(profile, out))?;
    let over_time = written(health_series(profile), health::time_series_csv);
    exports.add("health_times", &source.command("health", "--by time"), &over_time)?;
    let pauses = PauseTimes::of(profile);
    if pauses.frames > 0 {
        let command = source.command("health", "--by pause-time");
        exports.add("pause_times", &command, &|out| health::pause_times_csv(&pauses, None, out))?;
    }
    exports.add("ranks", &source.command("ranks", ""), &|out| ranks::ranks_csv(profile, out))
}

/// Ranks if there are any, otherwise endpoints.
pub(super) fn sender_grouping(profile: &Profile) -> GroupBy {
    if profile.ranks.is_empty() { GroupBy::Endpoint } else { GroupBy::Rank }
}

fn of_latencies(page: &Page<'_>, bins: ExportBins, exports: &mut Exports) -> io::Result<()> {
    let Page { profile, source, .. } = *page;
    if profile.latencies.is_empty() {
        return Ok(());
    }
    let of = |by, sizes| latencies::latencies(profile, LatencyGrouping { by, sizes });
    let by_size = of(None, true);
    exports.add("latencies", &source.command("latency", ""), &|out| latency::csv(&by_size, DEFAULT_LIMIT_NS, out))?;
    let whole = of(None, false);
    let view = "--view buckets --all-sizes";
    exports.add("buckets", &source.command("latency", view), &|out| latency::bucket_csv(&whole, out))?;
    let by = sender_grouping(profile);
    let pairs = of(Some(by), false);
    let view = format!("{view} --by {}", by.name());
    exports.add("pair_buckets", &source.command("latency", &view), &|out| latency::bucket_csv(&pairs, out))?;
    let Some(bin_ns) = bins.latencies_ns else { return Ok(()) };
    let options = LatencySeriesOptions { bin_ns: Some(bin_ns), ..LatencySeriesOptions::default() };
    let series = latencies::time_series(profile, &options);
    let view = format!("--view timeline --bin {}", exact(bin_ns));
    exports.add("percentiles", &source.command("latency", &view), &written(series, latency::time_series_csv))
}

/// A function that writes a result; leaves the output out if the analysis failed.
fn written<T>(
    found: Result<T, AnalysisError>,
    write: impl Fn(&T, &mut dyn Write) -> io::Result<()>,
) -> impl Fn(&mut dyn Write) -> io::Result<()> {
    move |out| found.as_ref().map_or_else(|_| absent(), |found| write(found, out))
}

/// Returns the error for which [`Exports::add`] leaves an output out.
fn absent() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The exports of a page, and the number of bytes that further outputs may take.
struct Exports {
    exports: Map<String, Value>,
    left_bytes: usize,
}

impl Exports {
    /// Adds a command and the output of `write`. Leaves the output out if the page would become too
    /// large, or if `write` returns the error of [`absent`]. Returns other errors.
    fn add(&mut self, name: &str, command: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out =
            BoundedWriter { out: DeflateEncoder::new(Vec::new(), Compression::new(7)), left_bytes: MAX_CSV_BYTES };
        let csv = match write(&mut out) {
            Ok(()) => Some(out.out.finish()?).filter(|csv| csv.len() <= self.left_bytes),
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::FileTooLarge) => None,
            Err(error) => return Err(error),
        };
        self.left_bytes -= csv.as_ref().map_or(0, Vec::len);
        self.exports.insert(name.to_owned(), json!({ "command": command, "csv": csv.map(|csv| packed::base64(&csv)) }));
        Ok(())
    }
}

/// Deflates bytes up to a limit, beyond which writing fails.
struct BoundedWriter {
    out: DeflateEncoder<Vec<u8>>,
    left_bytes: u64,
}

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left_bytes = self.left_bytes.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(exports: &mut Exports, name: &str, length: usize) -> Value {
        // Bytes that cannot be deflated to less than half of their length.
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        exports.add(name, "ibscope", &|out| out.write_all(&bytes)).expect("added");
        exports.exports[name]["csv"].clone()
    }

    #[test]
    fn outputs_beyond_the_bound_of_a_page_are_left_out() {
        let mut exports = Exports { exports: Map::new(), left_bytes: 3000 };
        assert!(added(&mut exports, "first", 2000).is_string());
        assert!(added(&mut exports, "second", 2000).is_null(), "1000 bytes are left");
        assert!(added(&mut exports, "third", 500).is_string());
        let mut exports = Exports { exports: Map::new(), left_bytes: usize::MAX };
        assert!(added(&mut exports, "long", MAX_CSV_BYTES as usize + 1).is_null());
    }

    #[test]
    fn widths_of_bins_are_exact() {
        assert_eq!([10_000_000, 2_000_000_000, 2_500, 2_501].map(exact), ["10ms", "2s", "2500ns", "2501ns"]);
    }

    #[test]
    fn commands_have_the_options_and_the_window_of_the_page() {
        let source = ReportSource {
            inputs: "a.pcap".to_owned(),
            options: "--hosts h.csv".to_owned(),
            window: "--to 2.5".to_owned(),
            ..ReportSource::default()
        };
        assert_eq!(
            source.command("latency", "--all-sizes"),
            "ibscope latency a.pcap --hosts h.csv --all-sizes --to 2.5"
        );
        assert_eq!(source.command("health", ""), "ibscope health a.pcap --hosts h.csv --to 2.5");
    }
}
