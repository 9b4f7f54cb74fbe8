//! Findings on losses, receive buffers and congestion, from the health of the connections.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::analysis::health::{LinkDirection, known_health, known_retransmissions, severity};
use crate::model::profile::{ConnectionRow, HealthRow, RetransmissionSums};
use crate::model::{Health, Profile, TrafficKind, count_of};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Opcode;
use std::collections::{BTreeMap, BTreeSet};

/// Packets that prove a loss: a receiver reported it, or the packet arrived late by a
/// retransmission. A single one may be an effect of the start of a capture.
const FEWEST_PROOFS: u64 = 3;
/// Retransmissions that a loss causes.
const FEWEST_RETRANSMISSIONS: u64 = 5;
/// Retransmissions without such proof may be timeouts of slow acknowledgements, so more are needed,
/// and a larger share of the requests.
const FEWEST_TIMEOUTS: u64 = 20;
const TIMEOUT_SHARE: f64 = 0.02;
/// Share of retransmitted packets from which go-back-N costs most of the bandwidth of a path.
const CRITICAL_LOSS: f64 = 0.01;
/// Below this share, retransmissions cost nothing that can be measured.
const INFO_LOSS: f64 = 0.0001;
/// RNR NAKs: each stops a queue pair for its timer.
const FEWEST_RNR: u64 = 3;
const CRITICAL_RNR: f64 = 0.01;
/// Marks and notifications of congestion.
const FEWEST_MARKS: u64 = 10;
const MARK_SHARE: f64 = 0.001;
const CRITICAL_MARKS: f64 = 0.1;
/// Share of the events from which a finding names one port or path.
const MAIN_SHARE: f64 = 0.8;

/// A connection with events, and what is known of its health.
struct EventRow<'a> {
    connection: &'a ConnectionRow,
    health: Health,
    retransmissions: RetransmissionSums,
}

/// The connections with events, and sums over all connections. A capture may have a million connections
/// without events.
#[derive(Default)]
struct EventRows<'a> {
    rows: Vec<EventRow<'a>>,
    request_packets: u64,
    packets: u64,
}

impl<'a> EventRows<'a> {
    fn of(profile: &'a Profile) -> Self {
        let mut all = Self::default();
        for row in &profile.health {
            let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
            let health = known_health(connection, &row.health);
            let retransmissions = known_retransmissions(connection);
            all.request_packets += health.request_packets;
            all.packets += connection.traffic.packets;
            if health.episodes > 0 || severity(&health, &retransmissions) > 0 {
                all.rows.push(EventRow { connection, health, retransmissions });
            }
        }
        all
    }
}

/// Packets by the path that they were lost on.
type PathEvents = BTreeMap<(Endpoint, Endpoint), u64>;

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    // Every connected service with requests has a row; healthy datagrams have none.
    let is_connected = |row: &ConnectionRow| Opcode(row.service << 5).service().is_connected();
    let needs_rows = |row: &ConnectionRow| row.kind == TrafficKind::Data && is_connected(row);
    if input.profile.health.is_empty() && input.profile.connections.iter().any(needs_rows) {
        diagnosis.unchecked.push("losses and congestion, because the profile has no health".to_owned());
        return;
    }
    let unclear = input.profile.coverage.unclear_copies;
    if unclear > 0 {
        diagnosis.unchecked.push(format!(
            "losses of {}, because their packets appear more often than one or two observation points explain",
            count_of(unclear, "connection")
        ));
    }
    let rows = EventRows::of(input.profile);
    if !input.is_sampled() {
        diagnosis.findings.extend(loss(input, &rows));
    }
    diagnosis.findings.extend(not_ready(input.profile, &rows));
    diagnosis.findings.extend(congestion(input.profile, &rows));
    diagnosis.findings.extend(pauses(input.profile));
}

/// Packets that were lost on the fabric.
fn loss(input: &DiagnosisInput<'_>, all: &EventRows<'_>) -> Option<DiagnosisFinding> {
    let mut events = PathEvents::new();
    let (mut naks, mut late, mut timeouts, mut again) = (0, 0, 0, 0);
    for row in &all.rows {
        let (src, dst) = (row.connection.src, row.connection.dst);
        let own_late = row.health.late_packets.saturating_sub(row.health.reordered_packets);
        naks += row.health.nak_sequence;
        late += own_late;
        timeouts += row.health.episodes;
        again += row.retransmissions.request_packets + row.retransmissions.response_packets;
        let forward = row.health.episodes + row.retransmissions.response_packets.min(own_late.max(1));
        *events.entry((src, dst)).or_default() += forward;
        // The NAK travels against the request that was lost.
        *events.entry((dst, src)).or_default() += row.health.nak_sequence;
    }
    events.retain(|_, count| *count > 0);
    // If a capture misses first transmissions, their retransmissions look like late packets.
    let late = if input.is_incomplete() { 0 } else { late };
    let proofs = naks + late + input.profile.trust.lost_on_fabric_packets.at_least;
    let is_proven = proofs >= FEWEST_PROOFS && again >= FEWEST_RETRANSMISSIONS;
    let rnr: u64 = all.rows.iter().map(|row| row.health.rnr_naks).sum();
    let has_timeouts = timeouts.saturating_sub(rnr) >= FEWEST_TIMEOUTS
        && timeouts as f64 >= TIMEOUT_SHARE * all.request_packets as f64
        && rnr < FEWEST_RNR
        && !input.is_incomplete();
    if !is_proven && !has_timeouts {
        return None;
    }
    let (subject, packets) = place(input.profile, &events);
    let share = again as f64 / packets.max(1) as f64;
    let severity =
        if share < INFO_LOSS { FindingSeverity::Info } else { FindingSeverity::critical_if(share >= CRITICAL_LOSS) };
    let sentence = if is_proven {
        "Packets were lost on the fabric and retransmitted."
    } else {
        "Many requests were retransmitted after a timeout: they or their acknowledgements were lost, or came too late."
    };
    Some(DiagnosisFinding {
        kind: FindingKind::FabricLoss,
        severity,
        confidence: if is_proven { FindingConfidence::High } else { FindingConfidence::Low },
        subject,
        sentence: sentence.to_owned(),
        numbers: vec![
            ("retransmitted_packets", again as f64),
            ("retransmitted_share", share),
            ("nak_sequence", naks as f64),
            ("late_packets", late as f64),
            ("episodes", timeouts as f64),
            ("paths", events.len() as f64),
        ],
        evidence: "health --by link",
        advice: "Check symbol errors, discards and the cable of this link; on RoCE also PFC and the buffers of the switches.",
    })
}

/// The port, path or fabric that the events are about, and the packets that passed it.
fn place(profile: &Profile, events: &PathEvents) -> (String, u64) {
    let all: u64 = events.values().sum();
    let is_main = |count: u64| count as f64 >= MAIN_SHARE * all as f64;
    let packets = |is_own: &dyn Fn(Endpoint, Endpoint) -> bool| {
        let own = profile.connections.iter().filter(|row| row.kind == TrafficKind::Data && is_own(row.src, row.dst));
        own.map(|row| row.traffic.packets).sum::<u64>()
    };
    let mut ends: BTreeMap<(Endpoint, LinkDirection), (u64, usize)> = BTreeMap::new();
    let mut ports: BTreeMap<Endpoint, (u64, BTreeSet<Endpoint>)> = BTreeMap::new();
    for ((src, dst), count) in events {
        for end in [(*src, LinkDirection::From), (*dst, LinkDirection::To)] {
            let entry = ends.entry(end).or_default();
            *entry = (entry.0 + count, entry.1 + 1);
        }
        for (own, peer) in [(src, dst), (dst, src)] {
            let entry = ports.entry(*own).or_default();
            entry.0 += count;
            entry.1.insert(*peer);
        }
    }
    // A link that several lossy paths share comes before the worst of these paths.
    let main: Vec<_> = ends.iter().filter(|(_, (count, paths))| is_main(*count) && *paths > 1).collect();
    if let [(&(own, direction), _)] = main[..] {
        let label = format!("link {} port {}", direction.name(), profile.name_of(own));
        return (label, packets(&|src, dst| if direction == LinkDirection::From { src == own } else { dst == own }));
    }
    if let Some(((src, dst), _)) = events.iter().find(|(_, count)| is_main(**count)) {
        let label = format!("path {} -> {}", profile.name_of(*src), profile.name_of(*dst));
        return (label, packets(&|a, b| (a, b) == (*src, *dst)));
    }
    let main: Vec<_> = ports.iter().filter(|(_, (count, _))| is_main(*count)).collect();
    if let [(own, (_, peers))] = main[..]
        && peers.len() > 1
    {
        return (format!("link of port {}", profile.name_of(*own)), packets(&|src, dst| src == *own || dst == *own));
    }
    if let [(one, _), (other, _)] = main[..] {
        let label = format!("path {} <-> {}", profile.name_of(*one), profile.name_of(*other));
        return (label, packets(&|src, dst| [src, dst] == [*one, *other] || [dst, src] == [*one, *other]));
    }
    (format!("fabric, {} paths", events.len()), packets(&|_, _| true))
}

/// Receivers without receive buffers.
fn not_ready(profile: &Profile, all: &EventRows<'_>) -> Option<DiagnosisFinding> {
    let mut receivers: BTreeMap<Endpoint, u64> = BTreeMap::new();
    let (mut naks, mut longest_ns) = (0, 0);
    for row in all.rows.iter().filter(|row| row.health.rnr_naks > 0) {
        *receivers.entry(row.connection.src).or_default() += row.health.rnr_naks;
        naks += row.health.rnr_naks;
        longest_ns = longest_ns.max(row.health.longest_rnr_timer_ns);
    }
    if naks < FEWEST_RNR {
        return None;
    }
    let (receiver, most) = receivers.iter().max_by_key(|(_, naks)| **naks)?;
    let is_one = *most as f64 >= MAIN_SHARE * naks as f64;
    let is_to =
        |row: &HealthRow| profile.connections.get(row.connection as usize).is_some_and(|own| own.dst == *receiver);
    let own = profile.health.iter().filter(|row| !is_one || is_to(row));
    let requests = own.map(|row| row.health.request_packets).sum::<u64>().max(1);
    let share = naks as f64 / requests as f64;
    let subject =
        if is_one { format!("port {}", profile.name_of(*receiver)) } else { format!("{} ports", receivers.len()) };
    Some(DiagnosisFinding {
        kind: FindingKind::ReceiverNotReady,
        severity: FindingSeverity::critical_if(share >= CRITICAL_RNR),
        confidence: FindingConfidence::High,
        subject,
        sentence: "The receiver had no receive buffer, so senders had to wait and retransmit.".to_owned(),
        numbers: vec![
            ("rnr_naks", naks as f64),
            ("share_of_requests", share),
            ("longest_rnr_timer_ns", longest_ns as f64),
        ],
        evidence: "health",
        advice: "Post more receive buffers, use a shared receive queue, and check what keeps the receiver's process busy.",
    })
}

/// Marks of switches, and notifications of receivers.
fn congestion(profile: &Profile, all: &EventRows<'_>) -> Option<DiagnosisFinding> {
    let mut toward: BTreeMap<Endpoint, u64> = BTreeMap::new();
    let (mut marked, mut notifications) = (0, 0);
    for row in &all.rows {
        let own = row.health.ecn_ce_packets + row.health.fecn_packets;
        // A notification travels against the packets that met congestion.
        let reported = row.health.cnp_packets + row.health.becn_packets;
        marked += own;
        notifications += reported;
        *toward.entry(row.connection.dst).or_default() += own;
        *toward.entry(row.connection.src).or_default() += reported;
    }
    let share = marked.max(notifications) as f64 / all.packets.max(1) as f64;
    if marked + notifications < FEWEST_MARKS || share < MARK_SHARE {
        return None;
    }
    let (receiver, most) = toward.iter().max_by_key(|(_, count)| **count)?;
    let is_one = *most as f64 >= MAIN_SHARE * (marked + notifications) as f64;
    let subject = if is_one { format!("toward port {}", profile.name_of(*receiver)) } else { "fabric".to_owned() };
    Some(DiagnosisFinding {
        kind: FindingKind::Congestion,
        severity: FindingSeverity::critical_if(share >= CRITICAL_MARKS),
        confidence: FindingConfidence::High,
        subject,
        sentence: "Packets encountered congestion: switches marked them, or receivers asked senders to slow down."
            .to_owned(),
        numbers: vec![
            ("marked_packets", marked as f64),
            ("notifications", notifications as f64),
            ("share_of_packets", share),
        ],
        evidence: "health",
        advice: "Look for the receiver or the uplink that all marked packets share: `ibscope rates --by link`.",
    })
}

/// Pause frames of RoCE captures.
fn pauses(profile: &Profile) -> Option<DiagnosisFinding> {
    let coverage = &profile.coverage;
    let pauses: u64 = coverage.pauses.values().map(|pauses| pauses.pauses).sum();
    let share = pauses as f64 / coverage.infiniband.max(1) as f64;
    if pauses < FEWEST_MARKS || share < MARK_SHARE {
        return None;
    }
    let (sender, _) = coverage.pauses.iter().max_by_key(|(_, pauses)| pauses.pauses)?;
    Some(DiagnosisFinding {
        kind: FindingKind::Congestion,
        severity: FindingSeverity::Warning,
        confidence: FindingConfidence::High,
        subject: sender.clone(),
        sentence: "A port paused its sender with pause frames.".to_owned(),
        numbers: vec![("pauses", pauses as f64), ("share_of_packets", share)],
        evidence: "health --by pause",
        advice: "The sender of the pause frames cannot take the traffic: look for a slow receiver behind it.",
    })
}
