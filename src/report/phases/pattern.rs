//! The matrix of a phase -> the name of its pattern.

use super::pairs::Pairs;
use super::windows::Window;
use crate::model::Profile;

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
    /// How well the matrix fits it, 0 to 1; 0 where the name is unknown.
    pub confidence: f64,
    /// Who sends also receives from the same, about as much.
    pub symmetric: bool,
}

/// The pattern of some windows.
pub(super) fn name(_profile: &Profile, pairs: &Pairs, windows: &[Window]) -> Pattern {
    let mut ends = std::collections::BTreeSet::new();
    for (pair, _, _) in windows.iter().flat_map(|window| &window.parts) {
        let (src, dst) = pairs.labels(*pair);
        ends.extend([src, dst]);
    }
    let name = if ends.len() == 2 { Name::Pair } else { Name::Unknown };
    Pattern { name, confidence: f64::from(u8::from(name != Name::Unknown)), symmetric: false }
}
