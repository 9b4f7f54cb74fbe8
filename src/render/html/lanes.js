// Collective operations one by one: a lane for each rank, a bar for the packets of the rank in each
// operation. The lanes show the time window that the user selects on the timeline.

/// Bars of a rank that overlap in time are drawn below each other, up to this number.
const MAX_LEVELS = 6;
const BAR_HEIGHT = 13, LANE_GAP = 5, LANES_TOP = 6, LANES_AXIS = 24;
/// Names of operations that have a color of their own; others are gray.
const LANE_COLORS = [0, 1, 2, 3, 4, 5, 6].filter((at) => at < APART.length).map((at) => APART[at]);

/// The time window of the page, in nanoseconds from the first packet.
function windowNs() {
  return state.window === null || !hasTimeline ? [-Infinity, Infinity] : state.window.map(binStart);
}

/// The operations of the window, and the colors of their names by number of operations.
function laneOperations() {
  const [from, to] = windowNs();
  const chosen = report.lanes.operations.filter(({ start_ns: start, duration_ns: duration }) => start < to && start + duration >= from);
  const counts = new Map();
  report.lanes.operations.forEach(({ name }) => counts.set(name, (counts.get(name) ?? 0) + 1));
  const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || (a < b ? -1 : 1));
  return { chosen, colors: new Map(names.slice(0, LANE_COLORS.length).map((name, at) => [name, LANE_COLORS[at]])) };
}

/// The bars of each lane: `[start, end, operation, level]`, and the number of levels; bars above
/// the last level are counted only.
function laneBars(operations) {
  const lanes = report.lanes.ranks.map(() => ({ bars: [], ends: [] }));
  let hidden = 0;
  for (const operation of operations) {
    for (const [lane, start, end] of operation.bars) {
      const { bars, ends } = lanes[lane];
      let level = ends.findIndex((last) => last < start);
      if (level < 0) level = ends.length;
      if (level >= MAX_LEVELS) {
        hidden += 1;
        continue;
      }
      ends[level] = end;
      bars.push([start, end, operation, level]);
    }
  }
  return { lanes, hidden };
}

function laneTip(operation, rank, start, end) {
  const box = element("div");
  box.append(element("strong", `${operation.name}, rank ${rank}`));
  const rows = [
    ["communicator", `${operation.communicator}, operation ${group(operation.number)}`],
    ["algorithm", operation.algorithm.split("|").join(" or ")],
    ["confidence", operation.confidence],
    ["bytes", operation.bytes === null ? "not known" : bytes(operation.bytes)],
    ["packets of the rank", `${seconds(start)} s, for ${time(end - start)}`],
    ["all ranks", `${seconds(operation.start_ns)} s, for ${time(operation.duration_ns)}`],
    ["entered last", operation.last_rank === null ? "not known" : `rank ${operation.last_rank}${operation.skew_ns === null ? "" : `, ${time(operation.skew_ns)} after the one before it`}`],
  ];
  const table = element("table");
  rows.forEach(([name, text]) => {
    const tr = element("tr");
    tr.append(element("th", name, { scope: "row" }), element("td", text));
    table.append(tr);
  });
  box.append(table);
  return box;
}

function drawLanes() {
  const { because, operations } = report.lanes;
  const isEmpty = because === null && operations.length === 0;
  $("lanes-card").hidden = isEmpty || (because !== null && report.collectives.length === 0);
  $("lanes").hidden = because !== null;
  $("lanes-legend").hidden = because !== null;
  $("lanes-details").hidden = because !== null;
  if (because !== null) $("lanes-note").textContent = because;
  if (because !== null || isEmpty) return;
  const { chosen, colors } = laneOperations();
  const { lanes, hidden } = laneBars(chosen);
  const box = $("lanes");
  const width = Math.max(box.clientWidth, 200);
  const left = Math.min(PLOT.left, 14 + 8 * Math.max(...report.lanes.ranks.map((name) => name.length + 5)));
  const right = width - PLOT.right;
  const all = chosen.flatMap(({ start_ns: start, duration_ns: duration }) => [start, start + duration]);
  const [from, to] = chosen.length === 0 ? [0, 1] : [Math.min(...all), Math.max(...all, Math.min(...all) + 1)];
  const x = (ns) => left + ((ns - from) / (to - from)) * (right - left);
  const heights = lanes.map(({ ends }) => Math.max(ends.length, 1) * BAR_HEIGHT + LANE_GAP);
  const tops = heights.map((_, at) => LANES_TOP + heights.slice(0, at).reduce((sum, height) => sum + height, 0));
  const bottom = LANES_TOP + heights.reduce((sum, height) => sum + height, 0);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + LANES_AXIS}`, width, height: bottom + LANES_AXIS, role: "img", class: "lanes" });
  picture.append(svg("title", {}, `${chosen.length} collective operations of ${lanes.length} ranks from ${seconds(from)} s to ${seconds(to)} s; the table below lists them`));
  const ticks = Math.max(2, Math.floor((right - left) / 140));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const at = from + ((to - from) * tick) / ticks;
    const anchor = tick === 0 ? "start" : tick === ticks ? "end" : "middle";
    picture.append(svg("line", { x1: x(at), x2: x(at), y1: LANES_TOP, y2: bottom, class: "tick" }));
    picture.append(svg("text", { x: x(at), y: bottom + 16, "text-anchor": anchor, class: "muted" }, `${(at / 1e9).toFixed(to - from < 1e7 ? 6 : to - from < 1e10 ? 3 : 1)} s`));
  }
  lanes.forEach(({ bars }, lane) => {
    const name = report.lanes.ranks[lane];
    picture.append(svg("line", { x1: left, x2: right, y1: tops[lane] + heights[lane] - LANE_GAP / 2, y2: tops[lane] + heights[lane] - LANE_GAP / 2, class: "lane" }));
    picture.append(svg("text", { x: left - 6, y: tops[lane] + BAR_HEIGHT - 3, "text-anchor": "end", class: "muted" }, left >= 60 ? `rank ${name}` : name));
    bars.forEach(([start, end, operation, level]) => {
      const fill = colors.get(operation.name) ?? color("bar");
      const bar = svg("rect", {
        x: x(start), y: tops[lane] + level * BAR_HEIGHT + 1, width: Math.max(x(end) - x(start), 1), height: BAR_HEIGHT - 2, rx: 1.5,
        fill: operation.is_certain ? fill : "none", stroke: fill, class: operation.is_certain ? "bar" : "bar uncertain", "data-operation": operation.name,
      });
      bar.addEventListener("pointermove", (event) => tip(laneTip(operation, name, start, end), event.clientX, event.clientY));
      bar.addEventListener("pointerleave", () => tip(null));
      picture.append(bar);
    });
  });
  box.replaceChildren(picture);
  const shownNames = [...new Set(chosen.map(({ name }) => name))];
  const swatch = (text, fill) => {
    const own = element("span", text, { class: "swatch" });
    own.style.setProperty("--swatch", fill);
    return own;
  };
  const others = shownNames.filter((name) => !colors.has(name));
  $("lanes-legend").replaceChildren(
    ...shownNames.filter((name) => colors.has(name)).map((name) => swatch(name, colors.get(name))),
    ...(others.length > 0 ? [swatch(others.join(", "), color("bar"))] : []),
    ...(chosen.some(({ is_certain: isCertain }) => !isCertain) ? [element("span", "outline: confidence low or unknown", { class: "swatch outline" })] : []),
  );
  laneNote(chosen, hidden);
  const last = (row) => (row.last_rank === null ? "–" : `${row.last_rank}${row.skew_ns === null ? "" : ` +${time(row.skew_ns)}`}`);
  fillList($("lanes-table"), "Collective operations of the window", ["communicator", "number", "operation", "algorithm", "confidence", "bytes", "start [s]", "duration", "entered last"], chosen.map((row) => [
    row.communicator, number(row.number), row.name, row.algorithm, row.confidence, number(row.bytes, bytes), number(row.start_ns, seconds), number(row.duration_ns, time), last(row),
  ]));
}

/// The text below the lanes: what the bars are, and what is left out.
function laneNote(chosen, hidden) {
  const { left_out: left, ranks_left_out: ranks, operations, notes } = report.lanes;
  const parts = [
    "A bar reaches from the first to the last packet that the rank sent or received in the operation; the rank may have entered earlier. Bars are at least one pixel wide; ranks without packets on the wire have none.",
    state.window === null ? `${group(chosen.length)} operations.` : `${group(chosen.length)} of ${group(operations.length)} operations: those of the window on the timeline.`,
  ];
  if (left > 0) parts.push(`The ${group(left)} operations after these are left out; to see others, make the report with --from and --to.`);
  if (ranks > 0) parts.push(`${group(ranks)} ranks with higher numbers are left out.`);
  if (hidden > 0) parts.push(`${group(hidden)} bars are left out where more than ${MAX_LEVELS} operations of a rank overlap.`);
  notes.forEach((note) => parts.push(`${note[0].toUpperCase()}${note.slice(1)}.`));
  $("lanes-note").textContent = parts.join(" ");
}

drawn.push(drawLanes);

if (report.exports.instances !== undefined) {
  exportable($("lanes-card"), "operations", () => "Collective operations", {
    ...ofPage("instances"),
    drawing: () => [
      [elementPart($("lanes").firstChild)],
      [swatchPart([...$("lanes-legend").children].map((item) => [item.style.getPropertyValue("--swatch") || color("muted"), item.textContent]))],
    ],
    note: () => $("lanes-note").textContent,
  });
}
