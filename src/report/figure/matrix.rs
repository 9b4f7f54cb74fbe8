//! The matrix as a heat map.

use super::super::ReportError;
use super::super::color::{self, Shading};
use super::super::matrix::{By, Matrix, Unit};
use super::super::units::{self, Scaled};
use super::canvas::{Align, BLACK, Canvas, GREY, TEXT, WHITE, fit, text_width};
use plotters::backend::DrawingBackend;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
/// Room for one line of text.
const LINE: f64 = TEXT * 1.3;
/// Labels wider than this are shortened.
const MAX_LABEL: f64 = 250.0;
/// From the map's edge to the end of the colour bar.
const BAR_GAP: f64 = 30.0;
const BAR_WIDTH: f64 = 34.0;
/// Largest number of labels with numbers in the cells.
const NUMBERED: usize = 10;
const MIN_NUMBER: f64 = 18.0;

/// A laid-out figure.
pub(super) struct Figure<'a> {
    matrix: &'a Matrix,
    unit: Unit,
    shading: Shading,
    scaled: Scaled,
    labels: Vec<String>,
    /// Every how many labels one is written.
    stride: usize,
    /// Column labels stand upright.
    upright: bool,
    ticks: Vec<(f64, String)>,
    left: f64,
    top: f64,
    side: f64,
    height: f64,
}

impl<'a> Figure<'a> {
    pub(super) fn of(matrix: &'a Matrix, unit: Unit) -> Result<Self, ReportError> {
        let range = matrix.range(unit);
        let shading = Shading::of(range);
        let max = range.map_or(0, |(_, max)| max);
        let scaled = if unit.is_bytes() { Scaled::bytes(max) } else { Scaled::count(max) };
        let ticks = ticks(shading, &scaled);

        let mut labels = Vec::new();
        for label in &matrix.labels {
            labels.push(fit(&label.short(), TEXT, MAX_LABEL)?);
        }
        let widest = widest(labels.iter().map(String::as_str))?;
        let widest_tick = widest_of_ticks(&ticks)?;

        let left = MARGIN + LINE + widest + 14.0;
        let right = BAR_GAP + BAR_WIDTH + 14.0 + widest_tick + 8.0 + LINE + MARGIN;
        let side = WIDTH - left - right;
        let cell = side / labels.len().max(1) as f64;
        // Labels keep a distance of their own height; upright ones need no more than that in either direction.
        let stride = ((TEXT * 0.95 / cell).ceil() as usize).max(1);
        let stride = units_of_ten(stride);
        let upright = widest + 12.0 > cell * stride as f64;
        let below = if upright { widest } else { TEXT } + 18.0;
        let top = MARGIN + LINE + 8.0;
        let height = top + side + below + LINE + MARGIN;
        Ok(Self { matrix, unit, shading, scaled, labels, stride, upright, ticks, left, top, side, height })
    }

    pub(super) fn size(&self) -> (u32, u32) {
        (WIDTH as u32, self.height.ceil() as u32)
    }

    pub(super) fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let title = title(self.matrix, self.unit);
        let title = fit(&title, TEXT, WIDTH - 2.0 * MARGIN)?;
        canvas.text(&title, (WIDTH / 2.0, MARGIN + LINE / 2.0), TEXT, Align::Middle, BLACK)?;
        self.draw_cells(canvas)?;
        self.draw_labels(canvas)?;
        self.draw_bar(canvas)
    }

    fn edge(&self, index: usize) -> f64 {
        self.side * index as f64 / self.labels.len().max(1) as f64
    }

    fn draw_cells<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let (left, top, side) = (self.left, self.top, self.side);
        canvas.rect((left, top), (left + side, top + side), GREY)?;
        let count = self.labels.len();
        for (&(row, column), cell) in &self.matrix.cells {
            let Some(value) = cell.value(self.unit).filter(|&value| value > 0) else { continue };
            let shade = color::viridis(self.shading.position(value as f64));
            let (row, column) = (row as usize, column as usize);
            let (x0, x1) = (left + self.edge(column), left + self.edge(column + 1));
            let (y0, y1) = (top + self.edge(row), top + self.edge(row + 1));
            canvas.rect((x0, y0), (x1, y1), shade)?;
        }
        // White lines between cells that are large enough to bear them.
        if count <= 32 {
            for index in 0..=count {
                let edge = self.edge(index);
                canvas.line(&[(left + edge, top), (left + edge, top + side)], WHITE, 2.0)?;
                canvas.line(&[(left, top + edge), (left + side, top + edge)], WHITE, 2.0)?;
            }
        }
        if count <= NUMBERED { self.draw_numbers(canvas) } else { Ok(()) }
    }

    fn draw_numbers<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let mut texts = Vec::new();
        let mut widest: f64 = 1.0;
        for (&(row, column), cell) in &self.matrix.cells {
            let Some(value) = cell.value(self.unit).filter(|&value| value > 0) else { continue };
            let text = self.scaled.number(value);
            widest = widest.max(text_width(&text, TEXT)?);
            let dark = color::wants_dark_text(color::viridis(self.shading.position(value as f64)));
            texts.push((row as usize, column as usize, text, if dark { BLACK } else { WHITE }));
        }
        let size = TEXT.min(TEXT * self.edge(1) * 0.88 / widest);
        if size < MIN_NUMBER {
            return Ok(());
        }
        let middle = self.edge(1) / 2.0;
        for (row, column, text, ink) in texts {
            let at = (self.left + self.edge(column) + middle, self.top + self.edge(row) + middle);
            canvas.text(&text, at, size, Align::Middle, ink)?;
        }
        Ok(())
    }

    fn draw_labels<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let (left, bottom) = (self.left, self.top + self.side);
        let half = self.edge(1) / 2.0;
        for (index, label) in self.labels.iter().enumerate().step_by(self.stride) {
            let middle = self.edge(index) + half;
            canvas.text(label, (left - 10.0, self.top + middle), TEXT, Align::End, BLACK)?;
            if self.upright {
                canvas.text_up(label, (left + middle, bottom + 10.0), TEXT, Align::End, BLACK)?;
            } else {
                canvas.text(label, (left + middle, bottom + 10.0 + TEXT / 2.0), TEXT, Align::Middle, BLACK)?;
            }
        }
        let by = match self.matrix.by {
            By::Endpoint => "",
            By::Rank => " rank",
        };
        let (across, down) = (left + self.side / 2.0, self.top + self.side / 2.0);
        canvas.text_up(&format!("sender{by}"), (MARGIN + TEXT / 2.0, down), TEXT, Align::Middle, BLACK)?;
        let line = self.height - MARGIN - TEXT / 2.0;
        canvas.text(&format!("receiver{by}"), (across, line), TEXT, Align::Middle, BLACK)
    }

    fn draw_bar<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let (x0, x1) = (self.left + self.side + BAR_GAP, self.left + self.side + BAR_GAP + BAR_WIDTH);
        let bottom = self.top + self.side;
        let steps = 128;
        for step in 0..steps {
            let (from, to) = (f64::from(step) / f64::from(steps), f64::from(step + 1) / f64::from(steps));
            let (y0, y1) = (bottom - self.side * to, bottom - self.side * from);
            canvas.rect((x0, y0), (x1, y1), color::viridis((from + to) / 2.0))?;
        }
        for (position, text) in &self.ticks {
            let y = bottom - self.side * position;
            canvas.line(&[(x1, y), (x1 + 8.0, y)], BLACK, 2.0)?;
            canvas.text(text, (x1 + 14.0, y), TEXT, Align::Start, BLACK)?;
        }
        let name = format!("{}{}", name(self.unit), self.scaled.bracket());
        let middle = self.top + self.side / 2.0;
        canvas.text_up(&name, (WIDTH - MARGIN - TEXT / 2.0, middle), TEXT, Align::Middle, BLACK)
    }
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> Result<f64, ReportError> {
    texts.map(|text| text_width(text, TEXT)).try_fold(0.0, |widest: f64, width| Ok(widest.max(width?)))
}

fn widest_of_ticks(ticks: &[(f64, String)]) -> Result<f64, ReportError> {
    widest(ticks.iter().map(|(_, text)| text.as_str()))
}

/// The next larger of 1, 2, 5, 10, 20 ...
fn units_of_ten(stride: usize) -> usize {
    let mut power = 1;
    loop {
        for factor in [1, 2, 5] {
            if factor * power >= stride {
                return factor * power;
            }
        }
        power *= 10;
    }
}

/// Name of a unit in titles.
fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Messages => "messages",
        Unit::MpiBytes => "MPI bytes",
        Unit::PayloadBytes => "payload",
        Unit::WireBytes => "wire bytes",
        Unit::Packets => "packets",
    }
}

fn title(matrix: &Matrix, unit: Unit) -> String {
    use super::super::matrix::Selection;
    let is_mpi = match unit {
        Unit::Messages => matrix.by == By::Rank || matrix.selection != Selection::All,
        Unit::MpiBytes => true,
        _ => false,
    };
    match (unit, is_mpi) {
        (Unit::Messages, true) => format!("MPI messages, {}", matrix.selection.title()),
        (Unit::MpiBytes, _) => format!("MPI bytes, {}", matrix.selection.title()),
        (Unit::Messages, false) => "transport messages".to_owned(),
        (Unit::PayloadBytes, _) => "InfiniBand payload".to_owned(),
        (Unit::WireBytes, _) => "bytes on the wire".to_owned(),
        (Unit::Packets, _) => "packets, ACKs and repeats included".to_owned(),
    }
}

/// Marks of the colour bar: positions from 0 to 1 and their numbers.
fn ticks(shading: Shading, scaled: &Scaled) -> Vec<(f64, String)> {
    let (low, high) = (shading.low() / scaled.divisor, shading.high() / scaled.divisor);
    match shading {
        Shading::Linear { .. } => {
            let step = units::nice_step(high, 5);
            let step = if scaled.divisor > 1.0 { step } else { step.max(1.0) };
            let decimals = units::step_decimals(step);
            let count = (high / step + 1e-9).floor() as usize;
            (0..=count).map(|index| index as f64 * step).map(|value| (value / high, format!("{value:.decimals$}"))).collect()
        }
        Shading::Log { .. } => {
            let (first, last) = (low.log10().ceil() as i32, high.log10().floor() as i32);
            // At most six powers of ten.
            let step = ((last - first) / 6 + 1).max(1);
            let powers = (first..=last).rev().step_by(step as usize);
            let mark = |power: i32| {
                let value = 10_f64.powi(power);
                let text = if (-3..=5).contains(&power) {
                    format!("{value:.*}", usize::try_from(-power).unwrap_or(0))
                } else {
                    format!("1e{power}")
                };
                (shading.position(value * scaled.divisor), text)
            };
            powers.map(mark).collect()
        }
    }
}
