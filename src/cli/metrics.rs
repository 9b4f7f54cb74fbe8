//! The outlets for the metrics of `ibscope watch`: a socket that Prometheus scrapes, and a text
//! file.

use super::common::files::OutputFile;
use super::common::output;
use crate::render::metrics::prometheus_text;
use anyhow::anyhow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tiny_http::{Header, Method, Request, Response, Server};

/// The path of the metrics on the socket.
const PATH: &str = "/metrics";
/// Media type of OpenMetrics, which clients request, and the full type of the response.
const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_ANSWER: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of the text format of Prometheus.
const PROMETHEUS_ANSWER: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Metrics before the first update.
const EMPTY: &str = "# EOF\n";

/// Publishes metrics.
pub(super) struct MetricsOutput {
    page: Arc<Mutex<String>>,
    server: Option<Arc<Server>>,
    textfile: Option<PathBuf>,
}

impl MetricsOutput {
    /// Opens the socket and checks that the file can be written. `inputs` are the files that the
    /// command reads.
    pub(super) fn start(
        address: Option<SocketAddr>,
        textfile: Option<&PathBuf>,
        inputs: &[&Path],
    ) -> anyhow::Result<Self> {
        let page = Arc::new(Mutex::new(EMPTY.to_owned()));
        // The file is not created yet: a reader would take an empty one for the end of all metrics.
        OutputFile::open(textfile, inputs)?;
        let server = address.map(|address| serve(address, &page)).transpose()?;
        Ok(Self { page, server, textfile: textfile.cloned() })
    }

    /// True if metrics are published anywhere.
    pub(super) const fn is_used(&self) -> bool {
        self.server.is_some() || self.textfile.is_some()
    }

    /// Publishes the metrics of an update.
    pub(super) fn publish(&self, text: String) -> anyhow::Result<()> {
        if let Some(file) = OutputFile::open(self.textfile.as_ref(), &[])? {
            file.finish(prometheus_text(&text).as_bytes())?;
        }
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(())
    }
}

impl Drop for MetricsOutput {
    fn drop(&mut self) {
        self.server.iter().for_each(|server| server.unblock());
    }
}

fn serve(address: SocketAddr, page: &Arc<Mutex<String>>) -> anyhow::Result<Arc<Server>> {
    let server = Server::http(address).map_err(|error| anyhow!("--metrics {address}: cannot be opened: {error}"))?;
    let server = Arc::new(server);
    output::eprint_line(&format!("ibscope: metrics at http://{}{PATH}", server.server_addr()));
    let (own, page) = (Arc::clone(&server), Arc::clone(page));
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        for request in own.incoming_requests() {
            // A client that is gone does not matter.
            let _ = answer(request, &page);
        }
    })?;
    Ok(server)
}

fn answer(request: Request, page: &Mutex<String>) -> std::io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default();
    if path != PATH || !matches!(request.method(), Method::Get | Method::Head) {
        return request.respond(Response::from_string(format!("metrics are at {PATH}\n")).with_status_code(404));
    }
    let accepts = |header: &Header| header.field.equiv("Accept") && header.value.as_str().contains(OPEN_METRICS);
    let accepts_open_metrics = request.headers().iter().any(accepts);
    let text = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (text, kind) =
        if accepts_open_metrics { (text, OPEN_METRICS_ANSWER) } else { (prometheus_text(&text), PROMETHEUS_ANSWER) };
    let response = Response::from_string(text);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => request.respond(response.with_header(header)),
        Err(()) => request.respond(response),
    }
}
