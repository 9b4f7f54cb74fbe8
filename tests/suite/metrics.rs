//! The metrics of `watch`, checked by promtool and scraped by Prometheus; every query of the dashboard
//! in `packaging/grafana` returns data.

use crate::runs::{self, decompressed};
use crate::tools::{command, ibscope};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to start, and Prometheus to have data.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The values of all series, by name with labels.
fn series(text: &str) -> BTreeMap<String, String> {
    let values = text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("value");
        (name.to_owned(), value.to_owned())
    };
    values.map(pair).collect()
}

/// Fails if promtool finds a fault in the text.
fn check(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("make deps installs prometheus");
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{complaint}{text}");
}

/// An answer of a local server: its head and its content.
fn get(address: SocketAddr, path: &str, accept: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, content) = text.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.to_owned(), content.to_owned()))
}

/// Starts `watch` on a growing file, and returns it with the address of its metrics.
fn watching(place: &Path, more: &[&str]) -> (Process, SocketAddr) {
    let arguments = ["watch", "--lines", "--interval", "200ms", "--metrics", "127.0.0.1:0"];
    let mut command = command(arguments.iter().chain(more));
    let mut child = command.arg(place).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
    stderr.read_line(&mut line).expect("address");
    let address =
        line.trim().strip_prefix("ibscope: metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}")).parse().expect("address");
    // Keeps the pipe open, so that later lines do not fail.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (Process(child), address)
}

/// The totals at the end are those of `analyze`: of all traffic, of each port, class and job.
#[test]
fn the_textfile_has_the_totals_of_analyze() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("ompi-openib-notrace-mixed-4x1");
    let (capture, textfile) = (folder.path().join("sink.pcap"), folder.path().join("ibscope.prom"));
    fs::write(&capture, decompressed(&run.sink())).expect("written");
    let (capture, textfile) = (capture.to_str().expect("path"), textfile.to_str().expect("path"));
    let result = ibscope(["watch", "--once", "--textfile", textfile, capture]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    let text = fs::read_to_string(textfile).expect("textfile");
    check(&text);
    let found = series(&text);
    let matrix = ibscope(["matrix", "--by", "endpoint", "--format", "csv", capture]);
    let (mut packets, mut wire_bytes) = (0, 0);
    let mut sent: BTreeMap<String, u64> = BTreeMap::new();
    for row in crate::tools::csv_rows(&matrix.stdout) {
        let number = |name: &str| row[name].parse::<u64>().expect("number");
        packets += number("packets");
        wire_bytes += number("wire_bytes");
        *sent.entry(row["src"].clone()).or_default() += number("wire_bytes");
    }
    assert!(packets > 0);
    assert_eq!(found["ibscope_packets_total"], packets.to_string());
    assert_eq!(found["ibscope_wire_bytes_total"], wire_bytes.to_string());
    for (port, bytes) in sent {
        let name = format!("ibscope_link_wire_bytes_total{{port=\"{port}\",direction=\"sent\"}}");
        assert_eq!(found[&name], bytes.to_string(), "{name}");
    }
    // All data of this run are of its one job.
    assert_eq!(found["ibscope_job_packets_total{job=\"1\"}"], packets.to_string());
    assert_eq!(found["ibscope_class_packets_total{class=\"mpi\"}"], packets.to_string());
}

#[test]
fn the_socket_serves_metrics_only() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("sink.pcap");
    fs::write(&capture, decompressed(&runs::named("ompi-rc-ring2").sink())).expect("written");
    let (_watch, address) = watching(&capture, &[]);
    let start = Instant::now();
    let text = loop {
        let (head, text) = get(address, "/metrics", "*/*").expect("answer");
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
        check(&text);
        if text.contains("ibscope_packets_total") {
            break text;
        }
        assert!(start.elapsed() < PATIENCE, "{text}");
        sleep(Duration::from_millis(100));
    };
    assert!(text.contains("# TYPE ibscope_wire_bytes_total counter\n"), "{text}");
    let (head, text) = get(address, "/metrics", "application/openmetrics-text;version=1.0.0").expect("answer");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.contains("# TYPE ibscope_wire_bytes counter\n# UNIT ibscope_wire_bytes bytes\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (head, text) = get(address, "/etc/passwd", "*/*").expect("answer");
    assert!(head.starts_with("HTTP/1.1 404") && text == "metrics are at /metrics\n", "{head}{text}");
    // A second program cannot take the same address, and says so.
    let address = address.to_string();
    let second = ibscope(["watch", "--lines", "--metrics", &address, capture.to_str().expect("path")]);
    assert_eq!(second.code, 1, "{}", second.stderr);
    assert!(second.stderr.contains(&format!("--metrics {address}: cannot be opened")), "{}", second.stderr);
}

/// The values of a query in Prometheus.
fn query(address: SocketAddr, expression: &str) -> Vec<Value> {
    let mut encoded = String::new();
    expression.bytes().for_each(|byte| _ = write!(encoded, "%{byte:02X}"));
    let Ok((_, content)) = get(address, &format!("/api/v1/query?query={encoded}"), "*/*") else { return Vec::new() };
    // The answer may be chunked.
    let (from, to) = (content.find('{').unwrap_or(0), content.rfind('}').map_or(0, |end| end + 1));
    let Ok(answer) = serde_json::from_str::<Value>(content.get(from..to).unwrap_or_default()) else {
        return Vec::new();
    };
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    answer["data"]["result"].as_array().cloned().unwrap_or_default()
}

#[test]
fn prometheus_scrapes_the_metrics_and_every_query_of_the_dashboard_has_data() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("sink.pcap");
    let bytes = decompressed(&runs::named("ompi-openib-notrace-mixed-4x1").sink());
    fs::write(&capture, &bytes[..bytes.len() / 2]).expect("written");
    let (_watch, address) = watching(&capture, &[]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("port");
    let configuration = folder.path().join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 500ms\nscrape_configs:\n  - job_name: ibscope\n    static_configs:\n      - targets: ['{address}']\n"
    );
    fs::write(&configuration, text).expect("written");
    let log = File::create(folder.path().join("log")).expect("log");
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", configuration.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={port}"))
        .stdout(Stdio::null())
        .stderr(log);
    let _prometheus = Process(prometheus.spawn().expect("make deps installs prometheus"));
    // The rest arrives after the first scrape, so that there are rates.
    let start = Instant::now();
    while query(port, "ibscope_packets_total").is_empty() {
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(start.elapsed() < PATIENCE, "{log}");
        sleep(Duration::from_millis(100));
    }
    let mut file = File::options().append(true).open(&capture).expect("capture");
    file.write_all(&bytes[bytes.len() / 2..]).expect("written");
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana/ibscope.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(dashboard).expect("dashboard")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let queries: Vec<String> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["expr"].as_str().expect("expression").replace("$__rate_interval", "30s"))
        .collect();
    assert!(queries.len() > 8);
    for expression in queries {
        while query(port, &expression).is_empty() {
            assert!(start.elapsed() < 2 * PATIENCE, "{expression}");
            sleep(Duration::from_millis(200));
        }
    }
    let rate = "sum(rate(ibscope_wire_bytes_total[30s])) > 0";
    while query(port, rate).is_empty() {
        assert!(start.elapsed() < 2 * PATIENCE, "{rate}");
        sleep(Duration::from_millis(200));
    }
}
