// The matrix section: state of the controls, heat map, legend, totals and busiest pairs.

const hasMpi = traffic.mpi.includes(1);
const hasRanks = report.labels.some(({ rank }) => rank !== null);
/// The matrices of this page, from the finest one on.
const MATRICES = Object.keys(NOUNS).filter((by) => by === "endpoint" || (by === "rank" ? hasRanks : GROUPS[by]));
/// The jobs; empty if there is only one.
const JOBS = report.jobs.length > 1 ? report.jobs : [];

/// The state of the controls. `window` is a pair of bins, the second not included, or `null` for
/// the whole run; `pinned` is a cell of the view or `null`.
const state = {
  by: hasRanks ? "rank" : "endpoint",
  job: null,
  unit: hasRanks && hasMpi ? "mpi-bytes" : "payload-bytes",
  selection: hasRanks && hasMpi ? "p2p" : "all",
  scaling: "auto",
  order: "number",
  window: null,
  pinned: null,
};

const views = {};
const view = () => (views[`${state.by} ${state.job}`] ??= new View(state.by, state.job));

/// The current content of the matrix: the view, its sums over the window, and the values of the
/// unit.
let shown = null;

/// The color scale of values: logarithmic from the smallest, or linear from 0. "auto" chooses as
/// the figures do.
function scaleOf(values, scaling = state.scaling) {
  let [min, max] = [Infinity, 0];
  for (const value of values) {
    if (value > 0 && value < min) min = value;
    if (value > max) max = value;
  }
  const log = scaling === "log" || (scaling === "auto" && max / min > 100);
  const share = (value) => (log ? (max > min ? Math.log(value / min) / Math.log(max / min) : 1) : value / max);
  return { min, max, log, share };
}

/// The order of labels: by number, by leaf and port, by bytes (or packets) sent and received, or by
/// cluster: the groups with most of the traffic of the whole run, which the program computes.
function orderOf(shownView, values) {
  const all = Array.from({ length: shownView.size }, (_, label) => label);
  if (state.order === "node") {
    const leaf = (label) => report.endpoints[shownView.group(label)]?.leaf ?? "";
    return all.sort((a, b) => leaf(a).localeCompare(leaf(b)) || shownView.group(a) - shownView.group(b) || a - b);
  }
  if (state.order === "traffic") {
    const sums = new Float64Array(shownView.size);
    values.forEach((value, cell) => {
      sums[shownView.rows[cell]] += value;
      sums[shownView.columns[cell]] += value;
    });
    return all.sort((a, b) => sums[b] - sums[a] || a - b);
  }
  if (state.order === "cluster" && CLUSTERS[state.by]) {
    const place = new Map(shownView.keys.map((key, at) => [key, at]));
    return CLUSTERS[state.by].map((key) => place.get(key)).filter((at) => at !== undefined);
  }
  return all;
}

const heat = new HeatMap($("heat"), {
  over(row, column, x, y) {
    tip(pairTip(row, column), x, y);
    $("spoken").textContent = spoken(row, column);
  },
  out: () => tip(null),
  pick(row, column) {
    const cell = shown.view.cell(row, column);
    state.pinned = cell === undefined || cell === state.pinned ? null : cell;
    drawTimeline();
  },
});

/// An estimate as text, as the commands print it.
function estimateText(estimate, isBytes) {
  if (estimate === null || estimate === undefined) return "unknown";
  if (estimate === "too few") return "too few samples";
  const [value, low, high] = estimate.map(isBytes ? bytes : group);
  return `~${value} (${low} to ${high})`;
}

/// The tooltip of a pair: the columns of the csv, in both directions.
function pairTip(row, column) {
  const { view: own, sums } = shown;
  const of = (from, to) => {
    const cell = own.cell(from, to);
    return cell === undefined || sums.sums[PACKETS][cell] === 0 ? null : values(state.by, state.selection, sums, cell);
  };
  const [there, back] = [of(row, column), of(column, row)];
  const box = element("div");
  const [from, to] = [own.labels[row].full, own.labels[column].full];
  box.append(element("strong", `${from} → ${to}`));
  const table = element("table");
  const same = row === column;
  const head = element("tr");
  ["", `${own.labels[row].text} → ${own.labels[column].text}`, ...(same ? [] : [`${own.labels[column].text} → ${own.labels[row].text}`])]
    .forEach((text) => head.append(element(text === "" ? "td" : "th", text)));
  table.append(head);
  for (const [unit, { name, isBytes }] of Object.entries(UNITS)) {
    const line = element("tr", null, unit === state.unit ? { class: "current" } : {});
    line.append(element("th", name, { scope: "row" }));
    const cell = (found) => {
      const value = found?.[unit];
      const text = found === null ? "–" : value === null ? "unknown" : group(value);
      const td = element("td", text, { "data-value": found === null ? "" : value ?? "" });
      if (isBytes && value > 9999) td.append(element("small", bytes(value)));
      return td;
    };
    line.append(cell(there));
    if (!same) line.append(cell(back));
    table.append(line);
  }
  box.append(table);
  if (report.sampled !== null) box.append(element("p", report.sampled));
  if (report.sampled !== null && state.window === null) {
    [[there, row, column], [back, column, row]].slice(0, same ? 1 : 2).filter(([found]) => found !== null).forEach(([, from, to]) => {
      const estimates = own.estimates(from, to, state.selection);
      const all = element("table", null, { class: "estimates" });
      all.append(element("caption", `estimated total, ${own.labels[from].text} → ${own.labels[to].text} (95 % interval)`));
      Object.entries(UNITS).filter(([unit]) => unit in estimates).forEach(([unit, { name, isBytes }]) => {
        const line = element("tr", null, unit === state.unit ? { class: "current" } : {});
        line.append(element("th", name, { scope: "row" }), element("td", estimateText(estimates[unit], isBytes)));
        all.append(line);
      });
      box.append(all);
    });
  }
  const hidden = there === null ? whyHidden(own, row, column) : null;
  if (hidden !== null) box.append(element("p", hidden));
  [[row, column], [column, row]].slice(0, same ? 1 : 2).forEach(([from, to]) => {
    const cell = own.cell(from, to);
    if (cell !== undefined && own.coverage[cell].state > 0) box.append(element("p", `${own.labels[from].text} → ${own.labels[to].text}: coverage ${covered(own.coverage[cell])}`));
  });
  return box;
}

const ONE_NODE = "not on this wire (same node)";
const NOT_CAPTURED = "no packet captured; the captures may not show all ports";

/// The reason why the traffic of a pair without packets may not be zero; `null` if it is zero.
function whyHidden(own, row, column) {
  if (own.isOnOneNode(row, column)) return ONE_NODE;
  return own.mayMiss(row, column) ? NOT_CAPTURED : null;
}

/// The coverage of a pair in words.
function covered({ state, packets, messages }) {
  const missing = [[packets, "packet"], [messages, "message"]].filter(([count]) => count > 0).map(([count, what]) => `${group(count)} ${what}${count === 1 ? "" : "s"}`);
  return `${report.coverage[state].name}${missing.length > 0 ? `, ${missing.join(" and ")} missing` : ""}`;
}

function spoken(row, column) {
  const { view: own, values: shownValues } = shown;
  const cell = own.cell(row, column);
  const value = cell === undefined ? 0 : shownValues[cell];
  const coverage = cell === undefined || own.coverage[cell].state === 0 ? "" : `; coverage ${covered(own.coverage[cell])}`;
  const text = (value === 0 && (cell === undefined || own.isOnOneNode(row, column)) ? whyHidden(own, row, column) : null) ?? exact(value);
  return `${own.labels[row].full} to ${own.labels[column].full}: ${text}${coverage}`;
}

/// A value with the name of the unit.
function exact(value) {
  const { name, isBytes } = UNITS[state.unit];
  return isBytes ? `${bytes(value)} (${group(value)} ${name})` : `${group(value)} ${name}`;
}

function short(value) {
  return UNITS[state.unit].isBytes ? bytes(value) : group(value);
}

const isOfMpi = () => state.unit === "messages" || state.unit === "mpi-bytes";

/// Name of the unit, with the selection where the unit depends on it.
function unitName() {
  if (!isOfMpi()) return UNITS[state.unit].name;
  if (state.unit === "messages" && isOfTransport(state.by, state.selection)) return "transport messages";
  const kind = { p2p: "point-to-point", collective: "collective", all: "all" }[state.selection];
  return `${state.unit === "messages" ? "MPI messages" : "MPI bytes"}, ${kind}`;
}

/// Sums the window and shows the result.
function update() {
  const own = view();
  const sums = own.sum(state.window);
  const unitValues = column(state.by, state.selection, state.unit, sums, own.count);
  shown = { view: own, sums, values: unitValues };
  const order = orderOf(own, unitValues);
  const scale = scaleOf(unitValues);
  const crowded = new Set(own.ports).size < own.size;
  heat.show({
    size: own.size,
    labels: own.labels,
    order,
    rows: own.rows,
    columns: own.columns,
    values: unitValues,
    colorOf: (i) => (unitValues[i] === 0 ? null : SHADES[Math.round(scale.share(unitValues[i]) * 255)]),
    weightOf: (i) => unitValues[i],
    textOf: (i) => `${own.mark(i)}${UNITS[state.unit].isBytes ? bytes(unitValues[i]) : count(unitValues[i])}`,
    markOf: (i) => own.mark(i),
    nodes: own.nodes,
    nodesWithRanks: own.withRanksOnOneNode,
    isPartial: report.is_partial,
    mayMiss: (label) => own.mayMiss(label, label),
    isSeen: (i) => !own.isOnOneNode(own.rows[i], own.columns[i]),
    groups: state.order === "node" && crowded ? own.ports : null,
    what: NOUNS[state.by][0],
  });
  const title = unitName();
  $("matrix-title").textContent = `${title[0].toUpperCase()}${title.slice(1)}${report.sampled === null ? "" : " in the sample"}`;
  drawCoverage(own, unitValues);
  drawLegend($("legend"), Math.min(360, heat.box.side), scale, UNITS[state.unit].isBytes);
  drawTotals(own, sums);
  drawTop(own, unitValues);
  drawCommand();
  drawTimes();
  writeFragment();
  const most = topCells(own, unitValues, 1)[0];
  const busiest = most === undefined ? "no traffic" : `the largest value is ${spoken(own.rows[most], own.columns[most])}`;
  heat.top.setAttribute("aria-label", `Matrix of ${unitName()}, ${own.size} senders in rows and as many receivers in columns; ${busiest}. The table beside it has the busiest pairs.`);
}

/// Explains the marks in cells, with the number of pairs that have them.
function drawCoverage(own, unitValues) {
  const found = report.coverage.map(({ symbol, meaning }, state) => ({ symbol, meaning, state, pairs: own.coverage.filter((coverage) => coverage.state === state).length }));
  const texts = found.filter(({ pairs, state }) => state > 0 && pairs > 0).map(({ symbol, meaning, pairs }) => (own.marked
    ? `${symbol} ${meaning} (${group(pairs)} pair${pairs === 1 ? "" : "s"}).`
    : `Coverage of all pairs is ${meaning}.`));
  if (report.sampled !== null) {
    const left = report.estimates[state.by].left_out;
    texts.push(`The capture is ${report.sampled}; ${state.window === null ? "tooltips and the busiest pairs have estimates of the totals" : "a window has no estimates of the totals"}.`);
    if (left > 0) texts.push(`${group(left)} pairs with the fewest packets have no estimate on this page.`);
  }
  if (texts.length > 0 && state.window) texts.push("Coverage applies to the whole capture.");
  const isHidden = (row, column) => !(unitValues[own.cell(row, column)] > 0);
  if ([...own.withRanksOnOneNode].some((at) => isHidden(at, at))) texts.push("Hatched on the diagonal: not on this wire, since the ranks are on one node.");
  if (own.nodes.some((ranks) => ranks.some((row) => ranks.some((column) => row !== column && isHidden(row, column))))) texts.push("Hatched: not on this wire, since both ranks are on one node.");
  if (report.is_partial && own.cells.size + own.size < own.size ** 2) texts.push("Hatched, or gray where cells are small: no packet captured. The captures may not show all ports, so these pairs may have sent messages.");
  if (own.marked) texts.push("A corner marks the pairs with one of these symbols.");
  $("matrix-coverage").hidden = texts.length === 0;
  $("matrix-coverage").replaceChildren(...texts.map((text) => element("span", text)));
}

/// Draws the color bar.
function drawLegend(canvas, width, { min, max, log, share }, isBytes) {
  const context = prepare(canvas, width + 40, max > 0 ? 40 : 0);
  if (max === 0) return;
  for (let x = 0; x < width; x += 1) {
    const [red, green, blue] = shade(x / width);
    context.fillStyle = `rgb(${red},${green},${blue})`;
    context.fillRect(x + 20, 4, 1.5, 12);
  }
  context.fillStyle = color("muted");
  context.textBaseline = "top";
  const text = (value) => (isBytes ? bytes(value) : count(Math.round(value)));
  const middle = log ? Math.sqrt(min * max) : max / 2;
  const ticks = log && max === min ? [max] : [log ? min : 0, ...(max > 4 && width > 200 ? [middle] : []), max];
  ticks.forEach((value) => {
    const x = 20 + (value === 0 ? 0 : share(value)) * width;
    context.textAlign = x < 50 ? "left" : x > width - 30 ? "right" : "center";
    context.fillText(text(value), x < 50 ? 20 : x > width - 30 ? width + 20 : x, 20);
  });
}

/// Shows the sums over all cells of the window; by rank, the sums of each job separately.
function drawTotals(own, sums) {
  const jobs = state.by === "rank" && state.job === null && JOBS.length > 0 ? [...new Set(own.labels.map(({ job }) => job))] : [undefined];
  const cellsOf = (job) => Array.from({ length: own.count }, (_, cell) => cell).filter((cell) => job === undefined || own.labels[own.rows[cell]].job === job);
  const columns = jobs.map((job) => {
    const cells = cellsOf(job);
    const total = { sums: sums.sums.map((values) => [cells.reduce((sum, cell) => sum + values[cell], 0)]), mpi: [cells.some((cell) => sums.mpi[cell]) ? 1 : 0] };
    const pairs = cells.filter((cell) => sums.sums[PACKETS][cell] > 0).length;
    return { head: job === undefined ? "all pairs" : job === null ? "no job" : `job ${job}`, pairs, values: values(state.by, state.selection, total, 0) };
  });
  const text = (value, isBytes) => (value === null ? "unknown" : isBytes ? bytes(value) : group(value));
  const rows = Object.entries(UNITS).map(([unit, { name, isBytes }]) => [name, ...columns.map((column) => text(column.values[unit], isBytes))]);
  fill($("totals"), report.sampled === null ? "Sums over the window" : "Sums of the sample over the window", ["", ...columns.map(({ head }) => head)], [["pairs", ...columns.map(({ pairs }) => group(pairs))], ...rows]);
}

/// The cells with the largest values, in descending order.
function topCells(own, unitValues, most) {
  const found = [];
  for (let cell = 0; cell < own.count; cell += 1) {
    if (unitValues[cell] === 0 || (found.length === most && unitValues[cell] <= unitValues[found[most - 1]])) continue;
    let at = found.length;
    while (at > 0 && unitValues[found[at - 1]] < unitValues[cell]) at -= 1;
    found.splice(at, 0, cell);
    if (found.length > most) found.pop();
  }
  return found;
}

function drawTop(own, unitValues) {
  const total = unitValues.reduce((a, b) => a + b, 0);
  const top = topCells(own, unitValues, 12);
  $("top-title").textContent = top.length === 0 ? "No traffic in this window" : "Busiest pairs";
  const rows = top.map((cell) => {
    const [from, to] = [own.labels[own.rows[cell]].text, own.labels[own.columns[cell]].text];
    const share = (unitValues[cell] * 100) / total;
    return [`${from} → ${to}`, `${own.mark(cell)}${short(unitValues[cell])}`, share < 0.1 ? "< 0.1 %" : `${share.toFixed(share >= 9.95 ? 0 : 1)} %`];
  });
  const withEstimates = report.sampled !== null && state.window === null;
  if (withEstimates) top.forEach((cell, at) => rows[at].push(estimateText(own.estimates(own.rows[cell], own.columns[cell], state.selection)[state.unit], UNITS[state.unit].isBytes)));
  const sampled = report.sampled === null ? "" : " in the sample";
  fill($("top"), "Busiest pairs", [NOUNS[state.by][1], `${UNITS[state.unit].name}${sampled}`, "share", ...(withEstimates ? ["estimated total, 95 % interval"] : [])], rows);
  $("top").hidden = top.length === 0;
}

/// The command that prints the numbers of the matrix.
function matrixCommand() {
  const job = state.by === "rank" && state.job !== null ? ["--job", state.job] : [];
  return commandOfWindow("matrix", state.window, "--by", state.by, "--traffic", state.selection, "--unit", state.unit, ...job);
}

const ESTIMATED = [["messages", "messages"], ["payload_bytes", "payload-bytes"], ["wire_bytes", "wire-bytes"], ["packets", "packets"]];

/// The csv of `ibscope matrix`: the pairs of the view in this window.
function matrixCsv(own, by, selection, sums) {
  const cells = Array.from({ length: own.count }, (_, cell) => cell).filter((cell) => sums.sums[PACKETS][cell] > 0);
  cells.sort((a, b) => own.rows[a] - own.rows[b] || own.columns[a] - own.columns[b]);
  const estimated = report.sampled === null ? [] : ESTIMATED;
  const row = (cell) => {
    const found = values(by, selection, sums, cell);
    const estimates = estimated.length === 0 ? {} : own.estimates(own.rows[cell], own.columns[cell], selection);
    return [
      own.csvName(own.rows[cell]), own.csvName(own.columns[cell]), found.messages, found["mpi-bytes"], found["payload-bytes"], found["wire-bytes"], found.packets,
      own.labels[own.rows[cell]].job, report.coverage[sums.coverage[cell]].name, report.class_names.filter((_, bit) => (sums.classes[cell] >> bit) & 1).join(";"),
      ...estimated.flatMap(([, unit]) => (Array.isArray(estimates[unit]) ? estimates[unit] : [unit in estimates ? estimates[unit] : "too few", "", ""])),
    ];
  };
  const names = ["src", "dst", "messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets", "job", "coverage", "class", ...estimated.flatMap(([column]) => [`${column}_estimate`, `${column}_low`, `${column}_high`])];
  return [names, ...cells.map(row)].map((fields) => `${fields.map(field).join(",")}\n`).join("");
}

/// Whether the page has the estimates of all pairs, which the csv of a sampled capture has.
const hasEstimates = (by, window) => report.sampled === null || (window === null && report.estimates[by].left_out === 0);

/// Shows the command that prints the same numbers.
function drawCommand() {
  $("command").replaceChildren(element("span", state.window ? `${seconds(binStart(state.window[0]))} s to ${seconds(binStart(state.window[1]))} s of the capture. ` : "The whole capture. "), element("code", matrixCommand()));
}
drawn.push(() => update());

exportable(document.querySelector(".card.matrix"), "matrix", () => `${sentence(unitName())} between ${NOUNS[state.by][1]}`, {
  command: matrixCommand,
  csv: () => matrixCsv(shown.view, state.by, state.selection, shown.sums),
  hasCsv: () => hasEstimates(state.by, state.window),
  drawing: () => [[canvasPart((canvas) => heat.paint(canvas))], [canvasPart((canvas) => drawLegend(canvas, Math.min(360, heat.box.side), scaleOf(shown.values), UNITS[state.unit].isBytes))]],
  note: () => [$("command").firstChild.textContent, ...[...$("matrix-coverage").children].map((line) => line.textContent)].join(" "),
});
