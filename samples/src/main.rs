//! `ibscope-generate`: writes a synthetic capture and, on request, its totals.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use ibscope_samples::{
    SampleFraming, SampleKind, SampleOptions, SampleStack, TrafficPattern, generate, generate_at_sinks,
};

/// Accepted snap lengths.
const SNAPLENS: RangeInclusive<i64> = SampleOptions::MIN_SNAPLEN as i64..=0xFFFF;

/// Write a synthetic capture of any size. The same options give the same bytes.
#[derive(Parser)]
#[command(version, help_expected = true)]
struct Arguments {
    /// Framing: native InfiniBand in ibdump's format, or RoCEv2
    #[arg(long, value_enum, default_value = "native")]
    framing: SampleFraming,
    /// Traffic: SENDs of 66 to 126 bytes on the wire, or RDMA WRITEs of 4 KiB packets, both with
    /// ACKs
    #[arg(long, value_enum, default_value = "small")]
    kind: SampleKind,
    /// Size of the file; K, M, G and T are powers of 1024. The file becomes slightly longer,
    /// because messages are completed
    #[arg(long, value_name = "N", value_parser = bytes)]
    bytes: u64,
    /// Number of endpoints
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=i64::from(SampleOptions::MAX_LIDS)))]
    lids: u16,
    /// Records per packet: 1 at its sender's port; 2 at its sender's and its receiver's port
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    mirror: u8,
    /// Pairs of sender and receiver, in turn [default: any to any, at random]
    #[arg(long, value_enum)]
    pattern: Option<TrafficPattern>,
    /// Envelopes of the messages: Open MPI ob1 over openib, or Open MPI over UCX with RC queue
    /// pairs; rank r is on node r + 1
    #[arg(long, value_enum, default_value = "none")]
    stack: SampleStack,
    /// Requests that the receiver loses, 0 to 50; they and their successors are retransmitted
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0")]
    loss: u32,
    /// Number of captures, each of a block of ports: NAME.pcap becomes NAME.0.pcap, NAME.1.pcap ...
    #[arg(long, value_name = "N", default_value_t = 1)]
    sinks: u16,
    /// Snap length; on native InfiniBand it includes the 16 bytes of ERF header
    #[arg(long, value_name = "BYTES", default_value_t = 0xFFFF, value_parser = clap::value_parser!(u32).range(SNAPLENS))]
    snaplen: u32,
    /// Queue pairs per pair of connected ports, at either end; a connection takes 24 bytes of
    /// memory
    #[arg(long, value_name = "N", default_value_t = 3)]
    qps: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Capture file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the totals per source and destination as CSV
    #[arg(long, value_name = "FILE")]
    totals: Option<PathBuf>,
    /// Write the MPI messages per pair of ranks as CSV
    #[arg(long, value_name = "FILE")]
    rank_totals: Option<PathBuf>,
}

/// Parses a size in bytes with an optional suffix.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) if text.ends_with('G') => (digits, 30),
        Some(digits) => (digits, 40),
        None => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// Parses a percentage; returns parts per million.
fn percent(text: &str) -> Result<u32, String> {
    let percent: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let most = f64::from(SampleOptions::MAX_LOSS_PPM) / 1e4;
    if (0.0..=most).contains(&percent) {
        Ok((percent * 1e4).round() as u32)
    } else {
        Err(format!("expected 0 to {most}"))
    }
}

/// Paths of the sinks' captures: the number of the sink precedes the last extension.
fn output_paths(output: &Path, sinks: u16) -> Vec<PathBuf> {
    if sinks == 1 {
        return vec![output.to_owned()];
    }
    let extension = output.extension().unwrap_or_default();
    (0..sinks).map(|sink| output.with_extension(sink.to_string()).with_added_extension(extension)).collect()
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| path.display().to_string())
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Arguments { framing, kind, bytes, lids, mirror, pattern, stack, sinks, snaplen, qps, seed, .. } = arguments;
    let Arguments { loss: loss_ppm, output, totals, rank_totals, .. } = arguments;
    let options =
        SampleOptions { framing, kind, bytes, lids, mirror, pattern, stack, loss_ppm, sinks, snaplen, qps, seed };
    let is_stdout = output.as_os_str() == "-";
    anyhow::ensure!(!is_stdout || sinks == 1, "several sinks need several files: --output must be a file name");
    anyhow::ensure!(rank_totals.is_none() || stack != SampleStack::None, "--rank-totals needs --stack");
    // Open all files before the long work, so that a wrong path fails at once.
    let [table, rank_table] = [totals, rank_totals].map(|path| path.map(|path| create(&path)).transpose());
    let (table, rank_table) = (table?, rank_table?);
    let known = if is_stdout {
        generate(&options, &mut io::stdout().lock())
    } else {
        let mut files: Vec<File> =
            output_paths(&output, sinks).iter().map(|path| create(path)).collect::<Result<_, _>>()?;
        generate_at_sinks(&options, &mut files)
    };
    let known = match known {
        Ok(known) => known,
        // The reader of the pipe has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(error).with_context(|| output.display().to_string()),
    };
    if let Some(table) = table {
        known.write_csv(&mut io::BufWriter::new(table)).context("totals")?;
    }
    if let Some(table) = rank_table {
        known.write_ranks_csv(&mut io::BufWriter::new(table)).context("totals of ranks")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{bytes, output_paths, percent};

    #[test]
    fn sizes() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("24"), Ok(24));
        assert_eq!(bytes("3K"), Ok(3072));
        assert_eq!(bytes("1M"), Ok(1_048_576));
        assert_eq!(bytes("2G"), Ok(2_147_483_648));
        assert_eq!(bytes("1T"), Ok(1_099_511_627_776));
        for wrong in ["", "K", "1.5G", "-1", "1KB", "99999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(["0", "0.5", "1", "50"].map(percent), [0, 5_000, 10_000, 500_000].map(Ok));
        for wrong in ["", "-1", "50.1", "NaN", "1%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_of_sinks() {
        assert_eq!(output_paths(Path::new("a/b.pcap"), 1), [PathBuf::from("a/b.pcap")]);
        assert_eq!(output_paths(Path::new("a/b.pcap"), 2), ["a/b.0.pcap", "a/b.1.pcap"].map(PathBuf::from));
        assert_eq!(output_paths(Path::new("b"), 2), ["b.0", "b.1"].map(PathBuf::from));
    }
}
