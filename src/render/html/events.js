// Retransmissions, congestion and NAKs over time, on the time axis of the traffic above.

/// The color of retransmissions is that of the chart above.
const EVENT_COLORS = [5, 0, 1, 2, 3, 4, 6].map((at) => APART[at % APART.length]);

/// The times of the chart above in seconds, or these if there is none.
function shownTimes(first, last) {
  return hasChart ? [chartEdge(0) / 1e9, chartEdge(1) / 1e9] : [first, last];
}

/// The axes of counts over time.
function countAxes(first, last) {
  return {
    x: { type: "value", min: first, max: last, axisLabel: { formatter: (value) => `${+value.toFixed(6)} s`, hideOverlap: true, showMinLabel: false, showMaxLabel: false }, splitLine: false },
    y: { type: "value", min: 0, minInterval: 1, splitNumber: 3, axisLabel: { formatter: (value) => group(value) } },
  };
}

function drawEvents() {
  const { events } = report;
  $("events-card").hidden = events === null;
  if (events === null) return;
  const { bin_ns: binNs, first_ns: firstNs, bins, names, rows } = events;
  const kinds = names.flatMap((name, kind) => (rows.some((row) => row[kind + 1] > 0) ? [[name, kind]] : []));
  const start = (bin) => (firstNs + bin * binNs) / 1e9;
  // Steps at the bins with packets, and back to 0 after them.
  const points = (kind) => {
    const own = rows.filter((row) => row[kind + 1] > 0).map((row) => [row[0], row[kind + 1]]);
    const drawn = own.flatMap(([bin, count], at) => [[start(bin), count], ...(own[at + 1]?.[0] === bin + 1 ? [] : [[start(bin + 1), 0]])]);
    return [[start(0), 0], ...drawn, [start(bins), 0]];
  };
  const total = (kind) => rows.reduce((sum, row) => sum + row[kind + 1], 0);
  const most = rows.reduce((best, row) => Math.max(best, ...row.slice(1)), 0);
  const described = kinds.map(([name, kind]) => `${group(total(kind))} ${name}`).join(", ");
  const [first, last] = shownTimes(start(0), start(bins));
  $("events-title").textContent = kinds.length === 1 && kinds[0][1] === 0 ? "Retransmitted packets over time" : "Retransmitted packets, congestion and NAKs over time";
  chart("events", 190, `Packets in bins of ${time(binNs)}: ${described}`, {
    left: PLOT.left,
    bottom: PLOT.bottom,
    ...countAxes(first, last),
    legend: kinds.map(([name]) => name),
    pointer: "line",
    tip: ([{ axisValue }]) => {
      const bin = Math.min(Math.max(Math.floor((axisValue * 1e9 - firstNs) / binNs + 1e-6), 0), bins - 1);
      const counts = rows.find((row) => row[0] === bin);
      return [`${seconds(firstNs + bin * binNs)} s to ${seconds(firstNs + (bin + 1) * binNs)} s`, ...kinds.map(([name, kind]) => `${name} ${group(counts?.[kind + 1] ?? 0)}`)].join("<br>");
    },
    series: kinds.map(([name, kind]) => ({
      name, type: "line", step: "end", symbol: "none", color: EVENT_COLORS[kind], lineStyle: { width: 1.5, color: EVENT_COLORS[kind] }, areaStyle: { color: EVENT_COLORS[kind], opacity: 0.25 }, data: points(kind),
    })),
  });
  const unknown = events.has_congestion ? "" : " packets with ECN-CE, FECN or BECN, congestion notifications and NAKs over time are unknown: an earlier version of ibscope wrote the profile.";
  $("events-note").textContent = `Packets in each bin of ${time(binNs)}, at most ${group(most)}: ${described}. The section Health has the connections.${unknown}`;
}
drawn.push(drawEvents);

/// Draws pause frames: they belong to no sender of the traffic, and their bins are their own.
function drawPauses() {
  const { pauses } = report;
  $("pauses-card").hidden = pauses === null;
  if (pauses === null) return;
  const { bin_ns: binNs, rows } = pauses;
  const sum = (column) => rows.reduce((sum, row) => sum + row[column], 0);
  const [frames, requests, resumes, quanta] = [1, 2, 3, 4].map(sum);
  const described = `${group(frames)} frames: ${group(requests)} requests for a pause of together at most ${group(quanta)} quanta, ${group(resumes)} to resume`;
  const start = rows.map(([time]) => time / 1e9);
  const [from, to] = [start[0] ?? 0, (start.at(-1) ?? 0) + binNs / 1e9];
  const [first, last] = shownTimes(from, to);
  const points = rows.flatMap(([, count], at) => [[start[at], count], ...(rows[at + 1]?.[0] === rows[at][0] + binNs ? [] : [[start[at] + binNs / 1e9, 0]])]);
  chart("pauses", 150, `Frames in bins of ${time(binNs)}: ${described}`, {
    left: PLOT.left,
    bottom: PLOT.bottom,
    ...countAxes(Math.min(first, from), Math.max(last, to)),
    pointer: "line",
    tip: ([{ axisValue }]) => {
      const row = rows.findLast(([time]) => time <= axisValue * 1e9 + 1);
      if (row === undefined || row[0] + binNs <= axisValue * 1e9) return "no frame";
      return [`${seconds(row[0])} s to ${seconds(row[0] + binNs)} s`, `${group(row[1])} frames`, `${group(row[2])} requests for a pause`, `${group(row[3])} requests to resume`, `${group(row[4])} quanta at most`].join("<br>");
    },
    series: [{ name: "frames", type: "line", step: "end", symbol: "none", color: EVENT_COLORS[1], lineStyle: { width: 1.5, color: EVENT_COLORS[1] }, areaStyle: { color: EVENT_COLORS[1], opacity: 0.25 }, data: points }],
  });
  $("pauses-note").textContent = [`Frames in each bin of ${time(binNs)}, of all senders: ${described}. One quantum is the time that 512 bits take on the link. Most mirrors do not pass such frames.`, pauses.without_bin ?? ""].join(" ");
}
drawn.push(drawPauses);
exportChart($("pauses-card"), "pauses", "pause-frames", () => "Pause and PFC frames over time", { ...ofPage("pause_times"), note: () => $("pauses-note").textContent });

exportChart($("events-card"), "events", "health-over-time", () => $("events-title").textContent, { ...ofPage("health_times"), note: () => $("events-note").textContent });
