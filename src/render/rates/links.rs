//! The rates of links as terminal text, csv and JSON.

use crate::analysis::link_rates::{LinkBin, LinkCapacity, LinkRates, LinkSeries, LowerBound};
use crate::model::column::ColumnUnit::{Bytes, BytesPerSecond, Count, Name, Nanoseconds, Prose, Ratio, Timestamp};
use crate::render::table::{Table, write_document};
use crate::render::units::{bits_per_second, duration, group, span, utc, wrap};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Version of the JSON document.
const VERSION: u32 = 1;
/// Links in the terminal table.
const LISTED_LINKS: usize = 40;
/// Columns of the terminal.
const WIDTH: usize = 80;

/// A link with the rates that it is one of.
#[derive(Clone, Copy)]
pub(in crate::render) struct LinkRateRow<'a> {
    rates: &'a LinkRates,
    link: &'a LinkSeries,
}

impl<'a> LinkRateRow<'a> {
    fn all(rates: &'a LinkRates) -> impl Iterator<Item = Self> {
        rates.links.iter().map(move |link| Self { rates, link })
    }

    fn peak(&self, window: usize) -> Option<f64> {
        self.link.peaks[window].map(|peak| peak.bytes_per_s)
    }

    fn share(&self, rate: Option<f64>) -> Option<f64> {
        rate.and_then(|rate| self.link.share(rate))
    }

    /// `exact`, `at_least` or `unknown`.
    const fn bound(&self) -> &'static str {
        match (&self.rates.sampled, self.link.lower_bound) {
            (Some(_), _) => "unknown",
            (None, Some(_)) => "at_least",
            (None, None) => "exact",
        }
    }

    fn because(&self) -> Option<String> {
        let reason = self.link.lower_bound.map(|bound| bound.because().to_owned());
        self.rates.sampled.clone().or(reason)
    }

    /// A rate as a share of the capacity, or as bits per second.
    fn shown(&self, rate: Option<f64>) -> String {
        match (rate, self.share(rate)) {
            (None, _) => "-".to_owned(),
            (Some(_), Some(share)) => percent(share),
            (Some(rate), None) => bits_per_second(rate),
        }
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// One bin of a link, a row of `--by link --view bins`.
pub(in crate::render) struct LinkBinRow<'a> {
    row: LinkRateRow<'a>,
    bin: LinkBin,
}

/// A row of one link.
trait HasLink {
    fn link(&self) -> &LinkSeries;
}

impl HasLink for LinkRateRow<'_> {
    fn link(&self) -> &LinkSeries {
        self.link
    }
}

impl HasLink for LinkBinRow<'_> {
    fn link(&self) -> &LinkSeries {
        self.row.link
    }
}

/// Adds the port and the direction.
fn link<R: HasLink>(table: Table<R>) -> Table<R> {
    table
        .label("endpoint", "the port", |row: &R| Some(&row.link().port))
        .shown_left("port", |row: &R| row.link().port.name())
        .column("direction", Name, "`from` the port to its switch, or `to` the port", |row: &R| {
            row.link().direction.name()
        })
        .headed("")
}

/// The columns of `rates --by link`.
pub(in crate::render) fn links_table<'a>() -> Table<LinkRateRow<'a>> {
    let mut table = Table::new("ibscope rates --by link --format csv")
        .with(link)
        .column(
            "wire_bytes",
            Bytes,
            "bytes of all packets on the wire, with retransmissions",
            |row: &LinkRateRow<'_>| row.link.wire_bytes,
        )
        .column("capacity_bytes_per_s", BytesPerSecond, "capacity of the link", |row| row.link.capacity.bytes_per_s())
        .column(
            "capacity_source",
            Name,
            "`given` by `--link`, `manifest`: the rate of the port there, or `at_least`: the highest rate of any link, so the capacity is not known",
            |row| row.link.capacity.source(),
        )
        .column(
            "mean_bytes_per_s",
            BytesPerSecond,
            "mean rate from the first to the last packet of the captures; empty in a sample",
            |row| row.link.mean,
        )
        .column("mean_utilization", Ratio, "the mean rate divided by the capacity; empty if the capacity is not known", |row| {
            row.share(row.link.mean)
        })
        .decimals(6)
        .shown("mean", |row| row.shown(row.link.mean));
    let names: [[&'static str; 2]; 3] = [
        ["peak_1ms_bytes_per_s", "peak_1ms_utilization"],
        ["peak_10ms_bytes_per_s", "peak_10ms_utilization"],
        ["peak_100ms_bytes_per_s", "peak_100ms_utilization"],
    ];
    for (window, ([rate, utilization], heading)) in names.into_iter().zip(["1 ms", "10 ms", "100 ms"]).enumerate() {
        table = table
            .column(
                rate,
                BytesPerSecond,
                "highest mean rate over a window of this length; empty where the bins are wider or the traffic is shorter",
                move |row| row.peak(window),
            )
            .column(utilization, Ratio, "the highest rate divided by the capacity; empty if the capacity is not known", move |row| {
                row.share(row.peak(window))
            })
            .decimals(6)
            .shown(heading, move |row| row.shown(row.peak(window)));
    }
    table
        .column(
            "busy_share",
            Ratio,
            "share of the time in bins with at least 90 % of the capacity, 0 to 1; empty if the capacity is not known, and where bins are wider than 100 ms",
            |row| row.link.busy,
        )
        .decimals(6)
        .shown(">90 %", |row| row.link.busy.map_or_else(|| "-".to_owned(), percent))
        .column(
            "senders_at_once",
            Count,
            "most ports that sent payload to the port within one bin; empty for the direction `from`",
            |row| row.link.senders,
        )
        .headed("senders")
        .column("bin_ns", Nanoseconds, "width of the bins", |row| row.rates.bin_ns)
        .column("bound", Name, "whether the rates are `exact`, `at_least` (lower bounds) or `unknown`", |row| {
            row.bound()
        })
        .shown("", |row| if row.bound() == "at_least" { "at least".to_owned() } else { row.bound().to_owned() })
        .column("because", Prose, "why the rates are not exact", LinkRateRow::because)
}

/// The columns of `rates --by link --view bins`.
pub(in crate::render) fn link_bins_table<'a>() -> Table<LinkBinRow<'a>> {
    Table::new("ibscope rates --by link --view bins --format csv")
        .column("time_ns", Timestamp, "start of the bin; bins without traffic have no row", |row: &LinkBinRow<'_>| {
            row.bin.time_ns
        })
        .with(link)
        .column("wire_bytes", Bytes, "bytes of all packets on the wire; in a sample, of the sampled ones", |row| {
            row.bin.wire_bytes
        })
        .column(
            "wire_bytes_per_s",
            BytesPerSecond,
            "the sum of the bin divided by its width; empty in a sample",
            |row| row.row.rates.sampled.is_none().then(|| row.row.rates.rate(&row.bin)),
        )
        .column("utilization", Ratio, "this rate divided by the capacity; empty if the capacity is not known", |row| {
            row.row.share(row.row.rates.sampled.is_none().then(|| row.row.rates.rate(&row.bin)))
        })
        .decimals(6)
        .column(
            "senders",
            Count,
            "ports that sent payload to the port within the bin; empty for the direction `from`",
            |row| row.row.link.senders.map(|_| row.bin.senders),
        )
        .column("bin_ns", Nanoseconds, "width of the bin", |row| row.row.rates.bin_ns)
}

fn bins(rates: &LinkRates) -> impl Iterator<Item = LinkBinRow<'_>> {
    LinkRateRow::all(rates).flat_map(|row| row.link.bins.iter().map(move |bin| LinkBinRow { row, bin: *bin }))
}

/// The terminal text. If the table is wider than `width` columns, it leaves out the peaks over 100 and
/// 10 ms and the busy share, in this order, until it fits.
#[must_use]
pub fn links_text(rates: &LinkRates, width: Option<usize>) -> String {
    if rates.links.is_empty() {
        return "rates of links: no traffic\n".to_owned();
    }
    let mut text = format!(
        "rates of links over {} from {}\n{}\n",
        span(rates.length_ns.unsigned_abs()),
        utc(rates.span_ns.0.max(rates.origin_ns)),
        wrap(&capacity(rates), WIDTH)
    );
    let columns = format!(
        "1 ms, 10 ms, 100 ms: the highest mean over this time, in steps of {}{}; senders: the largest number of ports that send payload to this port within {}",
        duration(rates.fine_ns),
        if rates.links.iter().any(|link| link.busy.is_some()) { "; >90 %: share of the time" } else { "" },
        duration(rates.bin_ns)
    );
    _ = writeln!(text, "{}", wrap(&columns, WIDTH));
    if let Some(sampled) = &rates.sampled {
        _ = writeln!(text, "{}", wrap(&format!("rates are unknown, because this is a sample: {sampled}"), WIDTH));
    }
    let reasons: BTreeSet<LowerBound> = rates.links.iter().filter_map(|link| link.lower_bound).collect();
    for bound in reasons.iter().rev().filter(|_| rates.sampled.is_none()) {
        let which = if rates.common_bound().is_some() { "all rates" } else { "some rates" };
        _ = writeln!(text, "{}", wrap(&format!("{which} are lower bounds, because {}", bound.because()), WIDTH));
    }
    let mut rows: Vec<LinkRateRow<'_>> = LinkRateRow::all(rates).collect();
    // The busiest first; the sort is stable, so equal links stay in the order of their ports.
    rows.sort_by_key(|row| Reverse((row.link.highest() * 8.0) as u64));
    let more = rows.len().saturating_sub(LISTED_LINKS);
    rows.truncate(LISTED_LINKS);
    _ = writeln!(text, "\n{}", links_table().text_within(&rows, width, &["100 ms", "10 ms", ">90 %"]));
    if more > 0 {
        _ = writeln!(text, "{} more; csv and json have all", group(more as u64));
    }
    text
}

fn capacity(rates: &LinkRates) -> String {
    let capacity =
        |is_own: fn(LinkCapacity) -> bool| rates.links.iter().map(|link| link.capacity).find(|own| is_own(*own));
    let unknown = capacity(|own| matches!(own, LinkCapacity::AtLeast(_)));
    if let Some(given) = capacity(|own| matches!(own, LinkCapacity::Given(_))) {
        format!("values are shares of the capacity of {}, given by --link", bits_per_second(given.bytes_per_s()))
    } else if capacity(|own| matches!(own, LinkCapacity::OfPort(_))).is_some() {
        let rest = if unknown.is_some() { "; bit/s where it has none" } else { "" };
        format!("values are shares of the capacity of the port, from the manifest{rest}")
    } else {
        let least = bits_per_second(unknown.map_or(0.0, LinkCapacity::bytes_per_s));
        format!(
            "utilization unknown, because the speed of the links is not known: give it with --link; the links carry at least {least}"
        )
    }
}

/// Notes on windows that the bins cannot show, and on rates above the capacity.
#[must_use]
pub fn link_notes(rates: &LinkRates) -> Vec<String> {
    let mut notes = Vec::new();
    let widest =
        crate::analysis::link_rates::PEAK_WINDOWS_NS.into_iter().filter(|window_ns| *window_ns % rates.fine_ns != 0);
    let unknown: Vec<String> = widest.map(duration).collect();
    if !unknown.is_empty() {
        notes.push(format!(
            "peaks over {} are unknown, because the bins are {} wide; analyze the captures with a smaller --bin",
            unknown.join(" and "),
            duration(rates.fine_ns)
        ));
    }
    let highest = rates.links.iter().filter_map(|link| link.share(link.highest())).fold(0.0, f64::max);
    if highest > 1.05 {
        notes.push(format!(
            "the highest rate is {} of the capacity: --link or the manifest has too low a speed, or the capturing program assigned timestamps in batches",
            percent(highest)
        ));
    }
    notes
}

/// Writes one csv row per port and direction.
pub fn links_csv(rates: &LinkRates, out: &mut dyn Write) -> io::Result<()> {
    links_table().csv(LinkRateRow::all(rates), out)
}

/// Writes one csv row per port, direction and bin with traffic.
pub fn link_bins_csv(rates: &LinkRates, out: &mut dyn Write) -> io::Result<()> {
    link_bins_table().csv(bins(rates), out)
}

/// Writes one JSON object with a member per port and direction.
pub fn links_json(rates: &LinkRates, out: &mut dyn Write) -> io::Result<()> {
    let links: Vec<Value> = LinkRateRow::all(rates)
        .map(|row| {
            let mut object = links_table().object(&row);
            let bins = row.link.bins.iter().map(|bin| json!([bin.time_ns, bin.wire_bytes, bin.senders]));
            object.insert("bins".to_owned(), bins.collect());
            Value::Object(object)
        })
        .collect();
    let members = json!({
        "bin_ns": rates.bin_ns,
        "by": "link",
        "from_ns": rates.span_ns.0,
        "links": links,
        "sampled": rates.sampled,
        "to_ns": rates.span_ns.1,
    });
    write_document(out, "ibscope rates --by link", VERSION, members)
}
