//! Groups the files of a rotated capture by their names, so that one task reads them as one stream.
//!
//! In: paths of captures. Out: groups of paths, sorted. A group only decides which files share a task:
//! the analysis finds from the packets which of them form a stream, so files of several captures in a
//! group cost parallelism and change no number.

use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

/// What capture programs add to the names of the files of one capture. The groups `before` and `behind`
/// are common to these files.
///
/// - `dumpcap -b`: `NAME_00001_20261127120000.pcapng`
/// - `tcpdump -C`: `NAME.pcap`, `NAME.pcap1`, `NAME.pcap02`; renamed by hand: `NAME.pcap.1`
/// - `tcpdump -G` with a date and time in the name: `NAME-20261127-120000.pcap`,
///   `NAME-2026-11-27T12:00:00.pcap`; `-C` may add a number
static PARTS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    let part = |pattern: &str| Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"));
    [
        part(
            r"^(?<before>.*?)(?:[0-9]{5,}_)?[0-9]{4}-?[0-9]{2}-?[0-9]{2}[-_T]?[0-9]{2}[:.-]?[0-9]{2}[:.-]?[0-9]{2}(?<behind>\D*?)[0-9]*(?:\.gz|\.zst)?$",
        ),
        part(r"^(?<before>.*)(?<behind>\.p?cap(?:ng)?)(?:\.?[0-9]+)?(?:\.gz|\.zst)?$"),
    ]
});

/// The part of a name that all files of a rotated capture share; `None` if the name has no known form.
fn common_name(name: &str) -> Option<(&str, &str)> {
    let parts = PARTS.iter().find_map(|part| part.captures(name))?;
    Some((parts.name("before")?.as_str(), parts.name("behind")?.as_str()))
}

/// Groups the files of each folder by capture. `captures` are sorted.
pub(super) fn group(captures: Vec<PathBuf>) -> Vec<Vec<PathBuf>> {
    let mut groups: Vec<Vec<PathBuf>> = Vec::new();
    let mut known: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for capture in captures {
        let name = capture.file_name().and_then(|name| common_name(name.to_str()?));
        let same = name.map(|(before, behind)| capture.with_file_name(format!("{before}*{behind}")));
        if let Some(group) = same.as_ref().and_then(|same| known.get(same)) {
            groups[*group].push(capture);
        } else {
            known.extend(same.map(|same| (same, groups.len())));
            groups.push(vec![capture]);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str]) -> Vec<Vec<String>> {
        let mut paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        paths.sort();
        group(paths).iter().map(|own| own.iter().map(|path| path.display().to_string()).collect()).collect()
    }

    /// Names as the capture programs make them.
    #[test]
    fn the_files_of_one_capture_are_one_group() {
        for names in [
            &["sink.pcap", "sink.pcap1", "sink.pcap10", "sink.pcap2"][..],
            &["sink.pcap0", "sink.pcap1.zst", "sink.pcap2.zst"],
            &["sink.pcap", "sink.pcap.1", "sink.pcap.2.gz"],
            &["sink_00001_20261127120000.pcapng", "sink_00002_20261127120959.pcapng"],
            &["leaf-3-20261127-120000.pcap", "leaf-3-20261127-121000.pcap", "leaf-3-20261127-122000.pcap1"],
            &["n1_2026-11-27T12:00:00.pcap.zst", "n1_2026-11-27T13:00:00.pcap.zst"],
            &["20261127120000.pcap", "20261127130000.pcap"],
        ] {
            assert_eq!(groups(names), [names], "{names:?}");
        }
    }

    #[test]
    fn files_of_several_captures_are_several_groups() {
        for names in [
            &["node1.pcap.zst", "node2.pcap.zst"][..],
            &["sink0001.pcap", "sink0002.pcap"],
            &["a/sink.pcap", "b/sink.pcap1"],
            &["sink1_00001_20261127120000.pcapng", "sink2_00001_20261127120000.pcapng"],
            &["leaf-3-20261127-120000.pcap", "leaf-4-20261127-120000.pcap"],
            &["capture", "capture1", "sink.erf", "sink.erf1"],
            &["10.0.0.1.pcap", "10.0.0.2.pcap"],
        ] {
            assert_eq!(groups(names).concat(), names);
            assert_eq!(groups(names).len(), names.len(), "{names:?}");
        }
    }
}
