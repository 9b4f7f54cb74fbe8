// Latencies and sizes, as bars.

const charts = {};

/// A chart of ECharts in a box, with what all charts share.
function chart(id, height, label, option) {
  const box = $(id);
  charts[id] ??= echarts.init(box, null, { renderer: "canvas" });
  charts[id].resize({ width: box.clientWidth, height });
  box.setAttribute("aria-label", label);
  const text = { color: color("muted"), fontFamily: getComputedStyle(document.body).fontFamily };
  const axis = (own) => ({
    ...own,
    nameTextStyle: text,
    nameLocation: "middle",
    nameGap: own.type === "category" ? 30 : 48,
    axisLabel: { ...text, ...own.axisLabel },
    axisLine: { lineStyle: { color: color("line") } },
    axisTick: { lineStyle: { color: color("line") }, alignWithLabel: false },
    splitLine: { show: own.type !== "category", lineStyle: { color: color("grid") } },
  });
  charts[id].setOption({
    animation: false,
    textStyle: text,
    grid: { left: 70, right: 16, top: option.legend ? 34 : 22, bottom: 46 },
    tooltip: {
      trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: color("cross") } }, confine: true,
      backgroundColor: color("card"), borderColor: color("line"), textStyle: { color: color("text"), fontSize: 13 },
      // What is shown are numbers and names that this program has made.
      formatter: option.tip,
    },
    legend: option.legend ? { top: 0, left: 64, textStyle: text, itemWidth: 14, itemHeight: 9, icon: "roundRect", selectedMode: false, data: option.legend } : { show: false },
    xAxis: axis(option.x),
    yAxis: axis(option.y),
    series: option.series,
  }, true);
}

const INTERVALS = {
  acknowledged: "request to its ACK", first_response: "READ to the first response", last_response: "READ to the last response",
  message: "first to last packet of a message", interval: "message to the next message", transit: "sender's to receiver's port",
  rendezvous_request: "rendezvous: request", rendezvous_data: "rendezvous: data", rendezvous_completion: "rendezvous: completion",
  mpi_message: "MPI message, port to port", set_up: "connection set-up", tear_down: "connection tear-down",
};

const latencyState = { interval: null, verb: null };

/// Counts by bucket, added up over all latencies of the interval and verb.
function histogramOf(rows) {
  const buckets = new Map();
  rows.forEach((row) => row.buckets.forEach(([bucket, from, to, number]) => {
    const found = buckets.get(bucket) ?? { from, to, number: 0 };
    found.number += number;
    buckets.set(bucket, found);
  }));
  return buckets;
}

function drawLatency() {
  const rows = report.latencies;
  const all = rows.filter((row) => row.from_bytes === null);
  $("latency").hidden = rows.length === 0;
  if (rows.length === 0) return;
  const names = [...new Set(all.map((row) => row.interval))];
  latencyState.interval ??= ["acknowledged", "last_response"].find((name) => names.includes(name)) ?? names[0];
  const verbs = [...new Set(all.filter((row) => row.interval === latencyState.interval).map((row) => row.verb))];
  // The verb with most samples, unless one is chosen that this interval has.
  if (!verbs.includes(latencyState.verb)) {
    const own = all.filter((row) => row.interval === latencyState.interval);
    latencyState.verb = own.reduce((a, b) => (b.samples > a.samples ? b : a)).verb;
  }
  choices($("interval"), names.map((name) => [name, INTERVALS[name] ?? name]), latencyState.interval, (value) => {
    latencyState.interval = value;
    drawLatency();
  });
  choices($("verb"), verbs.map((verb) => [verb, verb || "connections"]), latencyState.verb, (value) => {
    latencyState.verb = value;
    drawLatency();
  });
  const isOwn = (row) => row.interval === latencyState.interval && row.verb === latencyState.verb;
  const whole = all.find(isOwn);
  const bySize = rows.filter((row) => row.from_bytes !== null && isOwn(row));
  drawHistogram(whole);
  $("by-size").parentElement.hidden = bySize.length === 0;
  if (bySize.length > 0) drawBySize(bySize);
}

function drawHistogram(whole) {
  const buckets = histogramOf([whole]);
  const numbers = [...buckets.keys()];
  // Bars are as wide as the clock's tick, or wider, so that none stays empty for want of a finer clock.
  const middle = [...buckets.values()].find(({ to }) => to > whole.median_ns) ?? [...buckets.values()].at(-1);
  const tick = Math.max(report.clock_ns, 1);
  const per = [1, 2, 4, 8].find((wide) => (middle.to - middle.from) * wide >= tick) ?? 8;
  const bars = new Map();
  for (const [bucket, { from, to, number }] of buckets) {
    const at = Math.floor(bucket / per);
    const bar = bars.get(at) ?? { from, to, number: 0 };
    bar.to = to;
    bar.number += number;
    bars.set(at, bar);
  }
  const [first, last] = [Math.floor(numbers[0] / per), Math.floor(numbers.at(-1) / per)];
  const at = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  const start = (bar) => bars.get(bar)?.from ?? edge(bar * per);
  const median = at.findIndex((bar) => start(bar + 1) > whole.median_ns);
  $("histogram-title").textContent = `${sentence(INTERVALS[whole.interval] ?? whole.interval)}${whole.verb ? `, ${whole.verb}` : ""}: ${group(whole.samples)} samples`;
  chart("histogram", 300, `Histogram of ${whole.samples} times: median ${time(whole.median_ns)}, 90 % within ${time(whole.p90_ns)}, 99 % within ${time(whole.p99_ns)}, at most ${time(whole.max_ns)}`, {
    x: { type: "category", data: at.map((bar) => time(start(bar))), name: "time, from; bars of equal ratio", boundaryGap: true, axisLabel: { hideOverlap: true, align: "center" } },
    y: { type: "value", name: "samples", axisLabel: { formatter: count }, minInterval: 1 },
    tip: ([{ dataIndex }]) => {
      const bar = bars.get(at[dataIndex]);
      const share = ((bar?.number ?? 0) * 100) / whole.samples;
      return `${time(start(at[dataIndex]))} to ${time(start(at[dataIndex] + 1))}<br>${group(bar?.number ?? 0)} samples, ${share.toFixed(share < 0.1 ? 3 : 1)} %`;
    },
    series: [{
      type: "bar", barCategoryGap: at.length > 60 ? "0%" : "8%", itemStyle: { color: report.colors[0] }, data: at.map((bar) => bars.get(bar)?.number ?? 0),
      markLine: {
        symbol: "none", silent: true, animation: false, lineStyle: { color: report.colors[5], width: 2, type: "solid" },
        label: { formatter: `median ${time(whole.median_ns)}`, color: color("text"), position: "end", distance: 4 }, data: [{ xAxis: median }],
      },
    }],
  });
}

/// The smallest value of a bucket of an eighth of a power of two.
function edge(bucket) {
  if (bucket < 16) return bucket;
  const shift = Math.floor(bucket / 8) - 1;
  return (bucket - shift * 8) * 2 ** shift;
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function drawBySize(rows) {
  const log = (ns) => Math.log10(Math.max(ns, 1));
  const low = Math.floor(Math.min(...rows.map((row) => log(row.p10_ns))));
  const high = Math.ceil(Math.max(...rows.map((row) => log(row.p90_ns))) + 1e-9);
  $("by-size-title").textContent = "By message size: median, and the interval of 80 %";
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
      { name: "80 % of the samples", type: "bar", stack: "interval", barMaxWidth: 46, barMinHeight: 2, itemStyle: { color: report.colors[0], opacity: 0.45 }, data: rows.map((row) => log(row.p90_ns) - log(row.p10_ns)) },
      { name: "median", type: "scatter", symbol: "rect", symbolSize: [Math.min(46, ($("by-size").clientWidth - 78) / rows.length * 0.8), 4], itemStyle: { color: report.colors[5] }, data: rows.map((row) => log(row.median_ns)) },
    ],
  });
}

function latencyTable() {
  const header = ["interval", "of", "size", "samples", "min", "10 %", "median", "90 %", "99 %", "max"];
  const rows = report.latencies.map((row) => [
    INTERVALS[row.interval] ?? row.interval, row.verb || "–", row.from_bytes === null ? "all" : sizeClass(row.from_bytes), group(row.samples),
    ...[row.min_ns, row.p10_ns, row.median_ns, row.p90_ns, row.p99_ns, row.max_ns].map(time),
  ]);
  fill($("latency-table"), "Times by interval, verb and size", header, rows);
}

const DISTRIBUTIONS = { mpi_messages: "MPI messages", messages: "messages of the transport, by payload", packets: "packets on the wire" };
let distribution = null;

function drawSizes() {
  const names = Object.keys(DISTRIBUTIONS).filter((name) => report.sizes.some((row) => row.distribution === name));
  $("sizes").hidden = names.length === 0;
  if (names.length === 0) return;
  distribution ??= names[0];
  choices($("distribution"), names.map((name) => [name, DISTRIBUTIONS[name]]), distribution, (value) => {
    distribution = value;
    drawSizes();
  });
  const rows = report.sizes.filter((row) => row.distribution === distribution);
  const classOf = (from) => (from === 0 ? 0 : Math.round(Math.log2(from)) + 1);
  const classes = rows.map((row) => classOf(row.from_bytes));
  const first = Math.min(...classes);
  const at = Array.from({ length: Math.max(Math.max(...classes) - first + 1, 6) }, (_, index) => first + index);
  const sums = at.map(() => ({ count: 0, bytes: 0 }));
  rows.forEach((row) => {
    const sum = sums[classOf(row.from_bytes) - first];
    sum.count += row.count;
    sum.bytes += row.bytes;
  });
  const all = { count: rows.reduce((a, row) => a + row.count, 0), bytes: rows.reduce((a, row) => a + row.bytes, 0) };
  const from = (size) => (size === 0 ? 0 : 2 ** (size - 1));
  const share = (kind) => sums.map((sum) => (all[kind] > 0 ? (sum[kind] * 100) / all[kind] : 0));
  const what = distribution === "packets" ? "packets" : "messages";
  chart("size-chart", 280, `Sizes of ${DISTRIBUTIONS[distribution]}, by power of two: shares of ${group(all.count)} ${what} and of their ${bytes(all.bytes)}; the table below has the numbers`, {
    x: { type: "category", data: at.map((size) => bytes(from(size))), name: "size, by power of two, from", axisLabel: { hideOverlap: true } },
    y: { type: "value", name: "share", axisLabel: { formatter: "{value} %" } },
    legend: [`of the ${what}`, "of their bytes"],
    tip: ([{ dataIndex }]) => {
      const sum = sums[dataIndex];
      return `${sizeClass(from(at[dataIndex]))}<br>${group(sum.count)} ${what}<br>${bytes(sum.bytes)}`;
    },
    series: [
      { name: `of the ${what}`, type: "bar", barMaxWidth: 34, barGap: "6%", itemStyle: { color: report.colors[0] }, data: share("count") },
      { name: "of their bytes", type: "bar", barMaxWidth: 34, itemStyle: { color: report.colors[1] }, data: share("bytes") },
    ],
  });
  const table = rows.map((row) => [row.of, sizeClass(row.from_bytes), group(row.count), bytes(row.bytes), bytes(row.smallest_bytes), bytes(row.largest_bytes)]);
  fill($("size-table"), DISTRIBUTIONS[distribution], ["of", "size", "number", "bytes", "smallest", "largest"], table);
}
drawn.push(drawLatency, drawSizes);
