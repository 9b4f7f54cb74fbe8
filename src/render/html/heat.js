// The heat map: a canvas of cells with totals at its margins, and a second canvas above it for the
// cursor. Zooms in units of labels.

const MARGIN = 56, GAP = 6, AXIS_TITLE = 20, MAX_CELL = 124, HATCH = 6;

/// Fills a square with the color and the hatching of traffic that is not on this wire. Squares
/// below 11 pixels have no hatching.
function hatch(context, left, top, side) {
  context.fillStyle = color("same-node");
  context.fillRect(left, top, side, side);
  if (side < 11) return;
  context.strokeStyle = color("page");
  context.lineWidth = 1;
  context.beginPath();
  for (let at = side % HATCH; at < 2 * side; at += HATCH) {
    context.moveTo(left + Math.max(at - side, 0), top + Math.min(at, side));
    context.lineTo(left + Math.min(at, side), top + Math.max(at - side, 0));
  }
  context.stroke();
}

/// A label that fits into this many pixels. A long one is shortened in its middle: names of nodes and
/// leaf switches often differ in their last characters only.
function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  for (let kept = text.length - 1; kept > 2; kept -= 1) {
    const head = Math.floor(kept / 3);
    const short = `${text.slice(0, head)}…${text.slice(head - kept)}`;
    if (context.measureText(short).width <= room) return short;
  }
  return "…";
}

/// Draws the corner of a cell whose number is a lower bound or uncertain, from its upper right point.
function corner(context, right, top, side) {
  for (let line = 0; line < side; line += 1) context.fillRect(right - side + line, top + line, side - line, 1);
}

class HeatMap {
  /// `box` contains two canvases, for the cells and for the cursor. `events`: `over(row, column, x,
  /// y)`, `out()`, `pick(row, column)`. `totals` enables the totals at the margins.
  constructor(box, events, totals = true) {
    this.events = events;
    [this.canvas, this.top] = box.querySelectorAll("canvas");
    this.totals = totals ? MARGIN + GAP : 0;
    /// Maps of the same size that share zoom and cursor with this map.
    this.peers = [];
    this.cursor = null;
    this.drag = null;
    this.range = [0, 0, 1];
    this.listen();
  }

  /// Replaces the cells. `data` has `size`, `labels`, `order` (the label at each place), `groups`,
  /// `nodes` (labels on the same node), `nodesWithRanks` (labels whose own cell is not on this wire),
  /// `isPartial` (pairs without packets may have sent some), `mayMiss` (the same for a label and
  /// itself), `what`; `rows` and `columns` of the cells; and functions of a cell: `isSeen` (the captures
  /// show packets), `colorOf` (`null`: no traffic), `textOf`, `markOf` (not empty for cells with a
  /// corner) and `weightOf` (the cell with the largest weight represents a pixel). With totals:
  /// `values`.
  show(data) {
    const kept = this.data && this.data.size === data.size;
    this.data = data;
    this.place = new Uint32Array(data.size);
    data.order.forEach((label, at) => (this.place[label] = at));
    if (!kept) {
      this.range = [0, 0, data.size];
      this.cursor = null;
    }
    this.draw();
  }

  layout() {
    const { size, labels } = this.data;
    const context = pen(this.canvas);
    const widest = Math.max(...(size > 400 ? labels.slice(-400) : labels).map(({ text }) => context.measureText(text).width), 10);
    const label = Math.min(Math.ceil(widest), 120);
    const left = AXIS_TITLE + label + 8;
    const room = this.canvas.parentElement.clientWidth - left - this.totals - 2;
    const side = Math.floor(Math.max(120, Math.min(room, size * MAX_CELL, Math.max(360, innerHeight * 0.8))));
    // Long labels on top are rotated.
    const span = side / this.range[2];
    const turned = label > span - 6 && label > 44;
    const above = AXIS_TITLE + (turned ? label : 14) + 8;
    this.box = { left, top: above, side, turned, label, width: left + side + this.totals + 2, height: above + side + this.totals + 2 };
    return this.box;
  }

  draw() {
    const { left, top, side, width, height } = this.layout();
    prepare(this.top, width, height);
    // Publish the position of the cells for programs that inspect the page, such as tests.
    this.top.dataset.plot = [left, top, side, ...this.range].join(" ");
    this.paint(this.canvas);
    this.drawCursor();
  }

  /// Draws everything except the cursor on a canvas.
  paint(canvas) {
    const { left, top, side, width, height } = this.box;
    const context = prepare(canvas, width, height);
    const [x0, y0, span] = this.range;
    const ratio = canvas.width / width;
    context.fillStyle = color("none");
    context.fillRect(left, top, side, side);
    const cell = side / span;
    if (this.data.isPartial && cell * ratio >= 1) this.drawPartial(context, cell);
    if (cell * ratio >= 1) {
      this.drawNodes(context, cell);
      this.drawCells(context, cell);
    }
    else this.drawPixels(context, ratio);
    // As in the figures, a pixel of several pairs shows the largest of them.
    const per = Math.ceil(span / (side * ratio));
    this.combined = per > 1 ? ` (each pixel: the largest of ${per} × ${per})` : "";
    this.drawGroups(context, cell, x0, y0);
    if (this.totals > 0) this.drawTotals(context, cell);
    this.drawLabels(context, cell);
  }

  /// Hatches all cells except those of a port and itself. Cells with traffic are drawn over the hatching.
  drawPartial(context, cell) {
    const { left, top, side } = this.box;
    const [x0, y0, span] = this.range;
    hatch(context, left, top, side);
    context.fillStyle = color("none");
    for (let at = Math.floor(Math.max(x0, y0, 0)); at < Math.min(x0, y0) + span; at += 1) {
      if (this.data.mayMiss?.(this.data.order[at])) continue;
      const [from, to] = [at, at + 1].map((place) => [x0, y0].map((start) => Math.floor(Math.min(Math.max(place - start, 0), span) * cell)));
      context.fillRect(left + from[0], top + from[1], to[0] - from[0], to[1] - from[1]);
    }
    if (cell < 10) return;
    context.fillStyle = color("card");
    for (let at = Math.ceil(x0); at < x0 + span; at += 1) context.fillRect(Math.floor(left + (at - x0) * cell) - 1, top, 1, side);
    for (let at = Math.ceil(y0); at < y0 + span; at += 1) context.fillRect(left, Math.floor(top + (at - y0) * cell) - 1, side, 1);
  }

  /// Draws pairs of ranks on one node, whose messages are not on this wire: gray, hatched where there is
  /// room. Captured traffic of such pairs is drawn over it.
  drawNodes(context, cell) {
    const { left, top, side } = this.box;
    const [x0, y0, span] = this.range;
    const inside = (at) => at >= 0 && at < span;
    context.save();
    context.beginPath();
    context.rect(left, top, side, side);
    context.clip();
    const draw = (row, column) => {
      const [x, y] = [this.place[column] - x0, this.place[row] - y0];
      if (!inside(x) && !inside(x + 1)) return;
      const [ax, ay] = [Math.floor(left + x * cell), Math.floor(top + y * cell)];
      hatch(context, ax, ay, cell >= 10 ? cell - 1 : Math.max(Math.ceil(cell), 1));
    };
    for (const ranks of this.data.nodes ?? []) {
      for (const row of ranks) {
        const y = this.place[row] - y0;
        if (inside(y + 1) || inside(y)) ranks.filter((column) => column !== row).forEach((column) => draw(row, column));
      }
    }
    this.data.nodesWithRanks?.forEach((label) => draw(label, label));
    context.restore();
  }

  /// Draws each cell as a rectangle, with its value where there is room.
  drawCells(context, cell) {
    const { rows, columns, colorOf, textOf, markOf, isPartial, isSeen } = this.data;
    const { left, top } = this.box;
    const [x0, y0, span] = this.range;
    const gap = cell >= 10 ? 1 : 0;
    const texts = cell >= 44;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let i = 0; i < rows.length; i += 1) {
      const x = this.place[columns[i]] - x0;
      const y = this.place[rows[i]] - y0;
      if (x < 0 || y < 0 || x >= span || y >= span) continue;
      const shade = colorOf(i);
      const mark = markOf?.(i) ?? "";
      // The value is 0, but the captures show packets of the pair.
      const isZero = shade === null && isPartial && isSeen(i);
      if (shade === null && mark === "" && !isZero) continue;
      const [red, green, blue] = shade ?? channels(color("none"));
      context.fillStyle = `rgb(${red},${green},${blue})`;
      const [ax, ay] = [Math.floor(left + x * cell), Math.floor(top + y * cell)];
      const [bx, by] = [Math.floor(left + (x + 1) * cell), Math.floor(top + (y + 1) * cell)];
      context.fillRect(ax, ay, Math.max(bx - ax - gap, 1), Math.max(by - ay - gap, 1));
      const light = 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2 > 0.179;
      context.fillStyle = light ? "#000" : "#fff";
      if (texts && shade !== null) this.drawText(context, textOf(i), cell - 3, (ax + bx) / 2, (ay + by) / 2);
      if (mark !== "" && cell >= 5) corner(context, bx - gap, ay, Math.min(Math.max(cell / 4, 3), 12));
    }
  }

  /// Draws a text in the middle of a cell, with the unit on a second line in a narrow cell.
  drawText(context, text, width, x, y) {
    const fits = (part) => context.measureText(part).width < width;
    const lines = fits(text) ? [text] : text.split(" ");
    if (lines.every(fits)) lines.forEach((line, at) => context.fillText(line, x, y + (at - (lines.length - 1) / 2) * 14));
  }

  /// Draws more cells than pixels: a pixel has the color of its cell with the largest weight.
  drawPixels(context, ratio) {
    const { rows, columns, colorOf, weightOf } = this.data;
    const { left, top, side } = this.box;
    const [x0, y0, span] = this.range;
    const pixels = Math.round(side * ratio);
    const most = new Float64Array(pixels * pixels).fill(-1);
    const best = new Int32Array(pixels * pixels).fill(-1);
    const per = pixels / span;
    for (let i = 0; i < rows.length; i += 1) {
      const x = Math.floor((this.place[columns[i]] - x0) * per);
      const y = Math.floor((this.place[rows[i]] - y0) * per);
      if (x < 0 || y < 0 || x >= pixels || y >= pixels) continue;
      const at = y * pixels + x;
      const weight = weightOf(i);
      if (weight <= most[at]) continue;
      most[at] = weight;
      best[at] = i;
    }
    const image = context.createImageData(pixels, pixels);
    const [none, nothing] = ["none", this.data.isPartial ? "same-node" : "none"].map((name) => channels(color(name)));
    for (let at = 0; at < best.length; at += 1) {
      image.data.set(best[at] < 0 ? nothing : (colorOf(best[at]) ?? none), at * 4);
      image.data[at * 4 + 3] = 255;
    }
    context.putImageData(image, Math.round(left * ratio), Math.round(top * ratio));
  }

  /// Draws lines between the processes of different nodes.
  drawGroups(context, cell, x0, y0) {
    const { order, groups, size } = this.data;
    if (!groups || cell < 6) return;
    const { left, top, side } = this.box;
    context.fillStyle = color("page");
    for (let at = 1; at < size; at += 1) {
      if (groups[order[at]] === groups[order[at - 1]]) continue;
      const [x, y] = [left + (at - x0) * cell, top + (at - y0) * cell];
      if (x > left && x < left + side) context.fillRect(Math.floor(x) - 2, top, 3, side);
      if (y > top && y < top + side) context.fillRect(left, Math.floor(y) - 2, side, 3);
    }
  }

  /// Draws the totals of each row (sent) and each column (received) as bars.
  drawTotals(context, cell) {
    const { rows, columns, values, size } = this.data;
    const { left, top, side } = this.box;
    const sent = new Float64Array(size);
    const received = new Float64Array(size);
    for (let i = 0; i < values.length; i += 1) {
      sent[this.place[rows[i]]] += values[i];
      received[this.place[columns[i]]] += values[i];
    }
    this.sent = sent;
    this.received = received;
    const most = Math.max(sent.reduce((a, b) => Math.max(a, b), 0), received.reduce((a, b) => Math.max(a, b), 0));
    if (most === 0) return;
    const [x0, y0, span] = this.range;
    const gap = cell >= 10 ? 1 : 0;
    context.fillStyle = color("bar");
    for (let at = Math.max(0, Math.floor(Math.min(x0, y0))); at < size; at += 1) {
      const [x, y] = [at - x0, at - y0];
      const width = Math.max(cell - gap, 0.5);
      if (y >= 0 && y < span) context.fillRect(left + side + GAP, top + y * cell, (sent[at] / most) * MARGIN, width);
      if (x >= 0 && x < span) context.fillRect(left + x * cell, top + side + GAP, width, (received[at] / most) * MARGIN);
    }
    context.fillStyle = color("muted");
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText("sent", left + side + GAP, top - 6);
    context.save();
    context.translate(left - 6, top + side + GAP);
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillText("received", 0, 0);
    context.restore();
  }

  drawLabels(context, cell) {
    const { order, labels, size, what } = this.data;
    const { left, top, side, turned, label: room } = this.box;
    const [x0, y0, span] = this.range;
    const clip = (text) => shortened(context, text, room);
    const every = (room) => [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000].find((step) => step * cell >= room) ?? 5000;
    const widest = Math.max(...order.filter((_, at) => at % Math.ceil(size / 64) === 0).map((label) => context.measureText(clip(labels[label].text)).width));
    const down = every(18);
    const across = turned ? every(16) : every(widest + 8);
    context.fillStyle = color("text");
    context.textBaseline = "middle";
    for (let at = Math.max(0, Math.floor(y0)); at < Math.min(size, y0 + span); at += 1) {
      if (at % down !== 0) continue;
      context.textAlign = "right";
      context.fillText(clip(labels[order[at]].text), left - 6, top + (at - y0 + 0.5) * cell);
    }
    for (let at = Math.max(0, Math.floor(x0)); at < Math.min(size, x0 + span); at += 1) {
      if (at % across !== 0) continue;
      const x = left + (at - x0 + 0.5) * cell;
      context.save();
      context.translate(x, top - 8);
      if (turned) context.rotate(-Math.PI / 2);
      context.textAlign = turned ? "left" : "center";
      context.fillText(clip(labels[order[at]].text), 0, turned ? 0 : -2);
      context.restore();
    }
    context.fillStyle = color("muted");
    context.textAlign = "center";
    context.fillText(`receiving ${what}${this.combined}`, left + side / 2, 9);
    context.save();
    context.translate(9, top + side / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(`sending ${what}`, 0, 0);
    context.restore();
  }

  /// Draws the cell under the cursor, or the area selected for a zoom.
  drawCursor() {
    const context = pen(this.top);
    const { left, top, side, width, height } = this.box;
    context.clearRect(0, 0, width, height);
    const [x0, y0, span] = this.range;
    const cell = side / span;
    if (this.drag?.moved) {
      const { x, y, w, h } = this.dragged();
      context.fillStyle = color("veil");
      context.fillRect(left, top, side, side);
      context.clearRect(x, y, w, h);
      context.strokeStyle = color("accent");
      context.lineWidth = 1.5;
      context.strokeRect(x, y, w, h);
      return;
    }
    if (!this.cursor) return;
    const [row, column] = this.cursor;
    const [x, y] = [left + (column - x0) * cell, top + (row - y0) * cell];
    context.fillStyle = color("cross");
    context.fillRect(left, y, side, Math.max(cell, 1));
    context.fillRect(x, top, Math.max(cell, 1), side);
    context.clearRect(x, y, Math.max(cell, 1), Math.max(cell, 1));
    context.strokeStyle = color("text");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(cell, 3) + 1, Math.max(cell, 3) + 1);
  }

  /// The square selected by a drag.
  dragged() {
    const { left, top, side } = this.box;
    const { from, to } = this.drag;
    const reach = Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]));
    const x = to[0] < from[0] ? from[0] - reach : from[0];
    const y = to[1] < from[1] ? from[1] - reach : from[1];
    const w = Math.min(reach, side);
    return { x: Math.min(Math.max(x, left), left + side - w), y: Math.min(Math.max(y, top), top + side - w), w, h: w };
  }

  /// Row and column, as places, at a point on the canvas.
  at(x, y) {
    const { left, top, side } = this.box;
    const [x0, y0, span] = this.range;
    const column = Math.floor(((x - left) / side) * span + x0);
    const row = Math.floor(((y - top) / side) * span + y0);
    const inside = x >= left && y >= top && x < left + side && y < top + side;
    return inside && row < this.data.size && column < this.data.size ? [row, column] : null;
  }

  zoom(factor, row, column) {
    const [x0, y0, span] = this.range;
    const next = Math.min(this.data.size, Math.max(Math.min(4, this.data.size), span * factor));
    const [x, y] = [column ?? x0 + span / 2, row ?? y0 + span / 2];
    this.view(x - ((x - x0) * next) / span, y - ((y - y0) * next) / span, next);
  }

  view(x, y, span) {
    const most = this.data.size - span;
    for (const map of [this, ...this.peers]) {
      map.range = [Math.min(Math.max(x, 0), most), Math.min(Math.max(y, 0), most), span];
      map.draw();
    }
  }

  all() {
    this.view(0, 0, this.data.size);
  }

  point(row, column, clientX, clientY) {
    this.mark([row, column]);
    const { order } = this.data;
    this.events.over(order[row], order[column], clientX, clientY);
  }

  leave() {
    this.mark(null);
    this.events.out();
  }

  mark(cursor) {
    for (const map of [this, ...this.peers]) {
      map.cursor = cursor;
      map.drawCursor();
    }
  }

  listen() {
    const { top } = this;
    const place = (event) => {
      const { left, top: above } = top.getBoundingClientRect();
      return [event.clientX - left, event.clientY - above];
    };
    top.addEventListener("pointermove", (event) => {
      const here = place(event);
      if (this.drag) {
        this.drag.to = here;
        this.drag.moved ||= Math.hypot(here[0] - this.drag.from[0], here[1] - this.drag.from[1]) > 6;
        if (this.drag.moved) this.events.out();
        return this.drawCursor();
      }
      const found = this.at(...here);
      if (found) this.point(...found, event.clientX, event.clientY);
      else this.leave();
    });
    top.addEventListener("pointerleave", () => this.drag || this.leave());
    top.addEventListener("pointerdown", (event) => {
      const here = place(event);
      if (event.button !== 0 || !this.at(...here)) return;
      this.drag = { from: here, to: here, moved: false };
      top.setPointerCapture(event.pointerId);
    });
    top.addEventListener("pointerup", () => {
      const { drag } = this;
      if (!drag) return;
      if (drag.moved) {
        const { x, y, w } = this.dragged();
        this.drag = null;
        const { left, top: above, side } = this.box;
        const [x0, y0, span] = this.range;
        const next = Math.max((w / side) * span, Math.min(4, this.data.size));
        return this.view(x0 + ((x - left) / side) * span, y0 + ((y - above) / side) * span, next);
      }
      this.drag = null;
      const found = this.at(...drag.from);
      if (found) this.events.pick(this.data.order[found[0]], this.data.order[found[1]]);
    });
    top.addEventListener("pointercancel", () => (this.drag = null));
    top.addEventListener("dblclick", () => this.all());
    top.addEventListener("wheel", (event) => {
      // Without a modifier key, the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const found = this.at(...place(event));
      if (found) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, ...found);
    }, { passive: false });
    top.addEventListener("blur", () => this.leave());
    top.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (this.data.size === 0) return;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const [x0, y0, span] = this.range;
    const last = this.data.size - 1;
    if (event.key in moves) {
      const far = event.shiftKey ? Math.max(1, Math.floor(span / 8)) : 1;
      const start = this.cursor ?? [Math.floor(y0), Math.floor(x0)];
      const step = this.cursor ? far : 0;
      const [row, column] = moves[event.key].map((move, index) => Math.min(Math.max(start[index] + move * step, 0), last));
      const follow = (at, from) => (at < from ? at : at >= from + span ? at - span + 1 : from);
      if (follow(column, x0) !== x0 || follow(row, y0) !== y0) this.view(follow(column, x0), follow(row, y0), span);
      const { left, top } = this.top.getBoundingClientRect();
      const cell = this.box.side / this.range[2];
      const x = left + this.box.left + (column - this.range[0] + 1) * cell;
      this.point(row, column, x, top + this.box.top + (row - this.range[1] + 1) * cell);
    } else if (event.key === "+" || event.key === "=") this.zoom(0.7, ...(this.cursor ?? []));
    else if (event.key === "-") this.zoom(1.4, ...(this.cursor ?? []));
    else if (event.key === "0") this.all();
    else if (event.key === "Escape") this.leave();
    else if ((event.key === "Enter" || event.key === " ") && this.cursor) {
      this.events.pick(...this.cursor.map((at) => this.data.order[at]));
    } else return;
    event.preventDefault();
  }
}
