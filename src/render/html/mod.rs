//! Profile -> one HTML file that shows all of it and asks the network for nothing.
//!
//! | part | what |
//! |---|---|
//! | `page.html`, `style.css`, `*.js` | the page; plain files, put together as they are |
//! | `vendor/` | Apache `ECharts`, which draws lines and bars |
//! | `document.rs` | everything but the traffic, as JSON |
//! | `latencies.rs` | the part of it that is about times |
//! | `compared.rs`, `checked.rs` | another run beside this one, and a trace of the application beside the wire, where they are wanted |
//! | `cells.rs` | the traffic by pair and bin |
//! | `packed.rs` | how that and other tables of numbers are packed |
//!
//! The page adds up cells for whatever window, selection and order it shows, as [`matrix`](mod@crate::analysis::matrix) does, so that its numbers are those of
//! `ibscope matrix --from --to`. Text from outside is in the JSON alone, in which `<` never stands as such, and the page puts it into text nodes only.

mod cells;
mod checked;
mod compared;
mod document;
mod latencies;
mod packed;

pub use compared::Compared;

use crate::crosscheck::Crosscheck;
use crate::model::Profile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::io::{self, Write};

/// The style sheet, the library and the scripts of the page. Each stands between its tags as it is, since the policy names its hash.
const STYLE: &[&str] = &[include_str!("style.css")];
const LIBRARY: &[&str] = &[include_str!("vendor/echarts.common.min.js")];
const SCRIPT: &[&str] = &[
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("dom.js"),
    include_str!("heat.js"),
    include_str!("matrix.js"),
    include_str!("timeline.js"),
    include_str!("phases.js"),
    include_str!("charts.js"),
    include_str!("latency.js"),
    include_str!("graph.js"),
    include_str!("compared.js"),
    include_str!("checked.js"),
    include_str!("main.js"),
];

/// What stands in `page.html` between `<!--` and `-->`, in this order, and what comes there.
const PARTS: [(&str, Content); 8] = [
    ("policy", Content::Policy),
    ("style", Content::Files(STYLE)),
    ("document", Content::Document),
    ("cells", Content::Cells),
    ("compared", Content::Compared),
    ("crosscheck", Content::Crosscheck),
    ("library", Content::Files(LIBRARY)),
    ("script", Content::Files(SCRIPT)),
];

#[derive(Clone, Copy)]
enum Content {
    Policy,
    Files(&'static [&'static str]),
    Document,
    Cells,
    Compared,
    Crosscheck,
}

/// The content security policy: the page loads nothing, and a browser runs its own scripts and styles alone, whatever text from outside it shows.
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

/// What a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The run.
    pub profile: &'a Profile,
    /// What its title calls it.
    pub name: &'a str,
    /// Another run beside it.
    pub compared: Option<&'a Compared>,
    /// A trace of the application beside it.
    pub crosscheck: Option<&'a Crosscheck>,
}

impl<'a> Page<'a> {
    /// A page of a profile alone.
    #[must_use]
    pub const fn of(profile: &'a Profile, name: &'a str) -> Self {
        Self { profile, name, compared: None, crosscheck: None }
    }

    /// Writes it.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let cells = cells::pack(self.profile)?;
        let mut rest = include_str!("page.html");
        for (part, content) in PARTS {
            let Some((before, after)) = rest.split_once(&format!("<!--{part}-->")) else { continue };
            out.write_all(before.as_bytes())?;
            match content {
                Content::Policy => out.write_all(policy().as_bytes())?,
                Content::Files(files) => files.iter().try_for_each(|file| out.write_all(file.as_bytes()))?,
                Content::Document => out.write_all(document::document(self, &cells).as_bytes())?,
                Content::Cells => out.write_all(cells.base64.as_bytes())?,
                Content::Compared => {
                    let packed = self.compared.map_or(Ok(String::new()), Compared::pack)?;
                    out.write_all(packed.as_bytes())?;
                }
                Content::Crosscheck => {
                    let packed = self.crosscheck.map_or(Ok(String::new()), checked::pack)?;
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

    /// Every script that is run and every style of the page, as a browser finds them.
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
        // A hash covers no attribute.
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
            pairs_seen_once: 0,
            pairs_seen_twice: 0,
            clock: None,
            interrupted: false,
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
