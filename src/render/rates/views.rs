//! Parts of the rates as csv: peaks, and sizes.

use crate::analysis::rates::{RateSeries, Rates, VALUES};
use crate::render::csv::ends;
use std::io::{self, Write};

/// The total, with empty ends, and each pair.
fn courses(rates: &Rates) -> impl Iterator<Item = ([String; 3], &RateSeries)> {
    let pairs = rates.pairs.iter().map(|(pair, course)| (ends(Some(pair)), course));
    std::iter::once((ends(None), &rates.total)).chain(pairs)
}

/// `src,dst,value,sum,mean_per_s,peak_per_s,peak_sum,peak_from_ns,window_ns,job`: a row for each value of everything, and of each pair. `src` and `dst` are
/// empty where all pairs are together; the start of the peak is where there is none.
pub fn peaks_csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,value,sum,mean_per_s,peak_per_s,peak_sum,peak_from_ns,window_ns,job")?;
    for ([src, dst, job], course) in courses(rates) {
        for (index, name) in VALUES.into_iter().enumerate() {
            let Some(sum) = course.known(index, course.sums[index]) else { continue };
            let peak = course.peaks[index];
            let from_ns = if peak.sum > 0 { peak.start_ns.to_string() } else { String::new() };
            let (mean, highest, window_ns) = (rates.mean(sum), rates.peak(peak), rates.window_ns);
            writeln!(out, "{src},{dst},{name},{sum},{mean},{highest},{},{from_ns},{window_ns},{job}", peak.sum)?;
        }
    }
    Ok(())
}

/// `src,dst,distribution,of,from_bytes,count,bytes,smallest_bytes,largest_bytes,job`: a row for each class of sizes of everything, and of each pair.
pub fn sizes_csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,distribution,of,from_bytes,count,bytes,smallest_bytes,largest_bytes,job")?;
    for ([src, dst, job], course) in courses(rates) {
        for ((of, class), sums) in &course.sizes {
            let (distribution, of, from_bytes) = (of.distribution(), of.name(), class.from_bytes());
            let (count, bytes) = (sums.count, sums.bytes);
            writeln!(
                out,
                "{src},{dst},{distribution},{of},{from_bytes},{count},{bytes},{},{},{job}",
                sums.smallest_bytes, sums.largest_bytes
            )?;
        }
    }
    Ok(())
}
