//! The matrix of a phase -> the name of its pattern, or `unknown`.
//!
//! What counts are the pairs that carry traffic worth mentioning: both directions together at least a tenth of what such a pair carries on average (the
//! average over the traffic). Ring, pairs, tree, master and workers and all-to-all are told by the structure of that graph, whatever the numbering.
//! Grids are told in the order of the ranks (of the endpoints, where those have no ranks), with and without neighbours beyond the edges and corners:
//! a grid that was numbered otherwise is `unknown`. A name has to fit all but a few pairs, and none of another name may fit about equally.
//!
//! What a capture cannot see speaks against a name: ranks of one node talk unseen, so what depends on their silence is not said; and a star or a tree may be
//! all that one port sees of something else, so these need a capture of all ports. Fewer than six that take part are pairs or `unknown`.

use super::graph::Graph;
use super::lattice::Sides;
use std::collections::BTreeSet;

/// A name fits if this share of the pairs, expected or seen, is both.
const FITS: f64 = 0.9;
/// A name must fit better than any other by this.
const BETTER: f64 = 0.05;
/// Pairs worth mentioning must carry this share of the traffic.
const EXPLAINED: f64 = 0.8;
/// All of the traffic, but for rounding.
const ALL: f64 = 1.0 - 1e-9;
/// What fits less than this does not fit at all.
const FITS_NOT: f64 = 0.6;
/// Everyone sends about equally to everyone: standard deviation over mean.
const EVEN: f64 = 0.3;
/// Of fewer than this one cannot say more than that they are pairs: everything fits.
const MANY: usize = 6;

/// What a matrix looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// Two, or each with one other.
    Pair,
    /// Each with the next, the last with the first.
    Ring,
    /// Neighbours on a grid of two dimensions.
    Halo2d,
    /// Neighbours on a grid of three dimensions.
    Halo3d,
    /// Everyone with everyone, about equally.
    AllToAll,
    /// One with all others, there and back.
    MasterWorker,
    /// Connected without a circle, in several levels.
    Tree,
    /// Nothing regular.
    Irregular,
    /// Several fit, or none.
    Unknown,
}

impl Name {
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
pub struct Pattern {
    /// Its name.
    pub name: Name,
    /// How well the matrix fits it, 0 to 1: the share of pairs that do, times the share of the traffic that they carry; 0 where it is unknown.
    pub confidence: f64,
    /// Who sends also receives from the same, about as much.
    pub symmetric: bool,
}

/// Names the pattern of a graph.
pub(super) fn name(graph: &Graph) -> Pattern {
    let symmetric = graph.symmetry() >= 0.8;
    let unknown = Pattern { name: Name::Unknown, confidence: 0.0, symmetric };
    if graph.nodes() < 2 || graph.explained < EXPLAINED {
        return unknown;
    }
    let mut fits = Vec::new();
    structures(graph, &mut fits);
    grids(graph, &mut fits);
    fits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let best = fits.first().copied().unwrap_or((Name::Unknown, 0.0));
    let other = fits.iter().find(|(name, _)| *name != best.0).map_or(0.0, |(_, fit)| *fit);
    let named = |name, fit: f64| Pattern { name, confidence: fit * graph.explained, symmetric };
    match best {
        (Name::Unknown, _) if best.1 >= FITS => unknown,
        (name, fit) if fit >= FITS && fit - other >= BETTER => named(name, fit),
        (_, fit) if fit < FITS_NOT && is_irregular(graph) => named(Name::Irregular, 1.0 - fit),
        _ => unknown,
    }
}

/// What does not depend on the numbering.
fn structures(graph: &Graph, fits: &mut Vec<(Name, f64)>) {
    let (nodes, pairs, degrees) = (graph.nodes(), graph.pairs.len(), graph.degrees());
    let all = |degree: usize| degrees.iter().all(|other| *other == degree);
    // Few are a pair only where nobody else says anything.
    if !graph.is_crowded && all(1) && graph.explained >= ALL {
        fits.push((Name::Pair, 1.0));
    }
    if nodes < MANY {
        return;
    }
    if let Some((share, _)) = graph.evenness().filter(|(_, deviation)| *deviation <= EVEN) {
        fits.push((Name::AllToAll, share));
    }
    if graph.is_crowded || !graph.is_connected() {
        return;
    }
    if all(2) {
        fits.push((Name::Ring, 1.0));
    }
    if pairs + 1 == nodes && graph.sees_all_ports {
        let most = degrees.iter().copied().max().unwrap_or_default();
        // Collectives of one root look like that as well.
        if most == pairs && graph.is_mutual() && graph.collective_share < 0.5 {
            fits.push((Name::MasterWorker, 1.0));
        } else if most > 2 && most < pairs {
            fits.push((Name::Tree, 1.0));
        }
    }
}

/// What is told by the numbering.
fn grids(graph: &Graph, fits: &mut Vec<(Name, f64)>) {
    let Some(places) = graph.numbered.filter(|_| graph.nodes() >= MANY) else { return };
    let seen = graph.pairs.len() as u64;
    // Few pairs beside hidden ones fit many grids.
    if graph.is_crowded && seen < 12 {
        return;
    }
    for sides in Sides::all(places) {
        let mut grids = sides.grids();
        // Of more pairs than these grids have, few fit.
        grids.retain(|grid| grid.pairs() as f64 >= FITS_NOT * seen as f64);
        if grids.is_empty() {
            continue;
        }
        let hidden = sides.neighbors(|a, b| graph.is_hidden(a, b));
        let mut talking = None;
        for grid in grids {
            let visible = grid.pairs() - hidden.on(&grid);
            // No need to look.
            if (visible.min(seen) as f64) < FITS_NOT * visible.max(seen) as f64 {
                continue;
            }
            let talking = talking.get_or_insert_with(|| sides.neighbors(|a, b| graph.talk(a, b)));
            let both = talking.on(&grid);
            let fit = both as f64 / (visible + seen - both).max(1) as f64;
            let name = match grid.dimensions() {
                _ if grid.is_hypercube() => Name::Unknown,
                2 => Name::Halo2d,
                _ => Name::Halo3d,
            };
            fits.push((name, fit));
        }
    }
}

/// Many different numbers of partners: nothing that is laid out by a rule has so many.
fn is_irregular(graph: &Graph) -> bool {
    let degrees: BTreeSet<(usize, usize)> = graph.directed_degrees().into_iter().collect();
    !graph.is_crowded && graph.nodes() >= 8 && degrees.len() >= (graph.nodes() / 4).max(5)
}
