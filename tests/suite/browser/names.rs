//! Names from outside in a page: of nodes, files, another run, a trace. Each would run as a script
//! if it were markup.

use super::{EVIL, EVIL_FILE, has_browser, look, place};
use crate::crosscheck::Description;
use crate::runs;
use crate::tools::{ibscope, result, sample};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The browser's view of a page, in which no foreign script may have run.
fn seen(page: &Path) -> Value {
    let seen = look(&["--names".as_ref(), page]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    assert_eq!((&seen["scripts"], &seen["images"]), (&json!(3), &json!(0)), "the data, the library and the page's own");
    assert_ne!(seen["title"], "owned");
    let requests = seen["requests"].as_array().expect("requests");
    assert!(requests.len() == 1, "{requests:?}");
    seen
}

/// A manifest with names from the fabric's tools is rejected if they are not host names. The report
/// shows a profile with replaced words, compared with another such profile.
#[test]
fn names_of_manifests_and_profiles_stay_text() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let capture = sample("openib-mixed-4x1");
    let profile = at(&EVIL_FILE.replace(".pcap", ".ibp"));
    let port = json!({
        "node": EVIL, "ca": EVIL, "port": 1, "port_guid": "0x1", "lid": 17, "lmc": 0, "leaf_guid": "0xb8599f0300001000", "leaf_port": 1
    });
    let (manifest, hosts) = (at("manifest.json"), at("hosts.csv"));
    fs::write(&manifest, json!({ "version": 1, "job_id": 17, "ports": [port], "sinks": [] }).to_string())
        .expect("manifest");
    let ran = ibscope(["analyze", "-o", place(&profile), "--manifest", place(&manifest), place(&capture)]);
    assert!(ran.code == 1 && ran.stderr.contains("node name"), "{}", ran.stderr);
    let row = |lid: u16| format!("{lid},{EVIL}{lid}\n");
    let names: String = (17..=20).map(row).collect();
    fs::write(&hosts, format!("endpoint,name\n{names}")).expect("hosts");
    result(&["analyze", "-o", place(&profile), "--hosts", place(&hosts)], &[&capture]);
    // The author of a profile may write any words.
    let document = profile.join("profile.json");
    let text = fs::read_to_string(&document).expect("profile");
    let mut json: Value = serde_json::from_str(&text).expect("json");
    json["notes"] = json!([format!("{EVIL} in a note")]);
    json["inputs"][0]["name"] = json!(format!("{EVIL}.pcap"));
    json["inputs"][0]["format"] = json!(format!("{EVIL} format"));
    fs::write(&document, json.to_string()).expect("written");
    let page = at("page.html");
    result(&["report", "-o", place(&page), "--compare", place(&profile)], &[&profile]);
    let seen = seen(&page);
    let body = seen["body"].as_str().expect("text");
    for name in [format!("{EVIL} in a note"), format!("{EVIL} format"), EVIL_FILE.replace(".pcap", ".ibp")] {
        assert!(body.contains(&name), "{name}: {body}");
    }
    let texts = seen["texts"].as_array().expect("texts");
    assert!(texts.iter().any(|text| *text == format!("{EVIL}17")), "{texts:?}");
    for command in ["matrix", "timeline", "phases", "rates", "latency"] {
        let svg = at("figure.svg");
        result(&[command, "--svg", place(&svg)], &[&profile]);
        let text = fs::read_to_string(svg).expect("svg");
        assert!(!text.contains("<script") && !text.contains("<img"), "{command}");
    }
}

/// Words of a trace: its writer, hosts, communicators and file name.
#[test]
fn names_of_traces_stay_text() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let mut description = Description::new(4, 1);
    description.creator = EVIL;
    for (number, rank) in description.ranks.iter_mut().enumerate() {
        rank["host"] = json!(format!("{EVIL}{number}"));
    }
    description.communicators[0]["name"] = json!(EVIL);
    description.sends(&[(1_000, 0, 1, 99, 5), (2_000, 1, 0, 99, 5)]);
    let place_of = folder.path().join(EVIL_FILE);
    fs::create_dir(&place_of).expect("folder");
    let archive = description.write(&place_of);
    let page = folder.path().join("page.html");
    let sink = run.sink();
    let ran = ibscope(["report", place(&sink), "-o", place(&page), "--trace", place(&archive)]);
    assert_eq!((ran.code, page.exists()), (4, true), "{}", ran.stderr);
    let seen = seen(&page);
    let body = seen["body"].as_str().expect("text");
    assert!(body.contains(EVIL), "{body}");
    assert!(body.contains(EVIL_FILE), "{body}");
}
