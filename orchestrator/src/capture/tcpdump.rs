//! tcpdump: captures `RoCE` at a network interface, or at an RDMA device if its libpcap supports
//! them.

use super::PacketCounts;
use crate::config::{Config, Tcpdump};
use std::path::Path;

/// Command line that captures at a device into a file.
pub(crate) fn argv(config: &Config, adapter: &str, file: &Path) -> Vec<String> {
    let Tcpdump { interface, snaplen, buffer_kib, filter } = &config.capture.tcpdump;
    let mut argv = vec![super::text(&config.tools.tcpdump)];
    // Timestamps in nanoseconds; no name resolution. `-Z root` keeps tcpdump root, because the
    // folder of the file may belong to root.
    argv.extend(["--time-stamp-precision=nano", "-n", "-Z", "root", "-i"].map(str::to_owned));
    argv.push(interface.clone().unwrap_or_else(|| adapter.to_owned()));
    argv.extend(["-w".to_owned(), super::text(file)]);
    argv.extend(super::option("-s", *snaplen));
    argv.extend(super::option("-B", *buffer_kib));
    argv.extend(super::option("-C", config.capture.ring_file_megabytes()));
    argv.extend(super::option("-W", config.capture.ring_files));
    argv.extend(filter.clone());
    argv
}

pub(super) fn is_ready(log: &str) -> bool {
    log.lines().any(|line| line.contains("listening on "))
}

/// Parses `12 packets captured` and `0 packets dropped by kernel`.
pub(super) fn packet_counts(log: &str) -> Option<PacketCounts> {
    let number = |what: &str| {
        let of_line = |line: &str| match line.trim().split_once(' ')? {
            (number, rest) if rest == format!("packets {what}") || rest == format!("packet {what}") => {
                number.parse().ok()
            }
            _ => None,
        };
        log.lines().rev().find_map(of_line)
    };
    Some(PacketCounts { packets: number("captured")?, bytes: None, dropped: number("dropped by kernel") })
}
