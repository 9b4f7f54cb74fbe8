//! `ibscope-generate`: writes a synthetic capture and, on request, the totals of what it holds.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use ibscope_samples::{Framing, Kind, Options, Pattern, generate};

/// Writes a synthetic capture of any size. The same options give the same bytes.
#[derive(Parser)]
#[command(version, help_expected = true)]
struct Arguments {
    /// How packets are framed: native InfiniBand as ibdump writes it, or RoCEv2
    #[arg(long, value_enum, default_value = "native")]
    framing: Framing,
    /// Traffic: SENDs of 66 to 126 bytes on the wire, or RDMA WRITEs of 4 KiB packets, both with ACKs
    #[arg(long, value_enum, default_value = "small")]
    kind: Kind,
    /// Size of the file; K, M, G and T are powers of 1024. The last messages are completed, so it becomes a little longer
    #[arg(long, value_name = "N", value_parser = bytes)]
    bytes: u64,
    /// Number of endpoints
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=i64::from(Options::MAX_LIDS)))]
    lids: u16,
    /// How often each packet stands in the file; 2: at its sender's and at its receiver's port
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    mirror: u8,
    /// Who sends to whom, in turn [default: anyone to anyone, at random]
    #[arg(long, value_enum)]
    pattern: Option<Pattern>,
    /// Start of the random numbers
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// The capture; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write what the capture holds per source and destination as CSV
    #[arg(long, value_name = "FILE")]
    totals: Option<PathBuf>,
}

/// A size in bytes with an optional suffix.
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

fn main() -> anyhow::Result<()> {
    let Arguments { framing, kind, bytes, lids, mirror, pattern, seed, output, totals } = Arguments::parse();
    let options = Options { framing, kind, bytes, lids, mirror, pattern, seed };
    let mut out: Box<dyn Write> = if output.as_os_str() == "-" {
        Box::new(io::stdout().lock())
    } else {
        Box::new(File::create(&output).with_context(|| output.display().to_string())?)
    };
    // Both files are opened before the long work, so that a wrong path costs no time.
    let table = totals.map(|path| File::create(&path).with_context(|| path.display().to_string())).transpose()?;
    match generate(&options, &mut out) {
        Ok(known) => table.map_or(Ok(()), |table| known.write_csv(&mut io::BufWriter::new(table))).context("totals"),
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error).with_context(|| output.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

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
}
