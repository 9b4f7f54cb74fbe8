//! The cells of a matrix as rectangles in a square, and the hatching of those whose traffic cannot be seen.
//!
//! Input is a sparse matrix and the largest number of rows that can be drawn. A cell of a larger matrix
//! shows the largest value of a square block, as in the report: the color scale stays that of pairs.

use super::bar::ColorBar;
use super::canvas::{Area, Canvas, LINE, pixels};
use super::scale::NONE;
use crate::analysis::matrix::{CellValue, Matrix, TrafficUnit};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{RGBColor, WHITE};

/// Least side of a cell, in pixels, with white lines between cells.
const LEAST_WITH_LINES: i32 = 24;

/// A dense matrix of values by row and column.
pub(super) struct CellGrid {
    /// Rows (and columns) of the original matrix.
    labels: usize,
    /// Rows of the original matrix in one row of the grid.
    pub(super) block: usize,
    /// Rows (and columns) of the grid.
    pub(super) count: usize,
    /// Largest values row by row; 0 means no traffic.
    pub(super) values: Vec<u64>,
}

impl CellGrid {
    /// Builds the grid from a sparse matrix with `labels` rows, with at most `most` rows.
    pub(super) fn new(cells: impl Iterator<Item = ((u32, u32), u64)>, labels: usize, most: usize) -> Self {
        let block = labels.div_ceil(most).max(1);
        let count = labels.div_ceil(block);
        let mut values = vec![0_u64; count * count];
        for ((row, column), value) in cells {
            let (row, column) = (row as usize / block, column as usize / block);
            if let Some(largest) = values.get_mut(row * count + column) {
                *largest = value.max(*largest);
            }
        }
        Self { labels, block, count, values }
    }

    /// Start of a label in pixels from the edge of a square with this side.
    pub(super) fn offset(&self, label: usize, side: i32) -> i32 {
        (f64::from(side) * label.min(self.labels) as f64 / self.labels as f64).round() as i32
    }

    /// Area of a row's cells from one column up to, not including, another.
    pub(super) fn area(&self, square: Area, row: usize, columns: (usize, usize)) -> Area {
        let at = |index: usize| self.offset(index * self.block, square.right - square.left);
        Area {
            left: square.left + at(columns.0),
            top: square.top + at(row),
            right: square.left + at(columns.1),
            bottom: square.top + at(row + 1),
        }
    }

    /// Draws the cells with a value into a square, and lines between all cells.
    pub(super) fn draw<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        square: Area,
        bar: &ColorBar,
    ) -> Result<(), RenderError> {
        for (row, values) in self.values.chunks(self.count.max(1)).enumerate() {
            let mut start = 0;
            // Neighbors of the same color become one rectangle, which keeps files small.
            for run in values.chunk_by(|&a, &b| color(bar, a) == color(bar, b)) {
                let columns = (start, start + run.len());
                if let Some(&value) = run.first().filter(|&&value| value > 0) {
                    canvas.fill(self.area(square, row, columns), color(bar, value))?;
                }
                start = columns.1;
            }
        }
        let side = square.right - square.left;
        if pixels(self.count) * LEAST_WITH_LINES <= side {
            for index in 1..self.count {
                let at = self.offset(index, side);
                let (x, y) = (square.left + at, square.top + at);
                canvas.line(&[(x, square.top), (x, square.bottom)], WHITE, LINE)?;
                canvas.line(&[(square.left, y), (square.right, y)], WHITE, LINE)?;
            }
        }
        Ok(())
    }
}

/// The cells without a value: which are hatched, and which show a 0.
pub(super) struct CellsWithoutValue {
    /// Cells whose traffic is not on this wire, because both ranks are on one node.
    on_one_node: Vec<(usize, usize)>,
    /// True if cells without traffic may have traffic that was not captured.
    is_partial: bool,
    /// Cells whose packets have the value 0.
    pub(super) zeros: Vec<(usize, usize)>,
    /// Cells on the diagonal of a partial matrix that have nothing to miss inside a port.
    diagonal: Vec<(usize, usize)>,
    /// True if any cell is hatched.
    pub(super) is_hatched: bool,
}

impl CellsWithoutValue {
    /// The cells without a value in this unit. A block of several pairs is neither hatched because of
    /// one of them nor 0: its other pairs may be on the wire.
    pub(super) fn of(matrix: &Matrix, cells: &CellGrid, unit: TrafficUnit) -> Self {
        let place = |ends: (u32, u32)| (ends.0 as usize, ends.1 as usize);
        let has_pairs = cells.block == 1;
        let pairs = if has_pairs { matrix.pairs_on_one_node() } else { Vec::new() };
        let is_hidden = |ends: &(u32, u32)| matrix.cell_value(*ends, unit) == CellValue::OneNode;
        let on_one_node: Vec<(usize, usize)> = pairs.into_iter().filter(is_hidden).map(place).collect();
        let is_zero = |ends: &(u32, u32)| has_pairs && matrix.cell_value(*ends, unit) == CellValue::Value(0);
        let zeros: Vec<(usize, usize)> = matrix.cells.keys().copied().filter(is_zero).map(place).collect();
        // Traffic inside a port is not missing.
        let misses_none = |at: &usize| has_pairs && !matrix.may_miss((*at as u32, *at as u32));
        let diagonal: Vec<(usize, usize)> = (0..cells.count).filter(misses_none).map(|at| (at, at)).collect();
        let is_not_captured = |(index, value): (usize, &u64)| {
            let (row, column) = (index / cells.count, index % cells.count);
            *value == 0 && !(row == column && misses_none(&row))
        };
        let is_partial = matrix.is_partial;
        let is_hatched = !on_one_node.is_empty() || is_partial && cells.values.iter().enumerate().any(is_not_captured);
        Self { on_one_node, is_partial, zeros, diagonal, is_hatched }
    }

    /// Fills the square with the color of no traffic. If cells may have traffic that was not
    /// captured, hatches all cells except those in which nothing is missing.
    pub(super) fn draw_background<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        cells: &CellGrid,
        square: Area,
    ) -> Result<(), RenderError> {
        if !self.is_partial {
            return canvas.fill(square, NONE);
        }
        canvas.hatch(square)?;
        let not_missing = self.diagonal.iter().chain(&self.zeros);
        let cell = |(row, column): &(usize, usize)| cells.area(square, *row, (*column, column + 1));
        not_missing.map(cell).try_for_each(|cell| canvas.fill(cell, NONE))
    }

    /// Hatches the cells of ranks on one node.
    pub(super) fn draw_on_one_node<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        cells: &CellGrid,
        square: Area,
    ) -> Result<(), RenderError> {
        let area = |(row, column): &(usize, usize)| cells.area(square, *row, (*column, column + 1));
        self.on_one_node.iter().map(area).try_for_each(|cell| canvas.hatch(cell))
    }
}

/// Color of a cell with this value.
pub(super) fn color(bar: &ColorBar, value: u64) -> RGBColor {
    if value == 0 { NONE } else { bar.color(value) }
}
