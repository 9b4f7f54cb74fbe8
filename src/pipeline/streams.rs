//! The inputs that are tracked as one stream: the files of one rotated capture.
//!
//! In: packet samples of the inputs, and the user's own list, which takes precedence. Out: groups
//! of inputs in the order of time. Invariant: each input is in exactly one stream.

use crate::align::{self, PacketSample};
use crate::model::quoted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Error in the user's list of streams.
#[derive(Debug, thiserror::Error)]
#[error("{}: line {line}: {what}", path.display())]
pub struct StreamsError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: u64,
    /// The reason.
    pub what: String,
}

/// Parses a list of streams: csv `file,stream` with a header line. `path` is for errors. A file is
/// one of `inputs`, or the end of the path of exactly one. Returns the stream of each input in the
/// list.
///
/// # Errors
/// The csv is malformed, or a file is not exactly one input.
pub fn parse_streams(
    path: &Path,
    text: &str,
    inputs: &[PathBuf],
) -> Result<BTreeMap<PathBuf, String>, Box<StreamsError>> {
    let error = |line: u64, what: String| Box::new(StreamsError { path: path.to_owned(), line, what });
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let is_header = reader.headers().is_ok_and(|header| header == ["file", "stream"].as_slice());
    if !is_header {
        return Err(error(1, "expected the header `file,stream`".to_owned()));
    }
    let mut streams = BTreeMap::new();
    for row in reader.records() {
        let row = row.map_err(|problem| {
            error(problem.position().map_or(1, csv::Position::line), format!("{problem}; expected `file,stream`"))
        })?;
        let line = row.position().map_or(1, csv::Position::line);
        let (file, stream) = (&row[0], &row[1]);
        let input = input_of(file, inputs).map_err(|what| error(line, what))?;
        if streams.insert(input.clone(), stream.to_owned()).is_some() {
            return Err(error(line, format!("{} is listed already; list each file once", quoted(file))));
        }
    }
    Ok(streams)
}

/// The input that a file of the list names.
fn input_of<'a>(file: &str, inputs: &'a [PathBuf]) -> Result<&'a PathBuf, String> {
    if let Some(same) = inputs.iter().find(|input| input.as_path() == Path::new(file)) {
        return Ok(same);
    }
    let found: BTreeSet<&PathBuf> = inputs.iter().filter(|input| input.ends_with(file)).collect();
    match (found.first(), found.len()) {
        (Some(only), 1) => Ok(only),
        (None, _) => Err(format!("{} is not among the captures; give its path as on the command line", quoted(file))),
        (_, several) => Err(format!("{} is the name of {several} captures; give more of its path", quoted(file))),
    }
}

/// Groups the inputs by stream. `spans_ns` are the times of their first and last record. `given`
/// are the streams of the user's list, by path; the packets show which of the other inputs form one
/// stream.
pub(super) fn group(
    paths: &[PathBuf],
    samples: &[Option<PacketSample>],
    spans_ns: &[Option<(i64, i64)>],
    repeats: impl FnMut(usize, usize) -> bool,
    given: &BTreeMap<PathBuf, String>,
) -> Vec<Vec<usize>> {
    let name = |input: usize| paths.get(input).and_then(|path| given.get(path));
    let unlisted = samples.iter().enumerate().map(|(input, sample)| sample.as_ref().filter(|_| name(input).is_none()));
    let mut streams = align::chains(&unlisted.collect::<Vec<_>>(), spans_ns, repeats);
    streams.retain(|stream| stream.iter().all(|input| name(*input).is_none()));
    let mut listed: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    for input in 0..samples.len() {
        if let Some(name) = name(input) {
            listed.entry(name).or_default().push(input);
        }
    }
    for mut stream in listed.into_values() {
        stream.sort_by_key(|input| (spans_ns.get(*input).copied().flatten(), *input));
        streams.push(stream);
    }
    streams.sort();
    streams
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<BTreeMap<PathBuf, String>, String> {
        let inputs = ["run/a/1.pcap", "run/a/2.pcap", "run/b/1.pcap", "c,d.pcap"].map(PathBuf::from);
        parse_streams(Path::new("s.csv"), text, &inputs).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_an_input_or_the_end_of_its_path() {
        let found = parsed("file,stream\n# comment\nrun/a/1.pcap,x\n2.pcap, x\n\"c,d.pcap\",y\n").unwrap();
        let expected = [("c,d.pcap", "y"), ("run/a/1.pcap", "x"), ("run/a/2.pcap", "x")];
        assert_eq!(found, expected.map(|(path, stream)| (PathBuf::from(path), stream.to_owned())).into());
    }

    #[test]
    fn errors_name_the_line_and_the_next_step() {
        for (text, expected) in [
            ("", "s.csv: line 1: expected the header `file,stream`"),
            ("a,b\n", "s.csv: line 1: expected the header `file,stream`"),
            ("file,stream\n1.pcap,x\n", "s.csv: line 2: `1.pcap` is the name of 2 captures; give more of its path"),
            (
                "file,stream\n3.pcap,x\n",
                "s.csv: line 2: `3.pcap` is not among the captures; give its path as on the command line",
            ),
            ("file,stream\n2.pcap,x\na/2.pcap,y\n", "s.csv: line 3: `a/2.pcap` is listed already; list each file once"),
        ] {
            assert_eq!(parsed(text), Err(expected.to_owned()), "{text:?}");
        }
        let error = parsed("file,stream\na/1.pcap\n").unwrap_err();
        assert!(error.starts_with("s.csv: line 2: CSV error") && error.ends_with("expected `file,stream`"), "{error}");
    }

    #[test]
    fn listed_inputs_form_the_streams_of_the_list() {
        let paths = ["a", "b", "c", "d"].map(PathBuf::from);
        let samples = [None, None, None, None];
        let given = [("a", "x"), ("c", "x")].map(|(path, stream)| (PathBuf::from(path), stream.to_owned())).into();
        assert_eq!(group(&paths, &samples, &[None; 4], |_, _| false, &given), [vec![0, 2], vec![1], vec![3]]);
    }
}
