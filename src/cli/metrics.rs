//! The outlets for the metrics of `ibscope watch`: a socket that Prometheus scrapes, and a text
//! file.

mod server;

use super::common::files::OutputFile;
use super::common::output;
use crate::render::metrics::prometheus_text;
use anyhow::anyhow;
use server::{HttpPage, PageServer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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
    server: Option<PageServer>,
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

fn serve(address: SocketAddr, page: &Arc<Mutex<String>>) -> anyhow::Result<PageServer> {
    let page = Arc::clone(page);
    let make = move |accept: &str| {
        let text = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if accept.contains(OPEN_METRICS) {
            HttpPage { media_type: OPEN_METRICS_ANSWER, text }
        } else {
            HttpPage { media_type: PROMETHEUS_ANSWER, text: prometheus_text(&text) }
        }
    };
    let server = PageServer::start(address, PATH, make)
        .map_err(|error| anyhow!("--metrics {address}: cannot be opened: {error}"))?;
    output::eprint_line(&format!("ibscope: metrics at http://{}{PATH}", server.address()));
    Ok(server)
}
