//! Builds the words of a command line from the inputs and the input options of a command, because a
//! report shows the commands that print its numbers. Invariant: the words reproduce every option
//! that changes a number.

use super::arguments::{InputArgs, ScopeArgs};
use super::job_choice::JobChoice;
use crate::pipeline::{self, TimePoint};
use crate::render::html::ReportSource;
use ibscope_orchestrator::quote::argv_text;
use std::path::{Path, PathBuf};

/// The inputs and options of a command. Leaves out the options that change no number: `--threads`
/// and `--min-coverage`.
pub(in crate::cli) fn source(inputs: &[PathBuf], reading: &InputArgs, scope: ScopeArgs) -> ReportSource {
    let InputArgs { hosts, rankmap, from, to, manifest, no_align, streams, sampled, .. } = reading;
    let words = |words: Vec<String>| argv_text(&words);
    let mut options = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        options.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    add("--hosts", hosts.as_deref().map(path));
    add("--rankmap", rankmap.as_deref().map(path));
    add("--manifest", manifest.as_deref().map(path));
    add("--streams", streams.as_deref().map(path));
    add("--sampled", sampled.map(|rate| format!("1/{rate}")));
    let most = Some(reading.max_connections).filter(|most| *most != pipeline::DEFAULT_MAX_CONNECTIONS);
    add("--max-connections", most.map(|most| most.to_string()));
    add("--max-decompressed", reading.max_decompressed.map(|bytes| bytes.to_string()));
    options.extend(no_align.then(|| "--no-align".to_owned()));
    let job = if let JobChoice::Only(job) = scope.job { Some(["--job".to_owned(), job.to_string()]) } else { None };
    let strict = scope.strict.then(|| "--strict".to_owned());
    let bound = |name: &str, value: Option<TimePoint>| value.map(|value| [name.to_owned(), moment(value)]);
    let window = [bound("--from", *from), bound("--to", *to)];
    ReportSource {
        inputs: words(inputs.iter().map(|input| path(input)).collect()),
        options: words(options),
        scope: words(job.into_iter().flatten().chain(strict).collect()),
        window: words(window.into_iter().flatten().flatten().collect()),
        is_profile: inputs.iter().any(|input| pipeline::is_profile(input)),
        ..ReportSource::default()
    }
}

/// A path as a word of a command line, not yet quoted.
pub(in crate::cli) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A time in the form that `--from` and `--to` accept.
fn moment(moment: TimePoint) -> String {
    match moment {
        TimePoint::SinceStart(ns) => format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
        TimePoint::Absolute(ns) => {
            jiff::Timestamp::from_nanosecond(ns.into()).map_or_else(|_| ns.to_string(), |time| time.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::common::parse;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        inputs: Vec<PathBuf>,
        #[command(flatten)]
        reading: InputArgs,
        #[command(flatten)]
        scope: ScopeArgs,
    }

    fn of(words: &[&str]) -> ReportSource {
        let command = Command::parse_from([&["report"], words].concat());
        source(&command.inputs, &command.reading, command.scope)
    }

    #[test]
    fn options_that_change_numbers_are_repeated_as_words_of_a_shell() {
        let given = of(&["a b.pcap", "c.pcap", "--hosts", "it's", "--threads", "2", "--strict", "--job", "2"]);
        assert_eq!((given.inputs.as_str(), given.is_profile), ("'a b.pcap' c.pcap", false));
        assert_eq!((given.options.as_str(), given.scope.as_str()), (r"--hosts 'it'\''s'", "--job 2 --strict"));
        assert_eq!(of(&["a.pcap", "--min-coverage", "5"]).options, "");
    }

    #[test]
    fn a_time_is_repeated_without_a_change() {
        for text in ["0", "1.5", "0.000000001", "2026-11-20T10:00:00.000000001Z"] {
            let given = parse::moment(text).expect("time");
            assert_eq!(parse::moment(&moment(given)), Ok(given), "{text}");
        }
        let given = of(&["a.pcap", "--from", "1.5"]);
        assert_eq!(given.window, "--from 1.500000000");
    }
}
