//! The trees of rooted collective operations.
//!
//! Nodes have virtual ranks: the root is 0, and rank `r` is `(r - root) mod n`. Sources: Open MPI's
//! `coll_base_topo.c`, MPICH's `bcast_intra_binomial.c` and `gather_intra_binomial.c`.

use super::schedule::Schedule;

/// Fanout of Open MPI's chain, and radix of its k-nomial tree (`coll_tuned`).
const CHAINS: u32 = 4;
const RADIX: u32 = 4;

/// The shape of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeShape {
    /// All nodes are children of the root.
    Star,
    /// A node's children are its sums with the powers of two above it (Open MPI).
    BinomialUpward,
    /// A node's children are its sums with the powers of two below its lowest set bit (MPICH; Open
    /// MPI's in-order tree).
    BinomialDownward,
    /// Node `v` has the child `v + 1`.
    Pipeline,
    /// Four chains that start at the root.
    Chain,
    /// Two children per node, numbered level by level (Open MPI).
    Binary,
    /// Like [`Self::BinomialDownward`], with radix 4.
    Knomial,
}

impl TreeShape {
    /// The children of node `v` among `n` nodes, in the order of sending.
    pub(super) fn children(self, v: u32, n: u32) -> Vec<u32> {
        match self {
            Self::Star => (1..n).filter(|_| v == 0).collect(),
            Self::BinomialUpward => {
                powers(2).skip_while(|&mask| mask <= v).map(|mask| v + mask).take_while(|&child| child < n).collect()
            }
            Self::BinomialDownward => knomial_children(v, n, 2),
            Self::Pipeline => (v + 1 < n).then_some(v + 1).into_iter().collect(),
            Self::Chain => chain_children(v, n),
            Self::Binary => {
                let level_width = powers(2).take_while(|&width| width - 1 <= v).last().unwrap_or(1);
                (1..=2).map(|index| v + level_width * index).filter(|&child| child < n).collect()
            }
            Self::Knomial => knomial_children(v, n, RADIX),
        }
    }
}

/// Powers of `radix` that fit twice into 31 bits.
fn powers(radix: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(1u32), move |power| power.checked_mul(radix).filter(|next| *next < 1 << 28))
}

/// The sums of `v` with the multiples of the powers of `radix` below its lowest digit that is not 0;
/// larger powers come first.
fn knomial_children(v: u32, n: u32, radix: u32) -> Vec<u32> {
    let masks: Vec<u32> = powers(radix).take_while(|&mask| mask < n && v.is_multiple_of(mask * radix)).collect();
    let children = masks.into_iter().rev().flat_map(|mask| (1..radix).map(move |digit| v + mask * digit));
    children.filter(|&child| child < n).collect()
}

/// Chains of almost equal length; longer chains come first.
fn chain_children(v: u32, n: u32) -> Vec<u32> {
    let chains = CHAINS.min(n.saturating_sub(1));
    let mut heads = Vec::new();
    let mut next = 1;
    for index in 0..chains {
        let length = (n - 1) / chains + u32::from(index < (n - 1) % chains);
        heads.push(next);
        next += length;
    }
    if v == 0 {
        return heads;
    }
    let child = v + 1;
    if child < n && !heads.contains(&child) { vec![child] } else { Vec::new() }
}

/// A tree with the step of each node.
struct Tree {
    /// Parent and child, parents before their children.
    links: Vec<(u32, u32)>,
    depth: Vec<u32>,
    height: Vec<u32>,
    /// Number of nodes of each subtree.
    size: Vec<u32>,
}

fn tree(shape: TreeShape, n: u32) -> Tree {
    let mut tree =
        Tree { links: Vec::new(), depth: vec![0; n as usize], height: vec![0; n as usize], size: vec![1; n as usize] };
    let mut queue = std::collections::VecDeque::from([0]);
    while let Some(parent) = queue.pop_front() {
        for child in shape.children(parent, n) {
            tree.links.push((parent, child));
            tree.depth[child as usize] = tree.depth[parent as usize] + 1;
            queue.push_back(child);
        }
    }
    for &(parent, child) in tree.links.iter().rev() {
        let (parent, child) = (parent as usize, child as usize);
        tree.height[parent] = tree.height[parent].max(tree.height[child] + 1);
        tree.size[parent] += tree.size[child];
    }
    tree
}

/// Content of a message between a node and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeLoad {
    /// The whole vector.
    Vector,
    /// One block per node of the subtree.
    Subtree,
}

/// From the root to the leaves: broadcast and scatter.
pub(super) fn downward(shape: TreeShape, load: TreeLoad, n: u32, root: u32) -> Schedule {
    schedule(shape, load, (n, root), |tree, parent, child| (tree.depth[parent as usize], (parent, child)))
}

/// From the leaves to the root: reduce and gather.
pub(super) fn upward(shape: TreeShape, load: TreeLoad, n: u32, root: u32) -> Schedule {
    schedule(shape, load, (n, root), |tree, parent, child| (tree.height[child as usize], (child, parent)))
}

/// Step, and sender and receiver, of the message between a parent and its child.
type LinkMessage = fn(tree: &Tree, parent: u32, child: u32) -> (u32, (u32, u32));

/// One message for each link of a tree.
fn schedule(shape: TreeShape, load: TreeLoad, (n, root): (u32, u32), message: LinkMessage) -> Schedule {
    let mut schedule = Schedule::new(n);
    let tree = tree(shape, n);
    for &(parent, child) in &tree.links {
        let (first, count) = match load {
            TreeLoad::Vector => (0, n),
            TreeLoad::Subtree => (child, tree.size[child as usize]),
        };
        let (step, (src, dst)) = message(&tree, parent, child);
        schedule.send(step, ((src + root) % n, (dst + root) % n), first, count);
    }
    schedule.sorted()
}

/// Open MPI's Reduce along an in-order binary tree: the last rank is the root of the tree, and sends
/// the result to the root of the operation.
pub(super) fn in_order_binary_reduce(n: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    in_order_subtree(&mut schedule, 0, n);
    let top = n - 1;
    if root != top {
        let step = schedule.next_step();
        schedule.send_all(step, (top, root));
    }
    schedule.sorted()
}

/// The messages inside the subtree of `size` ranks from `first`, whose top is the last of them. The
/// right subtree has the first half of the ranks, the left one the others. Returns the step after
/// the messages.
fn in_order_subtree(schedule: &mut Schedule, first: u32, size: u32) -> u32 {
    let top = first + size - 1;
    let right = if size > 2 { size / 2 } else { 0 };
    let mut step = 0;
    for (first, size) in [(first + right, size - 1 - right), (first, right)] {
        if size > 0 {
            let own = in_order_subtree(schedule, first, size);
            schedule.send_all(own, (first + size - 1, top));
            step = step.max(own + 1);
        }
    }
    step
}
