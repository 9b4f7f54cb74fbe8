//! The cells of a matrix as rectangles in a square.
//!
//! Input is a sparse matrix and the largest number of rows that can be drawn. A cell of a larger matrix
//! shows the largest value of a square block, as in the report: the color scale stays that of pairs.

use super::bar::ColorBar;
use super::canvas::{Area, Canvas, LINE, pixels};
use super::scale::NONE;
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

/// Color of a cell with this value.
pub(super) fn color(bar: &ColorBar, value: u64) -> RGBColor {
    if value == 0 { NONE } else { bar.color(value) }
}
