//! Renders a profile in every format.

use ibscope::analysis::GroupBy;
use ibscope::analysis::collectives::collectives as collectives_of;
use ibscope::analysis::compare::compare;
use ibscope::analysis::latency::{LatencyGrouping, LatencySeriesOptions, latencies, surface, time_series};
use ibscope::analysis::matrix::{Selection, TrafficUnit, matrix};
use ibscope::analysis::phases::{PhaseOptions, phases as phases_of};
use ibscope::analysis::rates::rates as rates_of;
use ibscope::analysis::timeline::timeline;
use ibscope::model::Profile;
use ibscope::render::latency::Subject;
use ibscope::render::{collectives, latency, matrix as matrices, ranks, summary};
use ibscope::render::{figure, health, html, phases, rates, text};
use std::io;

/// Limit of bins to write. A single late packet makes millions of bins, which reach no more code
/// but take half a minute.
const MAX_BINS: i128 = 1 << 14;

/// Renders tables, csv, JSON and the HTML page; with `figures` also the figures, which take
/// longest.
pub(crate) fn all(profile: &Profile, figures: bool) {
    let out = &mut io::sink();
    let style = text::Style { color: true, width: 100 };
    let mut wrote = vec![summary::csv(profile, out), summary::json(profile, out)];
    let mut texts =
        vec![text::summary(profile, &style), ranks::ranks_table(profile, Some(80)), health::table(profile, None)];
    let mut drawings = Vec::new();
    for by in [GroupBy::Endpoint, GroupBy::Rank] {
        for selection in [Selection::All, Selection::P2p, Selection::Collective] {
            let matrix = matrix(profile, by, selection);
            texts.push(text::matrix_table(&matrix, TrafficUnit::WireBytes, &style));
            wrote.extend([matrices::matrix_csv(&matrix, out), matrices::matrix_json(&matrix, out)]);
            drawings.push(figure::matrix(&matrix, TrafficUnit::WireBytes, None));
        }
        let collectives = collectives_of(profile, by);
        texts.push(collectives::table(&collectives, profile.mpi_read));
        wrote.extend([collectives::csv(&collectives, out), collectives::json(&collectives, out)]);
        if let Ok(timeline) = timeline(profile, by, Selection::All, None) {
            texts.push(text::timeline_table(&timeline, &style));
            wrote.extend([matrices::timeline_csv(&timeline, out), matrices::timeline_json(&timeline, out)]);
            drawings.extend([None, Some(1)].map(|most| figure::timeline(&timeline, most)));
        }
        if let Ok(rates) = rates_of(profile, Some(by), None, 50_000_000) {
            texts.push(rates::table(&rates, true, Some(80)));
            if rates.count() <= MAX_BINS && rates.check_rows().is_ok() {
                wrote.extend([rates::csv(&rates, out), rates::json(&rates, out)]);
                drawings.extend([None, Some(1)].map(|most| figure::rates(&rates, most)));
            }
        }
        let own = latencies(profile, LatencyGrouping { by: Some(by), sizes: true });
        texts.push(latency::table(&own, 1000, "nothing", Some(80)));
        wrote.extend([latency::csv(&own, 1000, out), latency::json(&own, 1000, out)]);
        let wanted = LatencySeriesOptions { by: Some(by), ..LatencySeriesOptions::default() };
        if let Ok(times) = time_series(profile, &wanted) {
            texts.push(latency::time_series_table(&times, "nothing", Some(80)));
            wrote.extend([latency::time_series_csv(&times, out), latency::time_series_json(&times, out)]);
        }
        if let Ok(surface) = surface(profile, &wanted) {
            texts.push(latency::surface_table(&surface, "nothing", Some(80)));
            wrote.extend([latency::surface_csv(&surface, out), latency::surface_json(&surface, out)]);
        }
        let comparison = compare([profile, profile], ["one".to_owned(), "other".to_owned()], Some(by));
        if let Ok(comparison) = comparison {
            texts.push(ibscope::render::compare::table(&comparison));
            wrote.push(ibscope::render::compare::json(&comparison, out));
        }
    }
    let phases = phases_of(profile, &PhaseOptions::default());
    texts.push(phases::table(&phases, Some(80)));
    wrote.extend([phases::csv(&phases, out), phases::json(&phases, out)]);
    drawings.push(figure::phases(&phases));
    wrote.extend([ranks::ranks_csv(profile, out), ranks::ranks_json(profile, out)]);
    wrote.extend([health::csv(profile, out), health::json(profile, None, out), health::links_csv(profile, out)]);
    texts.extend([health::links_table(profile, Some(80)), health::pauses_table(&profile.coverage, None)]);
    wrote.push(html::Page::of(profile, "<script>").write(out));
    assert!(wrote.iter().all(Result::is_ok));
    assert!(texts.iter().all(|text| !text.contains('\u{7}')));
    if figures {
        let together = latencies(profile, LatencyGrouping { by: None, sizes: true });
        if let Ok(subject) = Subject::of(&together, None, profile.times_read) {
            drawings.extend([
                figure::latency_histogram(&subject, &together),
                figure::latency_sizes(&subject, &together, None),
            ]);
        }
        for drawing in drawings.into_iter().flatten() {
            let _ = drawing.svg();
        }
    }
}
