//! HTML report: writes a profile as one file that loads nothing from the network.
//!
//! | file | content |
//! |---|---|
//! | `page.html`, `style.css`, `*.js` | the page; plain files, included unchanged |
//! | `vendor/` | Apache `ECharts`, which draws lines and bars |
//! | `document.rs` | everything except the traffic, as JSON |
//! | `latencies.rs` | the latency part of the JSON |
//! | `lanes.rs` | the collective operations one by one, in the JSON |
//! | `estimates.rs` | the estimates of a sampled capture |
//! | `comparison.rs` | optional: comparison with another run |
//! | `crosscheck.rs` | optional: comparison with a trace of the application |
//! | `exports.rs` | the csv of the commands, to save it from the page |
//! | `groups.rs` | nodes, leaf switches and the order by cluster |
//! | `cells.rs` | the traffic by pair and bin |
//! | `senders.rs` | totals and senders in narrower bins |
//! | `events.rs` | retransmissions, congestion and NAKs over time |
//! | `packed.rs` | the packing of tables of numbers |
//!
//! The page sums cells for the window and selection that it shows, in the same way as
//! [`matrix`](mod@crate::analysis::matrix), so its numbers are those of `ibscope matrix --from
//! --to`. External text occurs only in the JSON, where `<` is always escaped, and the page inserts
//! it only into text nodes.

mod cells;
mod comparison;
mod crosscheck;
mod document;
mod estimates;
mod events;
mod exports;
mod groups;
mod lanes;
mod latencies;
mod packed;
mod senders;

pub use comparison::ReportComparison;
pub use exports::ReportSource;

use crate::analysis::diagnose::Diagnosis;
use crate::analysis::instances::InstanceList;
use crate::crosscheck::Crosscheck;
use crate::model::Profile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::io::{self, Write};

/// The style sheet, the library and the scripts of the page. Each is the exact content of its
/// element, since the policy contains its hash.
const STYLE: &[&str] = &[include_str!("style.css")];
const LIBRARY: &[&str] = &[include_str!("vendor/echarts.common.min.js")];
const SCRIPT: &[&str] = &[
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("dom.js"),
    include_str!("tables.js"),
    include_str!("svg.js"),
    include_str!("exports.js"),
    include_str!("heat.js"),
    include_str!("matrix.js"),
    include_str!("timeline.js"),
    include_str!("senders.js"),
    include_str!("phases.js"),
    include_str!("charts.js"),
    include_str!("events.js"),
    include_str!("latency.js"),
    include_str!("graph.js"),
    include_str!("lanes.js"),
    include_str!("compared.js"),
    include_str!("checked.js"),
    include_str!("fragment.js"),
    include_str!("main.js"),
];

/// Placeholders (`<!--name-->`) of `page.html` in their order, and the content that replaces them.
const PARTS: [(&str, PageContent); 8] = [
    ("policy", PageContent::Policy),
    ("style", PageContent::Files(STYLE)),
    ("document", PageContent::Document),
    ("cells", PageContent::Cells),
    ("compared", PageContent::Comparison),
    ("crosscheck", PageContent::Crosscheck),
    ("library", PageContent::Files(LIBRARY)),
    ("script", PageContent::Files(SCRIPT)),
];

#[derive(Clone, Copy)]
enum PageContent {
    Policy,
    Files(&'static [&'static str]),
    Document,
    Cells,
    Comparison,
    Crosscheck,
}

/// The content security policy: the page loads nothing, and the browser runs only the page's own
/// scripts and styles, regardless of external text on the page.
fn policy() -> String {
    let hash = |files: &[&str]| {
        let mut hash = Sha256::new();
        files.iter().for_each(|file| hash.update(file));
        format!("'sha256-{}'", STANDARD.encode(hash.finalize()))
    };
    let [style, library, script] = [STYLE, LIBRARY, SCRIPT].map(hash);
    format!(
        "default-src 'none'; script-src {library} {script}; style-src {style}; img-src data:; base-uri 'none'; form-action 'none'"
    )
}

/// The source of a page whose data no command has read.
static NO_SOURCE: ReportSource = ReportSource {
    inputs: String::new(),
    options: String::new(),
    scope: String::new(),
    window: String::new(),
    is_profile: true,
    compared: None,
    trace: None,
};

/// The input of a page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The profile of the run.
    pub profile: &'a Profile,
    /// Name of the run in the title.
    pub name: &'a str,
    /// The command line that read the data, for the commands that the page shows.
    pub source: &'a ReportSource,
    /// Comparison with another run.
    pub comparison: Option<&'a ReportComparison>,
    /// Comparison with a trace of the application.
    pub crosscheck: Option<&'a Crosscheck>,
    /// Collective operations one by one; `None` if only a profile is known.
    pub instances: Option<&'a InstanceList>,
    /// Findings; the first screen shows the first ones.
    pub diagnosis: Option<&'a Diagnosis>,
}

impl<'a> Page<'a> {
    /// Creates a page of a profile, without comparisons, single operations and findings.
    #[must_use]
    pub const fn of(profile: &'a Profile, name: &'a str) -> Self {
        Self { profile, name, source: &NO_SOURCE, comparison: None, crosscheck: None, instances: None, diagnosis: None }
    }

    /// Writes the page.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let cells = cells::pack(self.profile)?;
        let mut rest = include_str!("page.html");
        for (part, content) in PARTS {
            let Some((before, after)) = rest.split_once(&format!("<!--{part}-->")) else { continue };
            out.write_all(before.as_bytes())?;
            match content {
                PageContent::Policy => out.write_all(policy().as_bytes())?,
                PageContent::Files(files) => files.iter().try_for_each(|file| out.write_all(file.as_bytes()))?,
                PageContent::Document => out.write_all(document::document(self, &cells)?.as_bytes())?,
                PageContent::Cells => out.write_all(cells.base64.as_bytes())?,
                PageContent::Comparison => {
                    let packed = self.comparison.map_or(Ok(String::new()), ReportComparison::pack)?;
                    out.write_all(packed.as_bytes())?;
                }
                PageContent::Crosscheck => {
                    let packed = self.crosscheck.map_or(Ok(String::new()), crosscheck::pack)?;
                    out.write_all(packed.as_bytes())?;
                }
            }
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Coverage;
    use crate::model::profile::Input;

    fn text(profile: &Profile, name: &str) -> String {
        let mut page = Vec::new();
        Page::of(profile, name).write(&mut page).expect("written");
        String::from_utf8(page).expect("text")
    }

    #[test]
    fn every_part_has_its_place() {
        let page = text(&Profile::default(), "empty.ibp");
        for (part, _) in PARTS {
            assert!(include_str!("page.html").contains(&format!("<!--{part}-->")), "{part}");
            assert!(!page.contains(&format!("<!--{part}-->")), "{part}");
        }
        assert!(page.ends_with("</html>\n"));
    }

    /// Extracts every executable script and every style of the page as a browser does.
    #[test]
    fn the_policy_names_the_hash_of_each_script_and_style_and_nothing_else() {
        let page = text(&Profile::default(), "empty.ibp");
        let (_, rest) = page.split_once("http-equiv=\"Content-Security-Policy\" content=\"").expect("a policy");
        let (policy, _) = rest.split_once('"').expect("its end");
        for (directive, opening, closing) in [
            ("script-src", ["<script>", "<script type=\"module\">"].as_slice(), "</script>"),
            ("style-src", &["<style>"], "</style>"),
        ] {
            let allowed = policy.split("; ").find_map(|one| one.strip_prefix(directive)).expect("the directive");
            let hashes: Vec<String> = opening
                .iter()
                .map(|tag| {
                    let (_, rest) = page.split_once(tag).expect("the tag");
                    let (content, _) = rest.split_once(closing).expect("its end");
                    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)))
                })
                .collect();
            assert_eq!(allowed.split_whitespace().collect::<Vec<_>>(), hashes);
        }
        // Hashes do not cover attributes.
        for attribute in [" style=", " onclick=", " onload=", " onerror="] {
            assert!(!include_str!("page.html").contains(attribute), "{attribute}");
        }
    }

    #[test]
    fn text_from_outside_cannot_leave_its_place() {
        const EVIL: &str = "</script><script>alert(1)</script><!--";
        let input = Input {
            name: EVIL.to_owned(),
            length_bytes: 1,
            xxh3_128: EVIL.to_owned(),
            sha256: None,
            format: EVIL.to_owned(),
            pairs_observed_once: 0,
            pairs_observed_twice: 0,
            clock: None,
            interrupted: false,
            ends_early: false,
            share: None,
            coverage: Coverage::default(),
        };
        let profile = Profile { inputs: vec![input], notes: vec![EVIL.to_owned()], ..Profile::default() };
        let (plain, evil) = (text(&Profile::default(), "a.ibp"), text(&profile, EVIL));
        for tag in ["<script", "</script", "<!--"] {
            assert_eq!(evil.matches(tag).count(), plain.matches(tag).count(), "{tag}");
        }
        assert!(evil.contains(r"\u003c/script>\u003cscript>alert(1)"), "it is there, as text");
    }
}
