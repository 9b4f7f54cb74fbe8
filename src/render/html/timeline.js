// Traffic over time, and the time window that the user selects on it.

const PLOT = { left: 74, right: 18, top: 14, bottom: 26 };
const HEIGHT = 190, MAX_BARS = 600;

/// Colors of the classes; that of retransmissions is not among them.
const CLASS_COLORS = APART.filter((_, at) => at !== 5);

/// A window needs at least two bins of the cells.
const hasTimeline = traffic.bins > 1;
/// Totals by class in narrower bins than those of the cells, as columns; `null` if there are none.
const fine = report.series && {
  ...report.series,
  sums: Array.from({ length: SUMS }, (_, at) => report.series.rows.map((row) => row[2 + at])),
};
/// The bins of the chart before they are drawn several at a time.
const charted = fine ?? { bins: traffic.bins, bin_ns: report.bin_ns, first_ns: report.first_bin_ns };
const hasChart = charted.bins > 1;

/// The bars of the chart: `width` bins each, `length` of them.
function bars() {
  const width = Math.max(1, Math.ceil(charted.bins / MAX_BARS));
  return { width, length: Math.ceil(charted.bins / width), perBin: 1e9 / (charted.bin_ns * width), start: (bin) => charted.first_ns + bin * charted.bin_ns };
}

/// The same for the bins of the cells.
function cellBars() {
  const width = Math.max(1, Math.ceil(traffic.bins / MAX_BARS));
  return { width, length: Math.ceil(traffic.bins / width), perBin: 1e9 / (report.bin_ns * width), start: binStart };
}
let timelineChart = null;

/// Sums of one number of all cells per bin of the chart; a bin of the chart is `width` bins of the
/// page.
function timeSeries(valueOf, width, length, isOwn = () => true) {
  const sums = new Float64Array(length);
  for (let i = 0; i < traffic.cells; i += 1) {
    if (isOwn(traffic.pair[i])) sums[Math.floor(traffic.bin[i] / width)] += valueOf(i);
  }
  return sums;
}

/// Sums of one number of all narrow bins per bar.
function fineSeries(valueOf, width, length) {
  const sums = new Float64Array(length);
  fine.rows.forEach(([bin], i) => (sums[Math.floor(bin / width)] += valueOf(i)));
  return sums;
}

/// The value of a cell, or of a row of other sums, in the selected unit.
function valueOfCell({ sums } = traffic) {
  const fixed = { "payload-bytes": PAYLOAD, "wire-bytes": WIRE, packets: PACKETS }[state.unit];
  if (fixed !== undefined) return (i) => sums[fixed][i];
  if (state.unit === "messages" && isOfTransport(state.by, state.selection)) return (i) => sums[MESSAGES][i];
  const index = state.unit === "messages" ? 0 : 1;
  return (i) => mpiOf(state.selection, i, sums)[index];
}

/// Sums of each class per bin of the chart, `[name, sums]`; those with least wire bytes together if
/// there are more classes than colors. Empty if all traffic is of one class, or if the unit counts
/// MPI messages.
function classSums(width, length) {
  const { names, rows } = fine === null ? report.classes : { names: fine.classes.length > 1 ? fine.classes : [], rows: fine.rows.map((row) => [row[0], row[1], row[3], row[4], row[2], row[5]]) };
  const ofPackets = { "wire-bytes": 2, "payload-bytes": 3, packets: 4 }[state.unit];
  const ofMessages = state.unit === "messages" && isOfTransport(state.by, state.selection) ? 5 : undefined;
  const at = ofPackets ?? ofMessages;
  if (at === undefined || names.length === 0) return [];
  const shown = names.length > CLASS_COLORS.length ? CLASS_COLORS.length - 1 : names.length;
  const classes = names.slice(0, shown).map((name) => [name, new Float64Array(length)]);
  if (shown < names.length) classes.push([`${names.length - shown} other classes`, new Float64Array(length)]);
  for (const row of rows) classes[Math.min(row[1], classes.length - 1)][1][Math.floor(row[0] / width)] += row[at];
  return classes;
}

function drawTimeline() {
  $("brush").parentElement.hidden = !hasChart;
  $("brush").hidden = !hasTimeline;
  $("whole").parentElement.hidden = !hasTimeline;
  const why = traffic.bins === 1 ? `the traffic of pairs is in one bin of ${time(report.bin_ns)}` : "the profile has no timeline";
  // Narrower bins of a capture with too many pairs would only be widened again.
  const advice = report.bin_ns > report.profile_bin_ns || fine !== null ? "analyze a part of the captures with --from and --to" : "analyze the captures again with a smaller --bin";
  const noWindow = `A time window cannot be chosen: ${why}. For a window, ${advice}.`;
  if (!hasChart) {
    $("timeline-title").textContent = "No timeline";
    $("timeline-note").textContent = noWindow;
    return;
  }
  const box = $("timeline");
  const { isBytes } = UNITS[state.unit];
  const ownBars = bars();
  const { width, length, perBin, start } = ownBars;
  const series = (name, sums, style, of = ownBars) => ({
    name, type: "line", step: "end", symbol: "none", animation: false, ...style,
    data: [...Array.from(sums, (sum, at) => [of.start(at * of.width) / 1e9, sum * of.perBin]), [of.start(of.length * of.width) / 1e9, (sums[of.length - 1] ?? 0) * of.perBin]],
  });
  const total = fine === null ? timeSeries(valueOfCell(), width, length) : fineSeries(valueOfCell(fine), width, length);
  const name = report.sampled === null ? unitName() : `${unitName()} in the sample`;
  const classes = classSums(width, length);
  // Each area reaches from 0 to the sum of its class and of those before it, and covers the one before
  // it. ECharts leaves out corners within a pixel, so the lower edge of an area that it stacks itself
  // would differ from the upper edge below it, and show a class without traffic.
  const sumUpTo = (last) => total.map((_, bin) => classes.slice(0, last + 1).reduce((sum, [, own]) => sum + own[bin], 0));
  const stacked = classes.map(([of, own], at) => {
    const drawn = series(of, sumUpTo(at), { lineStyle: { width: 0 }, itemStyle: { color: CLASS_COLORS[at] }, areaStyle: { color: CLASS_COLORS[at], opacity: 1 } });
    return { ...drawn, data: drawn.data.map(([from, rate], bin) => [from, rate, (own[Math.min(bin, length - 1)] ?? 0) * perBin]) };
  });
  const whole = series(name, total, { lineStyle: { width: 1, color: color("accent") }, itemStyle: { color: color("accent") }, areaStyle: { color: color("accent"), opacity: 0.28 } });
  const all = classes.length > 0 ? stacked.toReversed() : [whole];
  const again = { "wire-bytes": 2, packets: 1 }[state.unit];
  const retransmitted = fine === null ? report.retransmitted : fine.rows.filter((row) => row[10] > 0).map((row) => [row[0], row[10], row[11]]);
  if (again && retransmitted.length > 0) {
    const sums = new Float64Array(length);
    retransmitted.forEach((row) => (sums[Math.floor(row[0] / width)] += row[again]));
    all.push(series("retransmitted", sums, { lineStyle: { width: 1.5, color: APART[5] }, itemStyle: { color: APART[5] }, areaStyle: { color: APART[5], opacity: 0.35 } }));
  }
  const edges = partialEdges(ownBars);
  all[0].markArea = { silent: true, animation: false, itemStyle: { color: color("even"), opacity: 0.8 }, data: edges.map((ends) => ends.map((ns) => ({ xAxis: ns / 1e9 }))) };
  const own = view();
  if (state.pinned !== null && state.pinned < own.count) {
    const label = (at) => own.labels[at].text;
    const pair = `${label(own.rows[state.pinned])} → ${label(own.columns[state.pinned])}`;
    const of = cellBars();
    const sums = timeSeries(valueOfCell(), of.width, of.length, (found) => own.cellOf[found] === state.pinned);
    all.push(series(pair, sums, { lineStyle: { width: 2, color: APART[1] }, itemStyle: { color: APART[1] } }, of));
  }
  timelineChart ??= echarts.init(box, null, { renderer: "canvas" });
  timelineChart.resize({ width: box.clientWidth, height: HEIGHT });
  const rates = rateAxis(highestRate([whole, ...all]), isBytes);
  const text = { color: color("muted"), fontFamily: fontFamily() };
  const option = {
    animation: false,
    textStyle: text,
    grid: { left: PLOT.left, right: PLOT.right, top: all.length > 1 ? 30 : PLOT.top, bottom: PLOT.bottom },
    legend: { data: [...stacked, ...all.filter((one) => !stacked.includes(one))].map((one) => one.name), show: all.length > 1, top: 0, left: PLOT.left - 5, textStyle: text, icon: "roundRect", itemWidth: 14, itemHeight: 8, selectedMode: false },
    xAxis: {
      type: "value", min: chartEdge(0) / 1e9, max: chartEdge(1) / 1e9,
      axisLabel: { formatter: (value) => `${+value.toFixed(6)} s`, hideOverlap: true, ...text, showMinLabel: false, showMaxLabel: false },
      axisLine: { lineStyle: { color: color("line") } }, axisTick: { lineStyle: { color: color("line") } }, splitLine: { show: false },
    },
    yAxis: {
      ...rates,
      axisLabel: { ...rates.axisLabel, ...text },
      splitLine: { lineStyle: { color: color("grid") } },
    },
    series: all,
  };
  timelineChart.setOption(option, true);
  chartDrawings.timeline = { width: box.clientWidth, height: HEIGHT, option };
  const byClass = classes.length > 0 ? " by class" : "";
  $("timeline-title").textContent = `${name[0].toUpperCase()}${name.slice(1)} over time${byClass}`;
  const most = total.reduce((best, sum, at) => (sum > total[best] ? at : best), 0);
  box.setAttribute("aria-label", `${name} over time, in bins of ${time(charted.bin_ns * width)}${classes.length > 0 ? `, stacked by class: ${classes.map(([of]) => of).join(", ")}` : ""}; the maximum, ${perSecond(total[most] * perBin, isBytes)}, at ${seconds(start(most * width))} s. The fields from and to choose a window.`);
  const coarser = report.bin_ns > report.profile_bin_ns ? ` The bins of this page are ${time(report.bin_ns)} wide, the bins of the profile ${time(report.profile_bin_ns)}: for finer windows, use the command below.` : "";
  const drawnAs = width > 1 ? `, drawn ${width} at a time` : "";
  const unstacked = (fine?.classes.length ?? report.classes.names.length) > 1 && classes.length === 0 ? " Choose wire bytes, payload bytes or packets to see the traffic of each class." : "";
  const partial = edges.length > 0 ? " Gray: the captures begin or end within the bin, so they show a part of it only." : "";
  if (!hasTimeline) {
    $("timeline-note").textContent = `Bins of ${time(charted.bin_ns)}${drawnAs}.${partial} ${noWindow}${unstacked}`;
    return;
  }
  $("timeline-note").textContent = `Drag over the timeline to choose a window: the matrix then shows only that time. Windows are whole bins of ${time(report.bin_ns)}${drawnAs}.${partial}${coarser}${unstacked}`;
  showWindow();
}

/// Start and end of each bar in which the captures begin or end, in nanoseconds from the first
/// packet.
function partialEdges({ width, length, start }, span = report.span_ns) {
  const last = [start((length - 1) * width), start(length * width)];
  return [...(start(0) < 0 ? [[start(0), start(width)]] : []), ...(last[1] > span ? [last] : [])];
}

/// The ends of the time axis in nanoseconds from the first packet: whole bins of the cells, if a
/// window can be chosen.
function chartEdge(end) {
  const of = hasTimeline ? cellBars() : bars();
  return of.start(end * of.length * of.width);
}

/// Start of a bin in the plot, in pixels of the brush.
function xOf(bin) {
  const width = $("brush").clientWidth - PLOT.left - PLOT.right;
  const group = Math.max(1, Math.ceil(traffic.bins / MAX_BARS));
  return PLOT.left + (bin / (Math.ceil(traffic.bins / group) * group)) * width;
}

/// The bin at a pixel of the brush, with a fraction.
function binAt(x) {
  const width = $("brush").clientWidth - PLOT.left - PLOT.right;
  const group = Math.max(1, Math.ceil(traffic.bins / MAX_BARS));
  const share = Math.min(Math.max((x - PLOT.left) / width, 0), 1);
  return Math.min(share * Math.ceil(traffic.bins / group) * group, traffic.bins);
}

function showWindow() {
  const [from, to] = state.window ?? [0, traffic.bins];
  const chosen = state.window !== null;
  $("span").hidden = !chosen;
  $("span").style.left = `${xOf(from)}px`;
  $("span").style.width = `${Math.max(xOf(to) - xOf(from), 2)}px`;
  for (const [id, bin] of [["left", from], ["right", to]]) {
    const handle = $(id);
    handle.hidden = false;
    handle.style.left = `${xOf(bin)}px`;
    handle.setAttribute("aria-valuemin", "0");
    handle.setAttribute("aria-valuemax", String(traffic.bins));
    handle.setAttribute("aria-valuenow", String(bin));
    handle.setAttribute("aria-valuetext", `${seconds(binStart(bin))} s`);
  }
  $("from").value = seconds(binStart(from));
  $("to").value = seconds(binStart(to));
  $("whole").disabled = !chosen;
}

/// Selects whole bins, at least one; selecting all bins removes the window.
function choose(from, to) {
  let [first, last] = [Math.max(0, Math.floor(Math.min(from, to))), Math.min(traffic.bins, Math.ceil(Math.max(from, to)))];
  if (last <= first) [first, last] = [Math.min(first, traffic.bins - 1), Math.min(first, traffic.bins - 1) + 1];
  state.window = first === 0 && last === traffic.bins ? null : [first, last];
  showWindow();
  soon();
}

let waiting = false;
/// Draws the matrix with the next frame; several calls before that frame draw it once.
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    update();
    drawLanes();
  });
}

function listenToBrush() {
  const brush = $("brush");
  let drag = null;
  const place = (event) => event.clientX - brush.getBoundingClientRect().left;
  brush.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [from, to] = state.window ?? [0, traffic.bins];
    // A handle moves its own end of the window only.
    const other = { left: to, right: from }[event.target.id];
    drag = { from: other ?? binAt(place(event)), at: place(event), moved: other !== undefined };
    brush.setPointerCapture(event.pointerId);
  });
  brush.addEventListener("pointermove", (event) => {
    if (!drag) return hoverTimeline(event, place(event));
    tip(null);
    drag.moved ||= Math.abs(place(event) - drag.at) > 3;
    if (drag.moved) choose(drag.from, binAt(place(event)));
  });
  const end = () => {
    if (drag && !drag.moved && state.window) {
      state.window = null;
      showWindow();
      soon();
    }
    drag = null;
  };
  brush.addEventListener("pointerup", end);
  brush.addEventListener("pointercancel", end);
  brush.addEventListener("pointerleave", () => tip(null));
  for (const id of ["left", "right"]) {
    $(id).addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const [from, to] = state.window ?? [0, traffic.bins];
      const move = (bin, low, high) => Math.min(Math.max(bin + step, low), high);
      if (id === "left") choose(move(from, 0, to - 1), to);
      else choose(from, move(to, from + 1, traffic.bins));
    });
  }
  const typed = () => {
    const [from, to] = ["from", "to"].map((id) => ($(id).valueAsNumber * 1e9 - report.first_bin_ns) / report.bin_ns);
    // The text of a bound is rounded to whole nanoseconds.
    if (Number.isFinite(from) && Number.isFinite(to) && from < to) choose(from + 1e-6, to - 1e-6);
    else showWindow();
  };
  $("from").addEventListener("change", typed);
  $("to").addEventListener("change", typed);
  $("whole").addEventListener("click", () => choose(0, traffic.bins));
}

/// The tooltip of a bar of the timeline.
function hoverTimeline(event, x) {
  const { width, length, perBin, start } = bars();
  const at = (binStart(binAt(x)) - charted.first_ns) / charted.bin_ns;
  const bar = Math.min(Math.max(Math.floor(at / width), 0), length - 1);
  const [from, to] = [bar * width, (bar + 1) * width];
  let sum = 0;
  if (fine === null) {
    const value = valueOfCell();
    for (let i = firstCell(from); i < firstCell(to); i += 1) sum += value(i);
  } else {
    const value = valueOfCell(fine);
    fine.rows.forEach(([bin], i) => (sum += bin >= from && bin < to ? value(i) : 0));
  }
  const box = element("div");
  box.append(element("strong", `${seconds(start(from))} s to ${seconds(start(to))} s`));
  box.append(element("p", `${exact(sum)}`), element("p", perSecond(sum * perBin, UNITS[state.unit].isBytes)));
  tip(box, event.clientX, event.clientY);
}
drawn.push(drawTimeline);

exportChart($("timeline-card"), "timeline", "timeline", () => $("timeline-title").textContent, {
  ...ofPage("rates"),
  note: () => `Rates in bins of ${time(charted.bin_ns * bars().width)}.`,
});
