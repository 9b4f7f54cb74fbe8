// A trace of the application compared with the wire: verdicts, three matrices, collective
// operations, clocks.

const checked = report.crosscheck;
const CHECKED = [
  "src", "dst", "verdict", "outcome", "causes", "trace_messages", "trace_bytes", "wire_messages", "wire_mpi_bytes", "tracer_messages", "tracer_bytes", "missing_messages",
  "missing_bytes", "unidentified_messages", "unidentified_bytes", "excess_messages", "excess_bytes", "wire_bytes", "payload_bytes", "retransmitted_wire_bytes",
];

/// Unpacks the pairs that `crosscheck.rs` packs: one column for each name in `CHECKED`.
function unpackChecked(data) {
  const columns = new Columns(data);
  const count = columns.next();
  const pairs = Object.fromEntries(CHECKED.map((name) => [name, columns.column(Float64Array, count)]));
  for (const name of ["excess_messages", "excess_bytes"]) pairs[name] = pairs[name].map((twice) => (twice % 2 === 0 ? twice / 2 : -(twice + 1) / 2));
  const ranks = [...new Set([...pairs.src, ...pairs.dst])].sort((a, b) => a - b);
  const place = new Map(ranks.map((rank, at) => [rank, at]));
  const of = (values) => Uint32Array.from(values, (rank) => place.get(rank));
  const [rows, columnsOf] = [of(pairs.src), of(pairs.dst)];
  const cells = new Map(Array.from(rows, (row, pair) => [row * ranks.length + columnsOf[pair], pair]));
  return { ...pairs, count, ranks, rows, columns: columnsOf, cells };
}

const packedChecked = await inflate($("data-crosscheck"));
const checkedPairs = checked ? unpackChecked(packedChecked) : null;
const checkedState = { unit: "bytes", scaling: "auto" };

const verdictOf = (pair) => checked.verdicts[checkedPairs.verdict[pair]];
const causesOf = (pair) => checked.causes.filter((_, bit) => (checkedPairs.causes[pair] >> bit) & 1);

const checkedMaps = ["map-trace", "map-wire", "map-verdict"].map((id) => new HeatMap($(id), {
  over(row, column, x, y) {
    const { text, box } = checkedTip(row, column);
    tip(box, x, y);
    $("spoken").textContent = text;
  },
  out: () => tip(null),
  pick() {},
}, false));
checkedMaps.forEach((map) => (map.peers = checkedMaps.filter((other) => other !== map)));

/// The tooltip of a pair, in the trace and on the wire.
function checkedTip(row, column) {
  const own = checkedPairs;
  const [from, to] = [own.ranks[row], own.ranks[column]];
  const pair = own.cells.get(row * own.ranks.length + column);
  const box = element("div");
  box.append(element("strong", `rank ${from} → rank ${to}`));
  if (pair === undefined) {
    box.append(element("p", "no message in the trace or on the wire"));
    return { box, text: `rank ${from} to rank ${to}: no message in the trace or on the wire` };
  }
  const verdict = verdictOf(pair);
  const why = causesOf(pair).join(", ");
  box.append(element("p", why ? `${verdict}: ${why}` : verdict, { "data-verdict": verdict, "data-causes": causesOf(pair).join(";") }));
  const table = element("table");
  const head = element("tr");
  ["", "messages", "bytes"].forEach((text) => head.append(element(text === "" ? "td" : "th", text)));
  table.append(head);
  const lines = [["in the trace", "trace_messages", "trace_bytes"], ["on the wire", "wire_messages", "wire_mpi_bytes"], ["the tracer's own", "tracer_messages", "tracer_bytes"], ["missing, explained", "missing_messages", "missing_bytes"], ["of these, rank not identified", "unidentified_messages", "unidentified_bytes"], ["unexplained", "excess_messages", "excess_bytes"]];
  for (const [name, messages, size] of lines) {
    const line = element("tr");
    line.append(element("th", name, { scope: "row" }), ...[messages, size].map((key) => element("td", group(own[key][pair]), { "data-key": key, "data-value": own[key][pair] })));
    table.append(line);
  }
  box.append(table);
  return { box, text: `rank ${from} to rank ${to}: ${group(own.trace_messages[pair])} messages in the trace, ${group(own.wire_messages[pair])} on the wire, ${verdict}` };
}

function drawChecked() {
  $("checked").hidden = !checked;
  if (!checked) return;
  drawCheckedMaps();
  drawDelays();
}

function drawCheckedMaps() {
  const own = checkedPairs;
  $("checked-maps").hidden = own.count === 0;
  if (own.count === 0) return;
  const set = (key) => (value) => {
    checkedState[key] = value;
    drawChecked();
  };
  choices($("checked-unit"), [["bytes", "MPI bytes"], ["messages", "MPI messages"]], checkedState.unit, set("unit"));
  choices($("checked-scaling"), [["auto", "automatic"], ["linear", "linear"], ["log", "logarithmic"]], checkedState.scaling, set("scaling"));
  const isBytes = checkedState.unit === "bytes";
  const show = isBytes ? bytes : count;
  const [trace, wire] = isBytes ? [own.trace_bytes, own.wire_mpi_bytes] : [own.trace_messages, own.wire_messages];
  const scale = scaleOf([trace, wire].map((values) => scaleOf(values, "linear")).flatMap(({ min, max }) => (max > 0 ? [min, max] : [])), checkedState.scaling);
  const shared = {
    size: own.ranks.length,
    labels: own.ranks.map((rank) => ({ text: String(rank) })),
    order: own.ranks.map((_, label) => label),
    rows: own.rows,
    columns: own.columns,
    groups: null,
    what: "rank",
  };
  const outcomes = report.colors.outcomes.map(([, hex]) => channels(hex));
  const shade = (value) => (value === 0 ? null : SHADES[Math.round(scale.share(value) * 255)]);
  checkedMaps[0].show({ ...shared, colorOf: (pair) => shade(trace[pair]), weightOf: (pair) => trace[pair], textOf: (pair) => show(trace[pair]) });
  // If the wire has no message of the pair, the color shows the outcome. Messages of unidentified
  // ranks may exist, so their number is shown as unknown.
  const isMissing = (pair) => wire[pair] === 0 && trace[pair] > 0;
  const isUnknown = (pair) => isMissing(pair) && own.unidentified_messages[pair] > 0;
  checkedMaps[1].show({
    ...shared,
    colorOf: (pair) => (isMissing(pair) ? outcomes[own.outcome[pair]] : shade(wire[pair])),
    weightOf: (pair) => wire[pair],
    textOf: (pair) => (isUnknown(pair) ? "?" : show(wire[pair])),
  });
  checkedMaps[2].show({
    ...shared,
    colorOf: (pair) => outcomes[own.outcome[pair]],
    weightOf: (pair) => own.outcome[pair],
    textOf: (pair) => signedText(wire[pair] - trace[pair], show),
  });
  drawLegend($("legend-trace"), Math.min(300, checkedMaps[0].canvas.parentElement.clientWidth - 44), scale, isBytes);
  const used = checked.outcomes.filter(([, number]) => number > 0);
  $("legend-verdict").replaceChildren(...used.map(([name, number]) => {
    const item = element("span", `${name}: ${group(number)}`, { class: "swatch" });
    item.style.setProperty("--swatch", report.colors.outcomes.find(([outcome]) => outcome === name)[1]);
    return item;
  }));
  const names = ["the trace", "the wire", "wire minus trace, colored by verdict"];
  checkedMaps.forEach((map, at) => map.top.setAttribute("aria-label", `Matrix of point-to-point ${isBytes ? "bytes" : "messages"}: ${names[at]}. The table below has the pairs.`));
}

/// Draws the times from send calls to the wire.
function drawDelays() {
  const delays = checked.send_to_wire;
  $("delays-card").hidden = !delays;
  if (!delays) return;
  // Bars from 1 ns on have equal ratios; all times below 1 ns are one bar.
  const bars = new Map();
  for (const [from, to, number] of delays.buckets) {
    const key = from < 1 ? -1 : Math.floor(2 * Math.log2(from));
    const bar = bars.get(key) ?? { from, to, number: 0 };
    bar.from = Math.min(bar.from, from);
    bar.to = Math.max(bar.to, to);
    bar.number += number;
    bars.set(key, bar);
  }
  const above = [...bars.keys()].filter((key) => key >= 0);
  const range = above.length > 0 ? Array.from({ length: Math.max(...above) - Math.min(...above) + 1 }, (_, at) => Math.min(...above) + at) : [];
  const keys = [...(bars.has(-1) ? [-1] : []), ...range];
  const start = (key) => (key < 0 ? "below 1 ns" : time(Math.ceil(2 ** (key / 2))));
  const at = (ns) => keys.findIndex((key) => (key < 0 ? ns < 1 : ns >= 1 && key === Math.floor(2 * Math.log2(ns))));
  $("delays-text").textContent = `Send call to wire: ${checked.delays}.`;
  chart("delays", 230, `Send call to wire: ${checked.delays}`, {
    x: { type: "category", data: keys.map(start), name: "time from the send call to the wire, from; bars of equal ratio", axisLabel: { hideOverlap: true } },
    y: { type: "value", name: "messages", axisLabel: { formatter: count }, minInterval: 1 },
    tip: ([{ dataIndex }]) => `${start(keys[dataIndex])} and more<br>${group(bars.get(keys[dataIndex])?.number ?? 0)} messages`,
    series: [{
      type: "bar", barCategoryGap: "8%", itemStyle: { color: APART[0] }, data: keys.map((key) => bars.get(key)?.number ?? 0),
      markLine: {
        symbol: "none", silent: true, animation: false, lineStyle: { color: APART[5], width: 2, type: "solid" },
        label: { formatter: `median ${time(Math.max(delays.median_ns, 0))}`, color: color("text"), position: "end", distance: 4 }, data: [{ xAxis: at(delays.median_ns) }],
      },
    }],
  });
}

const MAX_CHECKED = 1000;

function checkedOverview() {
  lines($("checked-lines"), checked.lines);
  $("checked-lines").lastChild.className = checked.agrees ? "" : "differs";
  $("checked-notes").hidden = checked.notes.length === 0;
  $("checked-notes").replaceChildren(...checked.notes.map((note) => element("li", note)));
  const own = checkedPairs;
  const order = Array.from({ length: own.count }, (_, pair) => pair).sort((a, b) => own.outcome[b] - own.outcome[a] || a - b);
  const signed = (less) => number(less, (value) => signedText(value, group));
  const cells = (pair) => [
    `${own.src[pair]} → ${own.dst[pair]}`, number(own.trace_messages[pair]), number(own.wire_messages[pair]), signed(own.wire_messages[pair] - own.trace_messages[pair]),
    number(own.trace_bytes[pair]), number(own.wire_mpi_bytes[pair]), signed(own.wire_mpi_bytes[pair] - own.trace_bytes[pair]), number(own.wire_bytes[pair], bytes),
    verdictOf(pair), causesOf(pair).join(", "),
  ];
  fillList($("checked-pairs"), "Pairs of ranks in the trace and on the wire", ["ranks", "messages", "on the wire", "differ", "bytes", "on the wire", "differ", "all traffic", "verdict", "because"], order.slice(0, MAX_CHECKED).map(cells));
  $("checked-pairs-card").hidden = own.count === 0;
  $("checked-more").hidden = own.count <= MAX_CHECKED;
  $("checked-more").textContent = `${group(own.count - MAX_CHECKED)} more pairs, which agree at least as well as these, are in the csv of ibscope crosscheck.`;
  const more = checked.more_differences > 0 ? [`and ${group(checked.more_differences)} more`] : [];
  $("checked-differences").hidden = checked.differences.length === 0;
  $("checked-differences").replaceChildren(...[...checked.differences, ...more].map((text) => element("li", text)));
  const operations = Object.entries(checked.operations).map(([name, row]) => [
    name, number(row.calls), number(row.pairs), number(row.expected_bytes, bytes), number(row.wire_pairs), number(row.wire.messages), number(row.wire.bytes, bytes), row.tracer.messages > 0 ? number(row.tracer.bytes, bytes) : "–",
  ]);
  $("checked-collectives").hidden = operations.length === 0;
  fillList($("checked-operations"), "Collective operations in the trace and on the wire", ["collective", "calls", "pairs", "expected", "pairs on the wire", "messages", "on the wire", "the tracer's"], operations);
  const collectives = checked.collectives.map(([operation, src, dst, expected, messages, size, ownMessages, ownBytes]) => [
    operation, `${src} → ${dst}`, number(expected), number(messages - ownMessages), number(size - ownBytes),
  ]);
  $("checked-collective-details").hidden = collectives.length === 0;
  fillList($("checked-collective-pairs"), "Collective operations by pair", ["collective", "ranks", "expected bytes", "messages", "bytes on the wire"], collectives);
  const clock = ({ rank, offset_ns: offset, drift_ppm: drift, uncertainty_ns: known, is_uneven: uneven, sent, received }) => [
    number(rank), new Date(offset / 1e6).toISOString().replace("T", " "), `${drift >= 0 ? "+" : "−"}${Math.abs(drift).toFixed(1)}`, known === null ? "one side only" : `${uneven ? "uneven, " : ""}${time(known)}`, number(sent), number(received),
  ];
  $("clocks-details").hidden = checked.clocks.length === 0;
  fillList($("checked-clocks"), "Clocks of the ranks compared with the clock of the capture", ["clock of rank", "starts at (UTC)", "drift [ppm]", "known to", "messages sent", "received"], checked.clocks.map(clock));
}

drawn.push(drawChecked);
if (checked) {
  checkedOverview();
  const pairs = ofPage("crosscheck");
  exportable(checkedMaps[0].canvas.closest(".card"), "crosscheck", () => "Trace and wire", {
    ...pairs,
    drawing: () => [
      checkedMaps.map((map, at) => ({ ...canvasPart((canvas) => map.paint(canvas)), name: ["Trace", "Wire", "Wire − trace"][at] })),
      [swatchPart([...$("legend-verdict").children].map((item) => [item.style.getPropertyValue("--swatch"), item.textContent]))],
    ],
  });
  exportable($("checked-pairs-card"), "crosscheck-pairs", () => "Pairs of ranks", pairs);
  if (checked.send_to_wire) exportChart($("delays-card"), "delays", "delays", () => "From the send call to the wire", ofPage("delays"));
  exportable($("checked-collectives"), "calls", () => "Collective operations in the trace", ofPage("calls"));
  exportable($("clocks-details"), "clocks", () => "Clocks of the ranks", ofPage("clocks"));
}
