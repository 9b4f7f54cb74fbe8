// Retransmissions, congestion and NAKs over time, on the time axis of the traffic above.

/// The color of retransmissions is that of the chart above.
const EVENT_COLORS = [5, 0, 1, 2, 3, 4, 6].map((at) => APART[at % APART.length]);

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
  const [first, last] = hasChart ? [chartEdge(0) / 1e9, chartEdge(1) / 1e9] : [start(0), start(bins)];
  $("events-title").textContent = kinds.length === 1 && kinds[0][1] === 0 ? "Retransmitted packets over time" : "Retransmitted packets, congestion and NAKs over time";
  chart("events", 190, `Packets in bins of ${time(binNs)}: ${described}`, {
    left: PLOT.left,
    bottom: PLOT.bottom,
    x: { type: "value", min: first, max: last, axisLabel: { formatter: (value) => `${+value.toFixed(6)} s`, hideOverlap: true, showMinLabel: false, showMaxLabel: false }, splitLine: false },
    y: { type: "value", min: 0, minInterval: 1, splitNumber: 3, axisLabel: { formatter: (value) => group(value) } },
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
  const unknown = events.has_congestion ? "" : " ECN marks, congestion notifications and NAKs over time are unknown: an earlier version of ibscope wrote the profile.";
  $("events-note").textContent = `Packets in each bin of ${time(binNs)}, at most ${group(most)}: ${described}. The section Health has the connections.${unknown}`;
}
drawn.push(drawEvents);

exportChart($("events-card"), "events", "health-over-time", () => $("events-title").textContent, { ...ofPage("health_times"), note: () => $("events-note").textContent });
