//! The metrics of `watch`, checked by promtool and scraped by Prometheus; every query of the dashboard
//! in `packaging/grafana` returns data.

use crate::runs::{self, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, command, csv_rows, ibscope, walk};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
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
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, content) = text.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.to_owned(), content.to_owned()))
}

/// Sends bytes to a local server, and returns the connection.
fn connection_with(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    // The server may answer and close the connection before it has all bytes.
    let _ = stream.write_all(bytes);
    stream
}

/// The response on a connection, until its end or until the server resets the connection.
fn response(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

/// The metrics. Fails if they take as long as the server waits for clients that do not end their
/// requests or do not read.
fn scrape(address: SocketAddr) -> String {
    let start = Instant::now();
    let (head, text) = get(address, "/metrics", "*/*").expect("answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    text
}

/// Waits until this is true of the metrics in a text file.
fn wait_for(textfile: &Path, is_reached: impl Fn(&BTreeMap<String, String>) -> bool) {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(textfile).unwrap_or_default();
        if is_reached(&series(&text)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{text}");
        sleep(Duration::from_millis(20));
    }
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
    for row in csv_rows(&matrix.stdout) {
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

/// `watch` on a recorded run, with its folder and the address of its metrics.
fn watching_ring2(more: &[&str]) -> (tempfile::TempDir, Process, SocketAddr) {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("sink.pcap");
    fs::write(&capture, decompressed(&runs::named("ompi-rc-ring2").sink())).expect("written");
    let (watch, address) = watching(&capture, more);
    (folder, watch, address)
}

#[test]
fn other_requests_get_the_status_of_their_fault() {
    let (_folder, _watch, address) = watching_ring2(&[]);
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000));
    let fields = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    for (request, status) in [
        ("GET /metrics?query HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /other HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("PUT /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("garbage\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2.0\r\n\r\n", "400 Bad Request"),
        (&long, "431 Request Header Fields Too Large"),
        (&fields, "431 Request Header Fields Too Large"),
    ] {
        let found = response(connection_with(address, request.as_bytes()));
        assert!(found.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}{found}");
        let head = found.split_once("\r\n\r\n").expect("head").0;
        assert!(head.ends_with("\r\nConnection: close"), "{found}");
        assert_eq!(head.contains("\r\nAllow: GET, HEAD\r\n"), status.starts_with("405"), "{found}");
    }
    // A client that ends its side within the head.
    let stream = connection_with(address, b"GET /metr");
    stream.shutdown(Shutdown::Write).expect("ended");
    assert!(response(stream).starts_with("HTTP/1.1 400 Bad Request\r\n"));
    // The response to HEAD has the length of the page, and not the page.
    let found = response(connection_with(address, b"HEAD /metrics HTTP/1.1\r\n\r\n"));
    let (head, content) = found.split_once("\r\n\r\n").expect("head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && content.is_empty(), "{found}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("length");
    assert!(length.parse::<usize>().is_ok(), "{length}");
    scrape(address);
}

/// The server reads no body, so the announced length of a body has no effect, however large it is.
#[test]
fn the_announced_length_of_a_body_has_no_effect() {
    let (_folder, _watch, address) = watching_ring2(&[]);
    // 2^63 and 2^64 exceed the largest allocation, and all integers.
    for length in ["5", "99999999999", "9223372036854775808", "18446744073709551616", "-1", "x"] {
        for (method, status) in [("POST", "405 Method Not Allowed"), ("GET", "200 OK")] {
            let request = format!("{method} /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nhello");
            let found = response(connection_with(address, request.as_bytes()));
            assert!(found.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {found}");
            scrape(address);
        }
    }
}

/// Clients that send an unfinished head or body, or nothing, or do not read, do not keep the metrics
/// from others.
#[test]
fn a_client_does_not_block_others() {
    // The page has 16 series of ports and 8 of pairs with these names, so no socket buffers it.
    const NAME_BYTES: usize = 400_000;
    const PAGE_BYTES: usize = (16 + 2 * 8) * NAME_BYTES;
    let hosts = tempfile::NamedTempFile::new().expect("file");
    let names = [("17", "a"), ("18", "b")].map(|(port, name)| format!("{port},{}\n", name.repeat(NAME_BYTES)));
    fs::write(hosts.path(), format!("endpoint,name\n{}", names.concat())).expect("written");
    let (_folder, _watch, address) = watching_ring2(&["--hosts", hosts.path().to_str().expect("path")]);
    let start = Instant::now();
    while scrape(address).len() < PAGE_BYTES {
        assert!(start.elapsed() < PATIENCE, "no names");
        sleep(Duration::from_millis(100));
    }
    let unfinished = "Host: x\r\nContent-Length: 500000\r\n\r\nhel";
    let requests = [
        String::new(),
        "GET /metr".to_owned(),
        format!("POST /metrics HTTP/1.1\r\n{unfinished}"),
        format!("GET /metrics HTTP/1.1\r\n{unfinished}"),
        "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
    ];
    // None of them reads its response, and all stay open.
    let mut blocking = Vec::new();
    for request in requests {
        blocking.push(connection_with(address, request.as_bytes()));
        assert!(scrape(address).len() >= PAGE_BYTES, "{request}");
    }
}

/// As many clients as the server has threads wait for their page. The next one is refused at once,
/// and the others get the page.
#[test]
fn clients_beyond_the_bound_are_refused() {
    // `CLIENTS` in src/cli/metrics/server.rs.
    const CLIENTS: usize = 16;
    let (_folder, _watch, address) = watching_ring2(&[]);
    let waiting: Vec<TcpStream> = (0..CLIENTS).map(|_| connection_with(address, b"GET /metr")).collect();
    for _ in 0..2 {
        let found = response(connection_with(address, b"GET /metrics HTTP/1.1\r\n\r\n"));
        assert!(found.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{found}");
    }
    for mut stream in waiting {
        stream.write_all(b"ics HTTP/1.1\r\n\r\n").expect("sent");
        let found = response(stream);
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
    }
    // The threads end when their clients have closed the connections.
    let start = Instant::now();
    while !get(address, "/metrics", "*/*").is_ok_and(|(head, _)| head.starts_with("HTTP/1.1 200")) {
        assert!(start.elapsed() < PATIENCE, "refused");
        sleep(Duration::from_millis(50));
    }
}

/// Two ports of each node have its name: the counters are those of `matrix --by node`.
#[test]
fn ports_of_one_name_have_one_counter() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = runs::of_second_set("ompi5-ucx-rc-multirail-mixed-2x1").sink();
    let (hosts, textfile) = (folder.path().join("hosts.csv"), folder.path().join("ibscope.prom"));
    fs::write(&hosts, "endpoint,name\n17,node1\n33,node1\n18,node2\n34,node2\n").expect("written");
    let [capture, hosts, textfile] = [&capture, &hosts, &textfile].map(|path| path.to_str().expect("path"));
    let result = ibscope(["watch", "--once", "--hosts", hosts, "--textfile", textfile, capture]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    let text = fs::read_to_string(textfile).expect("textfile");
    check(&text);
    let found = series(&text);
    let matrix = ibscope(["matrix", "--by", "node", "--hosts", hosts, "--format", "csv", capture]);
    let rows = csv_rows(&matrix.stdout);
    assert_eq!(rows.len(), 2, "{}", matrix.stdout);
    for row in &rows {
        let (src, dst) = (&row["src"], &row["dst"]);
        for name in ["packets", "wire_bytes", "messages"] {
            // Each node has one partner only.
            for labels in [
                format!("pair_{name}_total{{src=\"{src}\",dst=\"{dst}\"}}"),
                format!("link_{name}_total{{port=\"{src}\",direction=\"sent\"}}"),
                format!("link_{name}_total{{port=\"{dst}\",direction=\"received\"}}"),
            ] {
                assert_eq!(found[&format!("ibscope_{labels}")], row[name], "{labels}");
            }
        }
    }
    // The packets that summary.txt of the run counts.
    let packets = rows.iter().map(|row| row["packets"].parse::<u64>().expect("number"));
    assert_eq!((packets.sum::<u64>(), found["ibscope_packets_total"].as_str()), (3925, "3925"));
}

/// The records of the first port, and from 40 % of its packets on also those of the second port,
/// which hold the same packets.
fn with_a_late_mirror<'a>(first: &'a [u8], second: &'a [u8]) -> Vec<&'a [u8]> {
    let (own, other) = (walk(first), walk(second));
    let packets: Vec<i64> =
        own.iter().filter(|record| is_roce(record.data(first))).map(|record| record.time_ns).collect();
    let from_ns = packets[packets.len() * 2 / 5];
    let own = own.into_iter().map(|record| (record.time_ns, &first[record.place]));
    let other = other.into_iter().filter(|record| record.time_ns > from_ns);
    let mut all: Vec<_> = own.chain(other.map(|record| (record.time_ns, &second[record.place]))).collect();
    all.sort_by_key(|(time_ns, _)| *time_ns);
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

/// The mirror of the second port starts late. Its first copies count as retransmissions; the whole
/// capture shows that they are mirror copies.
#[test]
fn the_counters_at_the_end_are_those_of_analyze() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let (first, second) = (decompressed(&run.node(1)), decompressed(&run.node(2)));
    let records = with_a_late_mirror(&first, &second);
    let folder = tempfile::tempdir().expect("folder");
    let (capture, textfile) = (folder.path().join("sink.pcap"), folder.path().join("ibscope.prom"));
    let (early, late) = records.split_at(records.len() * 3 / 10);
    fs::write(&capture, [&first[..HEADER_BYTES], &early.concat()].concat()).expect("written");
    let arguments = ["watch", "--lines", "--interval", "100ms", "--textfile"];
    let mut watch = command(arguments);
    watch.arg(&textfile).arg(&capture).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watch = Process(watch.spawn().expect("started"));
    let retransmitted = "ibscope_retransmitted_packets_total";
    wait_for(&textfile, |found| found.get(retransmitted).is_some_and(|count| count != "0"));
    let mut file = File::options().append(true).open(&capture).expect("capture");
    file.write_all(&late.concat()).expect("written");
    let count = records.len().to_string();
    wait_for(&textfile, |found| found.get("ibscope_records_total") == Some(&count));
    let ended = Command::new("kill").args(["-s", "TERM", &watch.0.id().to_string()]).status().expect("kill");
    assert!(ended.success() && watch.0.wait().expect("ended").success());
    let found = series(&fs::read_to_string(&textfile).expect("textfile"));
    // Each packet of the run is in the capture of the first port. No PSN of a data packet of RC is in
    // it twice, so there are no retransmissions.
    let frames: Vec<&[u8]> =
        walk(&first).iter().map(|record| record.data(&first)).filter(|frame| is_roce(frame)).collect();
    let data = || frames.iter().filter(|frame| frame[42] < 0x11);
    let psns: BTreeSet<_> = data().map(|frame| (&frame[26..34], frame[42], &frame[47..50], &frame[51..54])).collect();
    assert_eq!(psns.len(), data().count());
    assert_eq!(found[retransmitted], "0");
    assert_eq!(found["ibscope_packets_total"], frames.len().to_string());
    let matrix = ibscope(["matrix", "--format", "csv", capture.to_str().expect("path")]);
    for row in csv_rows(&matrix.stdout) {
        let labels = format!("{{src=\"{}\",dst=\"{}\"}}", row["src"], row["dst"]);
        for name in ["packets", "wire_bytes", "messages"] {
            assert_eq!(found[&format!("ibscope_pair_{name}_total{labels}")], row[name], "{name}{labels}");
        }
        assert_eq!(found[&format!("ibscope_pair_retransmitted_packets_total{labels}")], "0", "{labels}");
    }
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
