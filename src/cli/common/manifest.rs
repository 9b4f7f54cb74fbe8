//! Reads the manifest of a captured run for the analysis: names of endpoints, leaf switches, jobs
//! and clocks.

use crate::model::link::Speed;
use crate::model::profile::{Input, Profile};
use crate::model::{Clock, count_either};
use crate::pipeline::EndpointInfo;
use anyhow::bail;
use ibscope_orchestrator::manifest::{Manifest, ManifestCapture, ManifestPort};
use ibscope_parsers::{Endpoint, Lid};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Clocks of the manifest with a larger uncertainty are not used if packets can align the inputs.
/// Packets give the offset of a clock to within a few microseconds; comparing clocks over the
/// network gives it only to within fractions of a millisecond.
const COARSE_NS: u64 = 100_000;

/// The LIDs of a port: `2^lmc` of them.
fn endpoints(port: &ManifestPort) -> impl Iterator<Item = Endpoint> + use<> {
    (port.lid..=port.lid.saturating_add((1 << port.lmc) - 1)).map(|lid| Endpoint::from_lid(Lid(lid)))
}

/// A file may be given by another path than in the manifest.
fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Note on the packets that a ring of files has overwritten. Their number is the difference between the
/// count of the capture program and the records of the input, if the input was read to its end.
fn note_on_ring(capture: &ManifestCapture, inputs: &[Input]) -> Option<String> {
    let ended = capture.ended.as_ref()?;
    let ring = ended.ring.filter(|ring| ring.is_full)?;
    let place = canonical(&capture.file);
    let input = inputs.iter().find(|input| !input.ends_early && canonical(Path::new(&input.name)) == place);
    let counts = input.zip(ended.counted).filter(|(input, _)| input.share.is_none());
    let missing = counts.and_then(|(input, counted)| counted.packets.checked_sub(input.coverage.records));
    let which = match missing {
        Some(0) => return None,
        Some(packets) => format!("{} missing", count_either(packets, "earlier packet is", "earlier packets are")),
        None => "earlier packets may be missing".to_owned(),
    };
    let (sink, files) = (&capture.sink, ring.files);
    Some(format!("{sink}: the capture kept its newest {files} files (capture.ring_files): {which}"))
}

/// A manifest and its path.
pub(in crate::cli) struct ManifestFile {
    path: PathBuf,
    manifest: Manifest,
}

impl ManifestFile {
    /// Reads the manifest at `path`, if given.
    pub(in crate::cli) fn read(path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(Self { path: path.to_owned(), manifest: Manifest::read(path)? }))
    }

    /// Leaf switches of the LIDs, by their GUID.
    fn leaf_switches(&self) -> BTreeMap<Endpoint, String> {
        let known = self.ports().filter(|port| port.leaf_guid != 0);
        known.flat_map(|port| endpoints(port).map(|endpoint| (endpoint, format!("{:#018x}", port.leaf_guid)))).collect()
    }

    /// Data rates of the LIDs in bit/s.
    fn port_rates(&self) -> BTreeMap<Endpoint, u64> {
        let known = self.ports().filter_map(|port| Some((port, Speed::of_port_rate(port.rate_gbits?)?)));
        let rate = |speed: &Speed| (speed.gbit_per_s() * 1e9).round() as u64;
        known.flat_map(|(port, speed)| endpoints(port).map(move |endpoint| (endpoint, rate(&speed)))).collect()
    }

    /// The Slurm job id, by the LIDs of the job's ports.
    fn slurm_jobs(&self) -> BTreeMap<Endpoint, String> {
        let ports = self.manifest.ports.iter().filter(|port| port.lid != 0);
        ports.flat_map(endpoints).map(|endpoint| (endpoint, self.manifest.job_id.to_string())).collect()
    }

    /// Notes in the profile the packets that are missing in the captures and profiles of sinks. The
    /// packets of the profile alone do not prove that it is complete then.
    pub(in crate::cli) fn note_missing_packets(&self, profile: &mut Profile) {
        let notes = self.notes_on_missing_packets(&profile.inputs);
        profile.trust.doubt(notes.iter().cloned());
        profile.notes.extend(notes);
    }

    fn notes_on_missing_packets(&self, inputs: &[Input]) -> Vec<String> {
        let notes = |capture: &ManifestCapture| {
            let (sink, ended) = (&capture.sink, capture.ended.clone().unwrap_or_default());
            let dropped = ended.profile.map_or(0, |counts| counts.dropped_packets);
            let missing = count_either(dropped, "packet is", "packets are");
            let slow = (dropped > 0)
                .then(|| format!("{sink}: the analysis beside the capture could not keep up, so {missing} missing"));
            let limited = ended.limit.map(|limit| {
                format!("{sink}: the capture ended at its limit, capture.{}: later packets are missing", limit.key())
            });
            slow.into_iter().chain(limited).chain(note_on_ring(capture, inputs))
        };
        self.manifest.captures.iter().flat_map(notes).collect()
    }

    /// Everything that the manifest has on endpoints.
    pub(in crate::cli) fn endpoint_info(&self) -> anyhow::Result<EndpointInfo> {
        let (leaves, port_rates, slurm_jobs) = (self.leaf_switches(), self.port_rates(), self.slurm_jobs());
        Ok(EndpointInfo { names: self.names()?, leaves, port_rates, slurm_jobs })
    }

    /// The ports that have a LID.
    fn ports(&self) -> impl Iterator<Item = &ManifestPort> {
        self.manifest.ports.iter().chain(&self.manifest.sinks).filter(|port| port.lid != 0)
    }

    /// Names of the LIDs: the node, and the adapter and port if the node has several ports.
    fn names(&self) -> anyhow::Result<BTreeMap<Endpoint, String>> {
        let ports: Vec<&ManifestPort> = self.ports().collect();
        let mut guids: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for port in &ports {
            let known = guids.entry(&port.node).or_default();
            if !known.contains(&port.port_guid) {
                known.push(port.port_guid);
            }
        }
        let mut names: BTreeMap<Endpoint, String> = BTreeMap::new();
        for own in ports {
            let ManifestPort { node, ca, port, .. } = own;
            let is_one_of_several = guids.get(node.as_str()).is_some_and(|guids| guids.len() > 1);
            let name = if is_one_of_several && !ca.is_empty() { format!("{node}/{ca}:{port}") } else { node.clone() };
            for endpoint in endpoints(own) {
                let before = names.insert(endpoint, name.clone());
                if let Some(before) = before.filter(|before| *before != name) {
                    bail!(
                        "{}: LID {endpoint} belongs to {before} and to {name}; remove one of the two ports from the manifest",
                        self.path.display()
                    );
                }
            }
        }
        Ok(names)
    }

    /// Clocks of these captures, keyed by the paths that the user gave. `by_packets` is true if
    /// packets can align the captures as well.
    pub(super) fn clocks(
        &self,
        inputs: &[PathBuf],
        by_packets: bool,
    ) -> anyhow::Result<BTreeMap<PathBuf, (Clock, u64)>> {
        let known: BTreeMap<PathBuf, _> = self
            .manifest
            .captures
            .iter()
            .filter_map(|capture| Some((canonical(&capture.file), capture.clock?)))
            .filter(|(_, clock)| !by_packets || clock.uncertainty_ns < COARSE_NS)
            .collect();
        let clock = |input: &PathBuf| {
            let clock = known.get(&canonical(input))?;
            let own = Clock::ahead(clock.at_ns, clock.offset_ns, clock.drift_ppm * 1e-6);
            Some((input.clone(), (own, clock.uncertainty_ns)))
        };
        let clocks: BTreeMap<_, _> = inputs.iter().filter_map(clock).collect();
        let runs_away =
            |(_, (clock, _)): &(&PathBuf, &(Clock, u64))| !clock.gain.is_finite() || clock.gain.abs() > 1e-2;
        if let Some((input, _)) = clocks.iter().find(runs_away) {
            bail!(
                "{}: the clock of {} drifts by more than 10 000 ppm, which no real clock does; correct the manifest",
                self.path.display(),
                input.display()
            );
        }
        Ok(clocks)
    }
}
