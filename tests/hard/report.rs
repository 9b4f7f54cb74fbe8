//! The table of failures by class, on standard output and as CSV in `target/`.

use crate::cases;
use crate::check::CaseOutcome;
use crate::library::Library;
use std::fmt::Write as _;
use std::path::Path;

/// Result of a case.
pub(crate) struct ReportRow {
    pub(crate) class: &'static str,
    pub(crate) case: String,
    pub(crate) about: String,
    pub(crate) outcome: CaseOutcome,
}

impl ReportRow {
    /// All violated invariants with their kind. An error counts only if the case must be exact.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let counts = |kind: &str| kind != "error" || self.outcome.complete;
        let kinds = self.outcome.kinds().into_iter().filter(move |(kind, _)| counts(kind));
        kinds.flat_map(|(kind, texts)| texts.iter().map(move |text| (kind, text)))
    }
}

/// The table as text, with all details of single cases if `verbose`. Also writes both as CSV.
pub(crate) fn text(library: &Library, rows: &[ReportRow], verbose: bool) -> String {
    let mut text = String::new();
    for (run, why) in &library.refused {
        writeln!(text, "{run}: not used: {why}").expect("text");
    }
    if verbose {
        rows.iter().for_each(|row| describe(&mut text, row));
    }
    let (table, csv) = tables(rows);
    writeln!(text, "{table}").expect("text");
    writeln!(text, "open classes without a failure in this run: {}", holding(rows).join(", ")).expect("text");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&target).expect("target");
    std::fs::write(target.join("hard-classes.csv"), csv).expect("table");
    std::fs::write(target.join("hard-cases.csv"), cases_csv(rows)).expect("table");
    text
}

/// Open classes without a failure in these rows, which might be closed.
fn holding(rows: &[ReportRow]) -> Vec<&'static str> {
    let holds = |class: &&cases::CaseClass| {
        let mut own = rows.iter().filter(|row| row.class == class.name).peekable();
        class.is_open && own.peek().is_some() && own.all(|row| row.failures().next().is_none())
    };
    cases::ALL.iter().filter(holds).map(|class| class.name).collect()
}

fn describe(text: &mut String, row: &ReportRow) {
    writeln!(text, "{}: {}", row.case, row.about).expect("text");
    for (kind, failures) in row.outcome.kinds() {
        failures.iter().for_each(|failure| writeln!(text, "    {kind}: {failure}").expect("text"));
    }
    let CaseOutcome { right_bytes, captured_bytes, .. } = row.outcome;
    writeln!(text, "    {right_bytes} of {captured_bytes} bytes have the right ranks").expect("text");
}

/// By class: number of cases, cases with each kind of failure, share of the bytes with the right
/// ranks.
fn tables(rows: &[ReportRow]) -> (String, String) {
    let kinds: Vec<&str> = CaseOutcome::default().kinds().iter().map(|(kind, _)| *kind).collect();
    let mut csv = format!(
        "class,cases,{},right_bytes,captured_bytes,mean_share,right_payload_bytes,payload_bytes,other_with_ranks\n",
        kinds.join(",").replace(' ', "_")
    );
    let mut table = format!("{:<28} {:>6}", "class", "cases");
    kinds.iter().for_each(|kind| write!(table, " {kind:>16}").expect("text"));
    writeln!(table, " {:>11} {:>11} {:>13} {:>16}", "right bytes", "mean", "right payload", "other with ranks")
        .expect("text");
    for class in cases::ALL {
        let own: Vec<&ReportRow> = rows.iter().filter(|row| row.class == class.name).collect();
        if own.is_empty() {
            continue;
        }
        let counts: Vec<usize> = (0..kinds.len())
            .map(|kind| own.iter().filter(|row| !row.outcome.kinds()[kind].1.is_empty()).count())
            .collect();
        let sum = |value: fn(&CaseOutcome) -> u64| own.iter().map(|row| value(&row.outcome)).sum::<u64>();
        let (right, captured) = (sum(|outcome| outcome.right_bytes), sum(|outcome| outcome.captured_bytes));
        let foreign = own.iter().filter(|row| row.outcome.foreign_ranks > 0).count();
        let share = 100.0 * right as f64 / captured.max(1) as f64;
        let mean = mean_share(&own);
        let (payload, right_payload) =
            (sum(|outcome| outcome.payload_bytes), sum(|outcome| outcome.right_payload_bytes));
        let labeled = 100.0 * right_payload as f64 / payload.max(1) as f64;
        write!(table, "{:<28} {:>6}", class.name, own.len()).expect("text");
        counts.iter().for_each(|count| write!(table, " {count:>16}").expect("text"));
        writeln!(table, " {share:>9.2} % {mean:>9.2} % {labeled:>11.2} % {foreign:>16}").expect("text");
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        writeln!(
            csv,
            "{},{},{},{right},{captured},{mean:.3},{right_payload},{payload},{foreign}",
            class.name,
            own.len(),
            counts.join(",")
        )
        .expect("text");
    }
    (table, csv)
}

/// Mean over the cases that show any message, in percent: small runs count as much as large ones.
fn mean_share(rows: &[&ReportRow]) -> f64 {
    let shown = rows.iter().map(|row| &row.outcome).filter(|outcome| outcome.captured_bytes > 0);
    let shares: Vec<f64> = shown.map(|outcome| outcome.right_bytes as f64 / outcome.captured_bytes as f64).collect();
    100.0 * shares.iter().fold(0.0, |sum, share| sum + share) / shares.len().max(1) as f64
}

fn cases_csv(rows: &[ReportRow]) -> String {
    let mut csv = "case,failures,right_bytes,captured_bytes,about\n".to_owned();
    for row in rows {
        let kinds: Vec<&str> =
            row.outcome.kinds().into_iter().filter(|(_, texts)| !texts.is_empty()).map(|(kind, _)| kind).collect();
        let CaseOutcome { right_bytes, captured_bytes, .. } = row.outcome;
        writeln!(csv, "{},{},{right_bytes},{captured_bytes},\"{}\"", row.case, kinds.join("+"), row.about)
            .expect("text");
    }
    csv
}
