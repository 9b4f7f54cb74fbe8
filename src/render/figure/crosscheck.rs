//! Figure of a cross-check: the matrices of the trace and of the wire in the same color scale, and
//! a third matrix with the outcome and the difference of each pair of ranks. Pairs of ranks on one node are
//! hatched in the matrices of the wire and of the outcomes, as in `matrix`.
//!
//! With more than [`MAX_CELLS`] ranks, a cell shows the largest value of a block of pairs, as in
//! the matrix, and the worst outcome of these pairs.

use super::canvas::{Area, Canvas, Figure, LINE, MARGIN, TEXT, TICK, TextAnchor, WIDTH, pixels, widest, width};
use super::legend::{Legend, Swatch};
use super::scale::{ColorScale, NONE, human, is_light, shade};
use crate::analysis::round_numbers::steps;
use crate::crosscheck::{Crosscheck, CrosscheckOutcome, PairComparison};
use crate::render::RenderError;
use crate::render::crosscheck::NAME_RANKS;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor, WHITE};
use std::collections::BTreeMap;

/// Distance between two matrices.
const GAP: i32 = 48;
/// Maximum number of rows of a matrix; more are combined in blocks.
const MAX_CELLS: usize = 128;
/// Maximum number of rows with white lines between cells.
const MAX_LINES: usize = 32;
/// Smallest readable font size of a number.
const SMALLEST_NUMBER: i32 = 24;
const BAR: i32 = 40;
/// Number of colors of the bar.
const COLORS: u32 = 128;

/// Colors of the outcomes, from Okabe and Ito's palette; light colors for outcomes that need no
/// attention.
pub(super) const OUTCOMES: [(CrosscheckOutcome, RGBColor); 6] = [
    (CrosscheckOutcome::Equal, RGBColor(178, 213, 232)),
    (CrosscheckOutcome::SameNode, RGBColor(153, 216, 199)),
    (CrosscheckOutcome::Explained, RGBColor(86, 180, 233)),
    (CrosscheckOutcome::NotIdentified, RGBColor(204, 121, 167)),
    (CrosscheckOutcome::Tolerated, RGBColor(240, 228, 66)),
    (CrosscheckOutcome::Unexplained, RGBColor(213, 94, 0)),
];

/// One pair of ranks, or a block of them.
#[derive(Clone, Copy, Debug, Default)]
struct OutcomeCell {
    trace: u64,
    wire: u64,
    outcome: Option<CrosscheckOutcome>,
}

impl OutcomeCell {
    fn outcome_color(&self) -> RGBColor {
        let found = OUTCOMES.into_iter().find(|(outcome, _)| self.outcome == Some(*outcome));
        found.map_or(NONE, |(_, color)| color)
    }

    /// The outcome in its color, or hatched as in the matrix.
    fn outcome_fill(&self) -> CellFill {
        if self.outcome == Some(CrosscheckOutcome::SameNode) {
            CellFill::Hatched
        } else {
            CellFill::Color(self.outcome_color())
        }
    }
}

/// The background of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CellFill {
    Color(RGBColor),
    /// The messages of the cell are not on the wire.
    Hatched,
}

/// Legend text of an outcome: its name and, where the user can act, what to do.
fn in_legend(outcome: CrosscheckOutcome) -> String {
    let name = outcome.name();
    if outcome == CrosscheckOutcome::NotIdentified { format!("{name} ({NAME_RANKS})") } else { name.to_owned() }
}

/// The laid-out figure: three matrices.
pub(super) struct Matrices {
    title: String,
    legend: Legend,
    scale: ColorScale,
    ranks: usize,
    /// Cells per row; less than `ranks` where ranks are combined in blocks.
    count: usize,
    cells: Vec<OutcomeCell>,
    /// Width of the row labels.
    names: i32,
    top: i32,
    side: i32,
}

impl Matrices {
    pub(super) fn new(crosscheck: &Crosscheck) -> Result<Self, RenderError> {
        let ranks =
            crosscheck.pairs.iter().map(|pair| pair.src.max(pair.dst) as usize + 1).max().ok_or(RenderError::Empty)?;
        let block = ranks.div_ceil(MAX_CELLS).max(1);
        let count = ranks.div_ceil(block);
        let mut blocks: BTreeMap<usize, OutcomeCell> = BTreeMap::new();
        for pair in &crosscheck.pairs {
            let PairComparison { src, dst, trace, wire, .. } = pair;
            let cell = blocks.entry(*src as usize / block * count + *dst as usize / block).or_default();
            cell.trace = cell.trace.max(trace.bytes);
            cell.wire = cell.wire.max(wire.bytes);
            cell.outcome = cell.outcome.max(Some(pair.outcome()));
        }
        let cells: Vec<OutcomeCell> =
            (0..count * count).map(|index| blocks.get(&index).copied().unwrap_or_default()).collect();
        let values = cells.iter().flat_map(|cell| [cell.trace, cell.wire]);
        // If no message has bytes, every cell has the color of "no messages".
        let scale = ColorScale::new(values).unwrap_or(ColorScale { min: 1, max: 1, log: false });
        let used = OUTCOMES.into_iter().filter(|(outcome, _)| cells.iter().any(|cell| cell.outcome == Some(*outcome)));
        let names = widest([(ranks - 1).to_string().as_str()], TICK)?;
        let left = MARGIN + TEXT + names + 20;
        let items = used.map(|(outcome, color)| match outcome {
            CrosscheckOutcome::SameNode => (in_legend(outcome), Swatch::Hatched),
            _ => (in_legend(outcome), Swatch::Area(color)),
        });
        let items = items.chain([("no messages".to_owned(), Swatch::Area(NONE))]);
        let legend = Legend::new(items, MARGIN, WIDTH - MARGIN)?;
        let top = legend.bottom + TICK + MARGIN;
        let side = (WIDTH - MARGIN - left - 2 * GAP) / 3;
        // Use a whole number of pixels per cell where cells are large enough.
        let per_cell = side / pixels(count);
        let side = if per_cell >= 4 { per_cell * pixels(count) } else { side };
        let title = if block > 1 {
            format!("MPI bytes (point-to-point) by rank; each cell shows the largest of {block} × {block} ranks")
        } else {
            "MPI bytes (point-to-point) by rank".to_owned()
        };
        Ok(Self { title, legend, scale, ranks, count, cells, names, top, side })
    }

    fn panel(&self, index: i32) -> Area {
        let left = MARGIN + TEXT + self.names + 20 + index * (self.side + GAP);
        Area { left, top: self.top, right: left + self.side, bottom: self.top + self.side }
    }

    fn cell(&self, panel: Area, row: usize, column: usize) -> Area {
        let at = |cell: usize| (f64::from(self.side) * cell as f64 / self.count as f64).round() as i32;
        Area {
            left: panel.left + at(column),
            top: panel.top + at(row),
            right: panel.left + at(column + 1),
            bottom: panel.top + at(row + 1),
        }
    }

    fn color(&self, value: u64) -> RGBColor {
        let steps = f64::from(COLORS - 1);
        if value == 0 { NONE } else { shade((self.scale.share(value) * steps).round() / steps) }
    }

    /// Draws the cells with their texts; all texts of a panel have the same size.
    fn draw_cells<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        panel: Area,
        of: impl Fn(&OutcomeCell) -> (CellFill, String),
    ) -> Result<(), RenderError> {
        canvas.fill(panel, NONE)?;
        let shown: Vec<(CellFill, String)> = self.cells.iter().map(of).collect();
        let room = self.side / pixels(self.count) * 9 / 10;
        let words = || shown.iter().flat_map(|(_, text)| text.split(' ')).filter(|word| !word.is_empty());
        let size = (TICK * room / widest(words(), TICK)?.max(1)).min(room * 2 / 5).min(TICK * 4 / 5);
        for (index, (fill, text)) in shown.iter().enumerate() {
            let cell = self.cell(panel, index / self.count, index % self.count);
            let color = match fill {
                CellFill::Color(color) => *color,
                CellFill::Hatched => {
                    canvas.hatch(cell)?;
                    continue;
                }
            };
            if color != NONE {
                canvas.fill(cell, color)?;
            }
            if size < SMALLEST_NUMBER || text.is_empty() {
                continue;
            }
            let (x, y) = (i32::midpoint(cell.left, cell.right), i32::midpoint(cell.top, cell.bottom));
            let ink = if is_light(color) { BLACK } else { WHITE };
            match text.split_once(' ') {
                Some((number, unit)) => {
                    canvas.text(number, (x, y - size * 9 / 20), TextAnchor::Middle, size, ink)?;
                    canvas.text(unit, (x, y + size * 9 / 20), TextAnchor::Middle, size, ink)?;
                }
                None => canvas.text(text, (x, y), TextAnchor::Middle, size, ink)?,
            }
        }
        if self.count <= MAX_LINES {
            for index in 1..self.count {
                let at = self.cell(panel, index, index);
                canvas.line(&[(at.left, panel.top), (at.left, panel.bottom)], WHITE, LINE)?;
                canvas.line(&[(panel.left, at.top), (panel.right, at.top)], WHITE, LINE)?;
            }
        }
        canvas.frame(panel)
    }

    /// Draws the rank labels below a panel, and at the left of the first panel.
    fn draw_ranks<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        panel: Area,
        is_first: bool,
    ) -> Result<(), RenderError> {
        let per_rank = f64::from(self.side) / self.ranks as f64;
        let every = |least: i32| steps().find(|&step| step as f64 * per_rank >= f64::from(least)).unwrap_or(self.ranks);
        let (across, down) = (every(self.names + 26), every(TICK * 13 / 10));
        let middle = |rank: usize| ((rank as f64 + 0.5) * per_rank).round() as i32;
        for rank in (0..self.ranks).step_by(across) {
            let at = (panel.left + middle(rank), panel.bottom + 10 + TICK / 2);
            canvas.text(&rank.to_string(), at, TextAnchor::Middle, TICK, BLACK)?;
        }
        for rank in (0..self.ranks).step_by(down).filter(|_| is_first) {
            canvas.text(
                &rank.to_string(),
                (panel.left - 12, panel.top + middle(rank)),
                TextAnchor::Right,
                TICK,
                BLACK,
            )?;
        }
        Ok(())
    }

    /// Draws the color bar for bytes below the first two panels.
    fn draw_bar<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let (left, right) = (self.panel(0).left, self.panel(1).right);
        let top = self.top + self.side + 10 + TICK + TEXT + MARGIN;
        let bar = Area { left, right, top, bottom: top + BAR };
        let x = |share: f64| left + (share * f64::from(right - left)).round() as i32;
        for index in 0..COLORS {
            // Each rectangle reaches to the end of the bar, so that no seams are visible.
            let from = Area { left: x(f64::from(index) / f64::from(COLORS)), ..bar };
            canvas.fill(from, shade(f64::from(index) / f64::from(COLORS - 1)))?;
        }
        canvas.frame(bar)?;
        let mut free = 0;
        for tick in self.scale.ticks(true) {
            let text = human(tick, true);
            let at = x(self.scale.share(tick));
            canvas.line(&[(at, bar.bottom), (at, bar.bottom + 10)], BLACK, LINE)?;
            let half = width(&text, TICK)? / 2;
            if at - half >= free {
                canvas.text(&text, (at, bar.bottom + 14 + TICK / 2), TextAnchor::Middle, TICK, BLACK)?;
                free = at + half + 26;
            }
        }
        let kind = if self.scale.log { "bytes, log scale" } else { "bytes" };
        canvas.text(kind, (right + GAP, i32::midpoint(bar.top, bar.bottom)), TextAnchor::Left, TICK, BLACK)
    }
}

impl Figure for Matrices {
    fn height(&self) -> i32 {
        self.top + self.side + 10 + TICK + TEXT + MARGIN + BAR + 14 + TICK + MARGIN
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        let text = |value: u64| if value == 0 { String::new() } else { human(value, true) };
        let [trace, wire, difference] = [0, 1, 2].map(|index| self.panel(index));
        self.draw_cells(canvas, trace, |cell| (CellFill::Color(self.color(cell.trace)), text(cell.trace)))?;
        self.draw_cells(canvas, wire, |cell| match cell.outcome {
            // Gray means no messages; here the reason is known, or the number is unknown.
            Some(CrosscheckOutcome::NotIdentified) if cell.wire == 0 => (cell.outcome_fill(), "?".to_owned()),
            Some(_) if cell.wire == 0 && cell.trace > 0 => (cell.outcome_fill(), String::new()),
            _ => (CellFill::Color(self.color(cell.wire)), text(cell.wire)),
        })?;
        self.draw_cells(canvas, difference, |cell| {
            let sign = if cell.wire > cell.trace { "+" } else { "-" };
            let bytes = cell.wire.abs_diff(cell.trace);
            let text = match cell.outcome {
                None => String::new(),
                Some(_) if bytes == 0 => "0".to_owned(),
                Some(_) => format!("{sign}{}", human(bytes, true)),
            };
            (cell.outcome_fill(), text)
        })?;
        for (panel, name) in [(trace, "trace"), (wire, "wire"), (difference, "wire - trace")] {
            let x = i32::midpoint(panel.left, panel.right);
            canvas.text(name, (x, panel.top - TICK / 2 - 10), TextAnchor::Middle, TICK, BLACK)?;
            self.draw_ranks(canvas, panel, panel == trace)?;
        }
        canvas.text("sender", (MARGIN + TEXT / 2, self.top + self.side / 2), TextAnchor::UpMiddle, TEXT, BLACK)?;
        let y = self.top + self.side + 10 + TICK + TEXT / 2;
        canvas.text("receiver", (i32::midpoint(wire.left, wire.right), y), TextAnchor::Middle, TEXT, BLACK)?;
        self.draw_bar(canvas)
    }
}
