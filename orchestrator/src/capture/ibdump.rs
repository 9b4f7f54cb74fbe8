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

/// Parses `Captured: 1234 packets, 567890 bytes`. While it captures, ibdump rewrites such a line
/// with `\r`; the last one counts.
pub(super) fn packet_counts(log: &str) -> Option<PacketCounts> {
    let line = log.rsplit(['\n', '\r']).find_map(|line| line.trim().strip_prefix("Captured:"))?;
    let (packets, bytes) = line.split_once(',')?;
    let number = |text: &str, unit| text.trim().strip_suffix(unit)?.trim().parse().ok();
    Some(PacketCounts { packets: number(packets, "packets")?, bytes: number(bytes, "bytes"), dropped: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_progress_line_counts() {
        let counts = |log| packet_counts(log).map(|counts| (counts.packets, counts.bytes));
        let log = "Ready to capture (Press ^c to stop):\nCaptured:      3220 packets,     412160 bytes\r\
                   Captured:      6740 packets,     862720 bytes\n\nibscope: exit status 0\n";
        assert_eq!(counts(log), Some((6740, Some(862_720))));
        assert_eq!(counts("Captured: 1 packets, 2 bytes\r\r\nCaptured: 3 packets, 4 bytes\r\n"), Some((3, Some(4))));
        assert_eq!(counts("Ready to capture\r\n"), None);
    }
}
