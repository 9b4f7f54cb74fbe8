//! ibdump: captures the packets that an NVIDIA HCA sends and receives.

use super::PacketCounts;
use crate::config::{Config, Ibdump};
use std::path::Path;

/// Command line that captures one port of an adapter into a file.
pub(crate) fn argv(config: &Config, adapter: &str, port: u8, file: &Path) -> Vec<String> {
    let Ibdump { max_burst_log2, writer_thread_bytes, memory_bytes } = &config.capture.ibdump;
    let mut argv = vec![super::text(&config.tools.ibdump)];
    argv.extend(["-d", adapter, "-i"].map(str::to_owned));
    argv.extend([port.to_string(), "-w".to_owned(), super::text(file)]);
    argv.extend(super::option("-b", *max_burst_log2));
    argv.extend(super::option("-p", *writer_thread_bytes));
    argv.extend(super::option("-M", *memory_bytes));
    argv
}

pub(super) fn is_ready(log: &str) -> bool {
    log.contains("Ready to capture")
}

/// Parses `Captured: 1234 packets, 567890 bytes`.
pub(super) fn packet_counts(log: &str) -> Option<PacketCounts> {
    let line = log.lines().rev().find_map(|line| line.trim().strip_prefix("Captured:"))?;
    let (packets, bytes) = line.split_once(',')?;
    let number = |text: &str, unit| text.trim().strip_suffix(unit)?.trim().parse().ok();
    Some(PacketCounts { packets: number(packets, "packets")?, bytes: number(bytes, "bytes"), dropped: None })
}
