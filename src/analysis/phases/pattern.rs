//! The graph of a phase -> the name of its communication pattern, or `unknown`.
//!
//! Only significant pairs count: pairs whose two directions together carry at least a tenth of the
//! average pair (weighted by traffic). Pair, ring, tree, master-worker and all-to-all are
//! recognized by the structure of the graph, regardless of the numbering of its nodes. Grids are
//! recognized in rank order (endpoint order if there are no ranks), with and without wrap-around
//! and corner neighbors; a grid with another numbering is `unknown`. A name must fit all but a few
//! pairs, and no other name may fit almost as well.
//!
//! A pattern gets no name that unobserved traffic could contradict. The traffic between ranks of
//! one node is unobserved, so no name may depend on its absence. One port may see only a star or a
//! tree of a larger pattern, so these names require a capture of all ports. Fewer than six nodes
//! are pairs or `unknown`.

use super::graph::Graph;
use super::lattice::GridSides;
use std::collections::BTreeSet;

/// A name fits if at least this share of all expected or observed pairs is both expected and
/// observed.
const MIN_FIT: f64 = 0.9;
/// A name must fit better than any other name by this margin.
const MIN_FIT_MARGIN: f64 = 0.05;
/// Significant pairs must carry at least this share of the traffic.
const MIN_EXPLAINED_SHARE: f64 = 0.8;
/// All of the traffic, with a margin for rounding.
const ALL_TRAFFIC: f64 = 1.0 - 1e-9;
/// A name with a lower fit does not fit at all.
const MAX_MISFIT: f64 = 0.6;
/// Largest standard deviation over mean of the pairs of an all-to-all pattern.
const MAX_UNEVENNESS: f64 = 0.3;
/// With fewer nodes, every name but pairs fits by chance.
const MIN_NODES: usize = 6;

/// A communication pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatternName {
    /// Each node communicates with one other node.
    Pair,
    /// Each node communicates with the next, the last with the first.
    Ring,
    /// Neighbors on a grid of two dimensions.
    Halo2d,
    /// Neighbors on a grid of three dimensions.
    Halo3d,
    /// Every node communicates about equally with every other node.
    AllToAll,
    /// One node communicates with all others in both directions.
    MasterWorker,
    /// Connected without a cycle, in several levels.
    Tree,
    /// No regular pattern.
    Irregular,
    /// Several names fit, or none.
    Unknown,
}

impl PatternName {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Ring => "ring",
            Self::Halo2d => "halo 2D",
            Self::Halo3d => "halo 3D",
            Self::AllToAll => "all-to-all",
            Self::MasterWorker => "master-worker",
            Self::Tree => "tree",
            Self::Irregular => "irregular",
            Self::Unknown => "unknown",
        }
    }
}

/// The pattern of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhasePattern {
    /// Name of the pattern.
    pub name: PatternName,
    /// How well the matrix fits the name, 0 to 1: the share of pairs that fit, times the share of
    /// the traffic that they carry. 0 for `unknown`.
    pub confidence: f64,
    /// True if nodes receive about as much from each partner as they send to it.
    pub symmetric: bool,
}

/// Names the pattern of a graph.
pub(super) fn detect(graph: &Graph) -> PhasePattern {
    let symmetric = graph.symmetry() >= 0.8;
    let unknown = PhasePattern { name: PatternName::Unknown, confidence: 0.0, symmetric };
    if graph.nodes() < 2 || graph.explained < MIN_EXPLAINED_SHARE {
        return unknown;
    }
    let mut fits = Vec::new();
    structures(graph, &mut fits);
    grids(graph, &mut fits);
    fits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let best = fits.first().copied().unwrap_or((PatternName::Unknown, 0.0));
    let other = fits.iter().find(|(name, _)| *name != best.0).map_or(0.0, |(_, fit)| *fit);
    let named = |name, fit: f64| PhasePattern { name, confidence: fit * graph.explained, symmetric };
    match best {
        (PatternName::Unknown, _) if best.1 >= MIN_FIT => unknown,
        (name, fit) if fit >= MIN_FIT && fit - other >= MIN_FIT_MARGIN => named(name, fit),
        (_, fit) if fit < MAX_MISFIT && is_irregular(graph) => named(PatternName::Irregular, 1.0 - fit),
        _ => unknown,
    }
}

/// Adds the fit of patterns that do not depend on the numbering.
fn structures(graph: &Graph, fits: &mut Vec<(PatternName, f64)>) {
    let (nodes, pairs, degrees) = (graph.nodes(), graph.pairs.len(), graph.degrees());
    let all = |degree: usize| degrees.iter().all(|other| *other == degree);
    // A few nodes are pairs only if no other node communicates.
    if !graph.is_crowded && all(1) && graph.explained >= ALL_TRAFFIC {
        fits.push((PatternName::Pair, 1.0));
    }
    if nodes < MIN_NODES {
        return;
    }
    if let Some((share, _)) = graph.evenness().filter(|(_, deviation)| *deviation <= MAX_UNEVENNESS) {
        fits.push((PatternName::AllToAll, share));
    }
    if graph.is_crowded || !graph.is_connected() {
        return;
    }
    if all(2) {
        fits.push((PatternName::Ring, 1.0));
    }
    if pairs + 1 == nodes && graph.sees_all_ports {
        let most = degrees.iter().copied().max().unwrap_or_default();
        // Collectives with one root have the same graph.
        if most == pairs && graph.is_mutual() && graph.collective_share < 0.5 {
            fits.push((PatternName::MasterWorker, 1.0));
        } else if most > 2 && most < pairs {
            fits.push((PatternName::Tree, 1.0));
        }
    }
}

/// Adds the fit of grids, which depend on the numbering.
fn grids(graph: &Graph, fits: &mut Vec<(PatternName, f64)>) {
    let Some(places) = graph.numbered.filter(|_| graph.nodes() >= MIN_NODES) else { return };
    let seen = graph.pairs.len() as u64;
    // If pairs are hidden (on one node), few visible pairs fit many grids.
    if graph.is_crowded && seen < 12 {
        return;
    }
    for sides in GridSides::all(places) {
        let mut grids = sides.grids();
        // Drop grids with far fewer pairs than were observed: they cannot fit.
        grids.retain(|grid| grid.pairs() as f64 >= MAX_MISFIT * seen as f64);
        if grids.is_empty() {
            continue;
        }
        let hidden = sides.neighbors(|a, b| graph.is_hidden(a, b));
        let mut talking = None;
        for grid in grids {
            let visible = grid.pairs() - hidden.on(&grid);
            // The best possible fit is too low: skip the count.
            if (visible.min(seen) as f64) < MAX_MISFIT * visible.max(seen) as f64 {
                continue;
            }
            let talking = talking.get_or_insert_with(|| sides.neighbors(|a, b| graph.talk(a, b)));
            let both = talking.on(&grid);
            let fit = both as f64 / (visible + seen - both).max(1) as f64;
            let name = match grid.dimensions() {
                _ if grid.is_hypercube() => PatternName::Unknown,
                2 => PatternName::Halo2d,
                _ => PatternName::Halo3d,
            };
            fits.push((name, fit));
        }
    }
}

/// True if nodes differ widely in their number of partners, which excludes any regular layout.
fn is_irregular(graph: &Graph) -> bool {
    let degrees: BTreeSet<(usize, usize)> = graph.directed_degrees().into_iter().collect();
    !graph.is_crowded && graph.nodes() >= 8 && degrees.len() >= (graph.nodes() / 4).max(5)
}
