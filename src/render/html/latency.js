// Latencies: histograms, medians by size, and percentiles over time.

const INTERVALS = {
  acknowledged: "request to its ACK", first_response: "READ to the first response", last_response: "READ to the last response",
  message: "first to last packet of a message", interval: "message to the next message", transit: "sender's to receiver's port",
  rendezvous_request: "rendezvous: request", rendezvous_data: "rendezvous: data", rendezvous_completion: "rendezvous: completion",
  mpi_message: "MPI message, port to port", storage_command: "storage command to its completion", set_up: "connection set-up", tear_down: "connection tear-down",
};

const latencyState = { interval: null, verb: null, pair: "" };
/// Selection value for all pairs.
const ALL = "";

function drawLatency() {
  const { rows, pairs } = report.latencies;
  const all = rows.filter((row) => row.from_bytes === null);
  $("latency").hidden = rows.length === 0;
  if (rows.length === 0) return;
  const names = [...new Set(all.map((row) => row.interval))];
  latencyState.interval ??= ["acknowledged", "last_response"].find((name) => names.includes(name)) ?? names[0];
  const verbs = [...new Set(all.filter((row) => row.interval === latencyState.interval).map((row) => row.verb))];
  // Choose the verb with most samples, unless this interval has the chosen verb.
  if (!verbs.includes(latencyState.verb)) {
    const own = all.filter((row) => row.interval === latencyState.interval);
    latencyState.verb = own.reduce((a, b) => (b.samples > a.samples ? b : a)).verb;
  }
  const isOwn = (row) => row.interval === latencyState.interval && row.verb === latencyState.verb;
  const own = pairs.filter(isOwn);
  const nameOf = (row) => `${row.src},${row.dst}`;
  if (!own.some((row) => nameOf(row) === latencyState.pair)) latencyState.pair = ALL;
  const set = (key) => (value) => {
    latencyState[key] = value;
    drawLatency();
  };
  choices($("interval"), names.map((name) => [name, INTERVALS[name] ?? name]), latencyState.interval, set("interval"));
  choices($("verb"), verbs.map((verb) => [verb, verb || "connections"]), latencyState.verb, set("verb"));
  choices($("times-pair"), [[ALL, "all pairs"], ...own.map((row) => [nameOf(row), `${row.names.join(" → ")} (${group(row.samples)})`])], latencyState.pair, set("pair"));
  const whole = all.find(isOwn);
  const bySize = rows.filter((row) => row.from_bytes !== null && isOwn(row));
  drawHistogram(latencyState.pair === ALL ? whole : own.find((row) => nameOf(row) === latencyState.pair));
  $("by-size").parentElement.hidden = bySize.length === 0;
  if (bySize.length > 0) drawBySize(bySize);
  drawTimes();
}

/// Whether an edge has a label: 0, or 1, 2 or 5 times a power of ten.
function isRound(ns) {
  return ns === 0 || /^[125]0*$/.test(String(ns));
}

function drawHistogram(whole) {
  const { edges_ns: edges, counts } = whole.bars;
  const bar = counts.findIndex((_, at) => edges[at + 1] > whole.median_ns);
  const start = Math.max(edges[bar], 1);
  // Bars are 1 wide, with edges at integers. The position of the median within its bar is
  // logarithmic.
  const median = bar + Math.min(Math.max(Math.log(Math.max(whole.median_ns, 1) / start) / Math.log(edges[bar + 1] / start), 0), 1);
  const who = whole.names ? `, ${whole.names.join(" → ")}` : "";
  const few = edges.filter(isRound).length < 2;
  $("histogram-title").textContent = `${sentence(INTERVALS[whole.interval] ?? whole.interval)}${whole.verb ? `, ${whole.verb}` : ""}${who}: ${group(whole.samples)} samples`;
  chart("histogram", 300, `Histogram of ${whole.samples} times: median ${time(whole.median_ns)}, 90 % within ${time(whole.p90_ns)}, 99 % within ${time(whole.p99_ns)}, at most ${time(whole.max_ns)}`, {
    x: {
      type: "value", min: 0, max: counts.length, interval: 1, name: "time, logarithmic", nameGap: 30, splitLine: false,
      axisLabel: { formatter: (at) => (few || isRound(edges[at]) ? time(edges[at]) : ""), hideOverlap: true, interval: 0 },
    },
    y: { type: "value", name: "samples", axisLabel: { formatter: count }, minInterval: 1 },
    tip: ([{ dataIndex: at }]) => {
      const share = (counts[at] * 100) / whole.samples;
      return `${time(edges[at])} to ${time(edges[at + 1])}<br>${group(counts[at])} samples, ${share.toFixed(share < 0.1 ? 3 : 1)} %`;
    },
    series: [{
      type: "bar", barWidth: counts.length > 60 ? "100%" : "92%", barMinHeight: 1, itemStyle: { color: APART[0] }, data: counts.map((number, at) => [at + 0.5, number === 0 ? null : number]),
      markLine: {
        symbol: "none", silent: true, animation: false, lineStyle: { color: APART[5], width: 2, type: "solid" },
        label: { formatter: `median ${time(whole.median_ns)}`, color: color("text"), position: "end", distance: 4 }, data: [{ xAxis: median }],
      },
    }],
  });
}

function drawBySize(rows) {
  const log = (ns) => Math.log10(Math.max(ns, 1));
  const low = Math.floor(Math.min(...rows.map((row) => log(row.p10_ns))));
  const high = Math.ceil(Math.max(...rows.map((row) => log(row.p90_ns))) + 1e-9);
  $("by-size-title").textContent = `By message size${latencyState.pair === ALL ? "" : ", all pairs"}: median, and the range of 80 % of the samples`;
  const label = rows.map((row) => `${sizeClass(row.from_bytes)}: median ${time(row.median_ns)}`).join("; ");
  chart("by-size", 300, `Median by message size. ${label}`, {
    x: { type: "category", data: rows.map((row) => bytes(row.from_bytes)), name: "message size, from", axisLabel: { hideOverlap: true } },
    y: { type: "value", name: "time", min: low, max: Math.max(high, low + 1), interval: 1, axisLabel: { formatter: (power) => time(10 ** power) } },
    legend: ["80 % of the samples", "median"],
    tip: ([{ dataIndex }]) => {
      const row = rows[dataIndex];
      return `${sizeClass(row.from_bytes)}<br>median ${time(row.median_ns)}<br>80 % from ${time(row.p10_ns)} to ${time(row.p90_ns)}<br>99 % within ${time(row.p99_ns)}<br>${group(row.samples)} samples`;
    },
    series: [
      { type: "bar", stack: "interval", silent: true, itemStyle: { color: "transparent" }, data: rows.map((row) => log(row.p10_ns)), barMaxWidth: 46 },
      { name: "80 % of the samples", type: "bar", stack: "interval", barMaxWidth: 46, barMinHeight: 2, itemStyle: { color: APART[0], opacity: 0.45 }, data: rows.map((row) => log(row.p90_ns) - log(row.p10_ns)) },
      { name: "median", type: "scatter", symbol: "rect", symbolSize: [Math.min(46, ($("by-size").clientWidth - 78) / rows.length * 0.8), 4], itemStyle: { color: APART[5] }, data: rows.map((row) => log(row.median_ns)) },
    ],
  });
}

function latencyTable() {
  const header = ["interval", "of", "size", "samples", "min", "10 %", "median", "90 %", "99 %", "max"];
  const rows = report.latencies.rows.map((row) => [
    INTERVALS[row.interval] ?? row.interval, row.verb || "–", number(row.from_bytes ?? -1, () => (row.from_bytes === null ? "all" : sizeClass(row.from_bytes))), number(row.samples),
    ...[row.min_ns, row.p10_ns, row.median_ns, row.p90_ns, row.p99_ns, row.max_ns].map((ns) => number(ns, time)),
  ]);
  fillList($("latency-table"), "Times by interval, verb and size", header, rows);
}

/// Draws the interval's percentiles over time, with the window selected on the timeline.
function drawTimes() {
  const over = report.latencies.over_time;
  const bins = over?.intervals[latencyState.interval] ?? [];
  $("times-card").hidden = bins.length < 2;
  if (bins.length < 2) return;
  const { bin_ns: width, profile_bin_ns: own } = over;
  const log = (ns) => Math.log10(Math.max(ns, 1));
  const lines = [[5, "99 %", color("second"), 4], [4, "90 %", APART[1], 2.4], [3, "median", color("accent"), 2]];
  const most = Math.max(...bins.map((bin) => bin[5]));
  const least = Math.min(...bins.map((bin) => bin[2]));
  // Bins without samples leave gaps.
  const timeSeries = (index) => bins.flatMap((bin, at) => {
    const [from, to] = [bin[0] / 1e9, (bin[0] + width) / 1e9];
    const follows = bins[at + 1]?.[0] === bin[0] + width;
    return [[from, log(bin[index])], ...(follows ? [] : [[to, log(bin[index])], [null, null]])];
  });
  const first = Math.min(bins[0][0], hasTimeline ? binStart(0) : Infinity);
  const last = Math.max(bins.at(-1)[0] + width, hasTimeline ? binStart(traffic.bins) : -Infinity);
  const marked = state.window && { silent: true, itemStyle: { color: color("cross") }, data: [state.window.map((bin) => ({ xAxis: binStart(bin) / 1e9 }))] };
  const [low, high] = [Math.floor(log(least)), Math.ceil(log(most) + 1e-9)];
  $("times-title").textContent = `${sentence(INTERVALS[latencyState.interval] ?? latencyState.interval)}, all verbs and pairs, over time`;
  chart("times", 240, `Percentiles over time, in bins of ${time(width)}: medians from ${time(Math.min(...bins.map((bin) => bin[3])))} to ${time(Math.max(...bins.map((bin) => bin[3])))}`, {
    x: { type: "value", min: first / 1e9, max: last / 1e9, name: "time from the first packet [s]", nameGap: 28, axisLabel: { formatter: (value) => +value.toFixed(6), hideOverlap: true, showMinLabel: false, showMaxLabel: false } },
    y: { type: "value", min: low, max: Math.max(high, low + 1), interval: 1, axisLabel: { formatter: (power) => time(10 ** power) } },
    legend: lines.map(([, name]) => name),
    pointer: "line",
    tip: ([{ axisValue }]) => {
      const bin = bins.findLast(([from]) => from / 1e9 <= axisValue + 1e-9) ?? bins[0];
      const text = [["10 %", 2], ["median", 3], ["90 %", 4], ["99 %", 5]].map(([name, index]) => `${name} ${time(bin[index])}`);
      return [`${seconds(bin[0])} s to ${seconds(bin[0] + width)} s`, `${group(bin[1])} samples`, ...text].join("<br>");
    },
    series: lines.map(([index, name, stroke, thick], at) => ({
      name, type: "line", step: "end", symbol: "none", color: stroke, lineStyle: { width: thick, color: stroke }, data: timeSeries(index), ...(at === 0 && marked ? { markArea: marked } : {}),
    })),
  });
  const coarser = width > own ? ` (${time(own)} in the profile)` : "";
  $("times-note").textContent = `Percentiles of each bin of ${time(width)}${coarser}; a time belongs to the bin in which it begins, as in latency --view timeline. The window selected on the timeline is marked.`;
}
drawn.push(drawLatency);

if (report.exports.latencies !== undefined) {
  const ofInterval = () => latencyState.interval;
  const [buckets, ofPairs] = ["buckets", "pair_buckets"].map((name) => ofPage(name, ofInterval));
  const chosen = () => (latencyState.pair === ALL ? buckets : ofPairs);
  exportChart($("histogram").parentElement, "histogram", "histogram", () => $("histogram-title").textContent, {
    command: () => chosen().command(),
    csv: () => chosen().csv(),
    hasCsv: () => chosen().hasCsv(),
    note: () => $("histogram").getAttribute("aria-label"),
  });
  exportChart($("by-size").parentElement, "by-size", "latency-by-size", () => $("by-size-title").textContent, ofPage("latencies", ofInterval));
  exportChart($("times-card"), "times", "percentiles", () => $("times-title").textContent, { ...ofPage("percentiles", ofInterval), note: () => $("times-note").textContent });
  exportable($("latency-table").closest("details"), "latencies", () => "Latencies", ofPage("latencies"));
}
