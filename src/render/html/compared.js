// Two runs side by side: differing values, three matrices, rates over time, latencies.

const compared = report.compared;
const SELECTIONS = ["p2p", "collective", "all"];

/// Unpacks the pairs of both runs by grouping, as `comparison.rs` packs them.
function unpackCompared(data) {
  const columns = new Columns(data);
  return compared.pairs.map((own) => {
    const count = columns.next();
    const next = (Kind = Float64Array) => columns.column(Kind, count);
    const [rows, places] = [next(Uint32Array), next(Uint32Array)];
    const side = () => ({
      payload: next(), wire: next(), packets: next(), mpi: next(Uint8Array), messages: SELECTIONS.map(() => [next(), next()]),
    });
    return { ...own, count, rows, columns: places, sides: [side(), side()] };
  });
}

const packedPairs = await inflate($("data-compared"));
const comparedPairs = compared ? unpackCompared(packedPairs) : [];
const comparedState = { by: compared?.pairs[0].by, unit: "wire-bytes", selection: "all", scaling: "auto", rate: "wire_bytes" };
const comparedView = () => comparedPairs.find(({ by }) => by === comparedState.by);

/// The values of a unit of all pairs in A or in B.
function sideOf(own, side, unit) {
  const fixed = { "payload-bytes": "payload", "wire-bytes": "wire", packets: "packets" }[unit];
  if (fixed) return own.sides[side][fixed];
  return own.sides[side].messages[SELECTIONS.indexOf(comparedState.selection)][unit === "messages" ? 0 : 1];
}

/// The value of a unit of one pair; `null` if MPI bytes are unknown because neither run has an MPI
/// library.
function valueOf(own, side, unit, pair) {
  const known = unit !== "mpi-bytes" || own.sides.some(({ mpi }) => mpi[pair]);
  return known ? sideOf(own, side, unit)[pair] : null;
}

/// The color of a difference from -1 (more in A) to 1 (more in B); 0 has a neutral color.
function diverge(share) {
  const [end, none] = [channels(share < 0 ? APART[0] : APART[5]), channels(color("even"))];
  return none.map((low, index) => Math.round(low + Math.abs(share) * (end[index] - low)));
}

/// Relative changes below this are neutral: they have the color of equal values.
const NEUTRAL = 0.05;

/// The relative change from A to B, -1 (only in A) to 1 (only in B): the difference divided by the
/// larger value.
function relativeChange(a, b) {
  const largest = Math.max(a, b);
  return largest === 0 ? 0 : (b - a) / largest;
}

/// The share of the color of a relative change: 0 within the neutral band, and a visible color beyond.
function changeShare(change) {
  return Math.abs(change) <= NEUTRAL ? 0 : Math.sign(change) * (0.2 + 0.8 * Math.abs(change));
}

const comparedMaps = ["map-a", "map-b", "map-difference"].map((id) => new HeatMap($(id), {
  over(row, column, x, y) {
    const { text, box } = comparedTip(row, column);
    tip(box, x, y);
    $("spoken").textContent = text;
  },
  out: () => tip(null),
  pick() {},
}, false));
comparedMaps.forEach((map) => (map.peers = comparedMaps.filter((other) => other !== map)));

/// The tooltip of a pair with its traffic in both runs.
function comparedTip(row, column) {
  const own = comparedView();
  const pair = own.cells.get(row * own.labels.length + column);
  const [from, to] = [row, column].map((label) => (own.by === "rank" && own.labels[label].id !== "unknown" ? `rank ${own.labels[label].name}` : own.labels[label].name));
  const box = element("div");
  box.append(element("strong", `${from} → ${to}`));
  if (pair === undefined) {
    box.append(element("p", "no traffic in either run"));
    return { box, text: `${from} to ${to}: no traffic in either run` };
  }
  const table = element("table");
  const head = element("tr");
  ["", "A", "B", "B − A"].forEach((text) => head.append(element(text === "" ? "td" : "th", text)));
  table.append(head);
  for (const [unit, { name, isBytes }] of Object.entries(UNITS)) {
    const line = element("tr", null, unit === comparedState.unit ? { class: "current" } : {});
    line.append(element("th", name, { scope: "row" }));
    const [a, b] = [0, 1].map((side) => valueOf(own, side, unit, pair));
    for (const [value, text] of [[a], [b], [a === null ? null : b - a, a === null ? null : signedText(b - a, group)]]) {
      const td = element("td", value === null ? "unknown" : text ?? group(value), { "data-value": value ?? "" });
      if (isBytes && Math.abs(value) > 9999) td.append(element("small", text ? signedText(value, bytes) : bytes(value)));
      line.append(td);
    }
    table.append(line);
  }
  box.append(table);
  const [a, b] = [0, 1].map((side) => valueOf(own, side, comparedState.unit, pair) ?? 0);
  return { box, text: `${from} to ${to}: ${group(a)} in A, ${group(b)} in B, ${UNITS[comparedState.unit].name}` };
}

/// A difference with its sign.
function signedText(value, show) {
  return value === 0 ? "0" : `${value < 0 ? "−" : "+"}${show(Math.abs(value))}`;
}

function drawCompared() {
  $("compared").hidden = !compared;
  if (!compared) return;
  comparedControls();
  drawComparedMaps();
  drawComparedPairs();
  drawComparedRates();
  drawComparedTimes();
}

function comparedControls() {
  const set = (key) => (value) => {
    comparedState[key] = value;
    drawCompared();
  };
  const { unit, selection, by, scaling, rate } = comparedState;
  choices($("compared-by"), comparedPairs.map((own) => [own.by, NOUNS[own.by][1]]), by, set("by"));
  choices($("compared-unit"), Object.entries(UNITS).map(([key, { name }]) => [key, name]), unit, set("unit"));
  choices($("compared-selection"), [["p2p", "point-to-point"], ["collective", "collective"], ["all", "all"]], selection, set("selection"));
  $("compared-selection").disabled = unit !== "messages" && unit !== "mpi-bytes";
  choices($("compared-scaling"), [["auto", "automatic"], ["linear", "linear"], ["log", "logarithmic"]], scaling, set("scaling"));
  const rates = compared.rates.filter((name) => !name.startsWith("mpi") || compared.series.some(({ has_mpi: has }) => has));
  choices($("compared-rate"), rates.map((name) => [name, rateName(name)]), rate, set("rate"));
}

const rateName = (name) => ({ wire_bytes: "bytes on the wire", payload_bytes: "payload bytes", mpi_messages: "MPI messages", mpi_bytes: "MPI bytes" }[name] ?? name);

/// The color scale of both runs.
function comparedScale() {
  const sides = [0, 1].map((side) => scaleOf(sideOf(comparedView(), side, comparedState.unit), "linear"));
  return scaleOf(sides.flatMap(({ min, max }) => (max > 0 ? [min, max] : [])), comparedState.scaling);
}

/// Whether the value of a pair in a run is known: it was captured, or the captures show all ports.
function isComparedSeen(own, side, pair) {
  return !compared.partial[side] || own.sides[side].packets[pair] > 0;
}

/// Text that explains hatched cells; `partial` are the runs that may not show all ports.
function hiddenText(partial) {
  const some = partial.length > 0 ? ` The captures of ${partial.join(" and ")} may not show all ports, so a pair without captured packets may have sent messages, and its difference is not known.` : "";
  return `Hatched: not on this wire.${some}`;
}

const comparedWidth = () => Math.min(300, comparedMaps[0].canvas.parentElement.clientWidth - 44);

function drawComparedLegend(canvas) {
  drawLegend(canvas, comparedWidth(), comparedScale(), UNITS[comparedState.unit].isBytes);
}

function drawComparedMaps() {
  const own = comparedView();
  own.cells ??= new Map(Array.from(own.rows, (row, pair) => [row * own.labels.length + own.columns[pair], pair]));
  const { unit } = comparedState;
  const { isBytes } = UNITS[unit];
  const show = (value) => (isBytes ? bytes(value) : count(value));
  const [a, b] = [0, 1].map((side) => sideOf(own, side, unit));
  const less = b.map((value, pair) => value - a[pair]);
  const scale = comparedScale();
  const shared = {
    size: own.labels.length,
    labels: own.labels.map(({ name }) => ({ text: name })),
    order: own.labels.map((_, label) => label),
    rows: own.rows,
    columns: own.columns,
    groups: null,
    what: NOUNS[own.by][0],
  };
  const isSeen = (side) => (pair) => own.sides[side].packets[pair] > 0;
  [a, b].forEach((values, side) => comparedMaps[side].show({
    ...shared,
    nodes: own.nodes[side],
    isPartial: compared.partial[side],
    isSeen: isSeen(side),
    colorOf: (pair) => (values[pair] === 0 ? null : SHADES[Math.round(scale.share(values[pair]) * 255)]),
    weightOf: (pair) => values[pair],
    textOf: (pair) => show(values[pair]),
  }));
  const shades = Array.from({ length: 257 }, (_, at) => diverge((at - 128) / 128));
  // A difference is known only if both runs show the pair.
  const isKnown = (pair) => [0, 1].every((side) => isComparedSeen(own, side, pair));
  comparedMaps[2].show({
    ...shared,
    nodes: own.nodes.flat(),
    isPartial: compared.partial.includes(true),
    isSeen: isKnown,
    colorOf: (pair) => (!isKnown(pair) ? null : shades[Math.round(changeShare(relativeChange(a[pair], b[pair])) * 128) + 128]),
    weightOf: (pair) => Math.abs(less[pair]),
    textOf: (pair) => signedText(less[pair], show),
  });
  const partial = ["A", "B"].filter((_, side) => compared.partial[side]);
  $("maps-hidden").hidden = partial.length === 0 && own.nodes.flat().length === 0;
  $("maps-hidden").textContent = hiddenText(partial);
  drawComparedLegend($("legend-a"));
  drawDiverging($("legend-difference"), comparedWidth());
  const names = ["A", "B", "B − A"];
  comparedMaps.forEach((map, at) => map.top.setAttribute("aria-label", `Matrix of ${UNITS[unit].name}, ${names[at]}; the table below has the pairs that differ most.`));
}

/// Draws the color bar of relative changes.
function drawDiverging(canvas, width) {
  const context = prepare(canvas, width + 40, 40);
  for (let x = 0; x < width; x += 1) {
    const [red, green, blue] = diverge(changeShare((x / width) * 2 - 1));
    context.fillStyle = `rgb(${red},${green},${blue})`;
    context.fillRect(x + 20, 4, 1.5, 12);
  }
  context.fillStyle = color("muted");
  context.textBaseline = "top";
  const texts = [["only in A", "left", 20], ...(width > 200 ? [[`within ${NEUTRAL * 100} %`, "center", 20 + width / 2]] : []), ["only in B", "right", width + 20]];
  for (const [text, align, at] of texts) {
    context.textAlign = align;
    context.fillText(text, at, 20);
  }
}

const MAX_COMPARED = 12;

function drawComparedPairs() {
  const own = comparedView();
  const { unit } = comparedState;
  const [a, b] = [0, 1].map((side) => sideOf(own, side, unit));
  const show = UNITS[unit].isBytes ? bytes : group;
  // Pick the largest differences without sorting all pairs.
  const top = [];
  for (let pair = 0; pair < own.count; pair += 1) {
    const size = Math.abs(b[pair] - a[pair]);
    if (size === 0 || (top.length === MAX_COMPARED && size <= top.at(-1)[1])) continue;
    let at = top.length;
    while (at > 0 && top[at - 1][1] < size) at -= 1;
    top.splice(at, 0, [pair, size]);
    if (top.length > MAX_COMPARED) top.pop();
  }
  const name = (label) => own.labels[label].name;
  const percent = (from, to) => (from > 0 ? `${to >= from ? "+" : "−"}${digits((Math.abs(to - from) * 100) / from)} %` : "new in B");
  // A run whose captures show only some ports may not show a pair at all.
  const shownValue = (side, pair) => (isComparedSeen(own, side, pair) ? number((side === 0 ? a : b)[pair], show) : "not captured");
  const rows = top.map(([pair]) => {
    const isKnown = [0, 1].every((side) => isComparedSeen(own, side, pair));
    return [
      `${name(own.rows[pair])} → ${name(own.columns[pair])}`, shownValue(0, pair), shownValue(1, pair),
      isKnown ? number(b[pair] - a[pair], (less) => signedText(less, show)) : "not known", isKnown ? percent(a[pair], b[pair]) : "–",
    ];
  });
  const what = NOUNS[own.by][1];
  const ofBoth = own.count > own.pairs ? " that both runs show" : "";
  $("compared-pairs-title").textContent = own.differ === 0
    ? `All ${group(own.pairs)} pairs of ${what}${ofBoth} sent equal amounts in both runs`
    : `${group(own.differ)} of ${group(own.pairs)} pairs of ${what}${ofBoth} differ${rows.length > 0 ? "; largest differences" : `, but not in their ${UNITS[unit].name}`}`;
  fillList($("compared-pairs"), "Pairs with the largest differences", [what, "A", "B", "B − A", ""], rows);
  $("compared-pairs").hidden = rows.length === 0;
}

function drawComparedRates() {
  const index = compared.rates.indexOf(comparedState.rate);
  const isBytes = comparedState.rate.endsWith("bytes");
  const { bin_ns: width } = compared;
  const name = rateName(comparedState.rate);
  $("compared-rates-title").textContent = `${sentence(name)} over time, each run from its own first packet`;
  const colors = [color("accent"), color("second")];
  const legend = ["A", "B"].map((side, at) => `${side}: ${compared.names[at]}`);
  const series = compared.series.map(({ first_ns: first, bins }, side) => ({
    name: legend[side], type: "line", step: "end", symbol: "none", color: colors[side],
    lineStyle: { width: 1.6, color: colors[side], opacity: 0.9 },
    data: [...bins, bins.at(-1) ?? []].map((sums, at) => [(first + at * width) / 1e9, ((sums[index] ?? 0) * 1e9) / width]),
  }));
  const edges = compared.series.flatMap(({ first_ns: start, span_ns: span, bins }) => partialEdges({ width: 1, length: bins.length, start: (bin) => start + bin * width }, span));
  series[0].markArea = { silent: true, animation: false, itemStyle: { color: color("even"), opacity: 0.8 }, data: edges.map((ends) => ends.map((ns) => ({ xAxis: ns / 1e9 }))) };
  const last = Math.max(...compared.series.map(({ first_ns: first, bins }) => first + bins.length * width)) / 1e9;
  const first = Math.min(...compared.series.map(({ first_ns: start }) => start)) / 1e9;
  chart("compared-rates", 250, `${name} over time in both runs, in bins of ${time(width)}; means and peaks are in the table of values`, {
    x: { type: "value", min: first, max: last, name: "time from the first packet [s]", nameGap: 28, axisLabel: { formatter: (value) => +value.toFixed(6), hideOverlap: true, showMinLabel: false, showMaxLabel: false } },
    y: rateAxis(highestRate(series), isBytes),
    legend,
    pointer: "line",
    tip: (points) => {
      const at = points[0].axisValue;
      const lineOf = (run, side) => {
        const bin = Math.floor((at * 1e9 - run.first_ns) / width + 1e-6);
        const sums = run.bins[bin];
        return `${"AB"[side]}: ${sums ? perSecond((sums[index] * 1e9) / width, isBytes) : "–"}`;
      };
      return [`${+at.toFixed(6)} s`, ...compared.series.map(lineOf)].join("<br>");
    },
    series,
  });
  const [a, b] = compared.windows_ns;
  $("compared-rates-note").textContent = `Both runs in bins of ${time(width)}.${a === b ? "" : ` Peaks are over ${time(a)} in A and over ${time(b)} in B.`}${edges.length > 0 ? " Gray: the captures of a run begin or end within the bin, so they show a part of it only." : ""}`;
}

/// Name of a latency: interval, verb and size class.
function timeName({ interval, verb, from_bytes: from }) {
  return [INTERVALS[interval] ?? interval, verb, from === null ? "" : sizeClass(from)].filter((part) => part).join(", ");
}

const MAX_TIMES = 14;

/// Why times of a sampled capture cannot be compared.
const SAMPLED_TIMES = "the times of a sampled capture are biased";

/// True if it is unknown of all these rows whether their values differ.
const areUnknown = (rows) => rows.length > 0 && rows.every(({ verdict }) => verdict === "unknown");

/// Draws medians of both runs with their confidence intervals, and 99th percentiles: differences
/// beyond chance first.
function drawComparedTimes() {
  const all = compared.rows.filter(({ section, values: [a, b] }) => section === "latency" && a !== null && b !== null);
  const medians = all.filter(({ value }) => value === "median_ns");
  $("compared-times-card").hidden = medians.length === 0;
  if (medians.length === 0) return;
  const rows = medians.slice(0, MAX_TIMES);
  const high = rows.map((median) => all.find(({ value, key }) => value === "p99_ns" && timeName(key) === timeName(median.key)));
  const log = (ns) => Math.log10(Math.max(ns, 1));
  const every = [...rows, ...high].flatMap(({ values: pair, intervals }) => [...pair, ...intervals.flat()]).filter((ns) => ns !== null);
  const [low, top] = [Math.floor(Math.min(...every.map(log))), Math.ceil(Math.max(...every.map(log)) + 1e-9)];
  const short = (key) => timeName(key).replace("request to its ACK", "to its ACK").replace("first to last packet of a message", "message").replace("message to the next message", "to next message").replace("sender's to receiver's port", "port to port").replace("MPI message, port to port", "MPI message");
  const colors = [color("accent"), color("second")];
  const place = (row, side) => row + (side === 0 ? -0.17 : 0.17);
  const legend = ["A", "B"].map((side, at) => `${side}: ${compared.names[at]}`);
  const series = [0, 1].flatMap((side) => [
    { name: legend[side], type: "scatter", symbolSize: 9, itemStyle: { color: colors[side] }, data: rows.map((row, at) => [log(row.values[side]), place(at, side)]) },
    {
      type: "line", symbol: "none", silent: true, lineStyle: { width: 3, color: colors[side], opacity: 0.6 },
      data: rows.flatMap((row, at) => (row.intervals[side] ? [...row.intervals[side].map((ns) => [log(ns), place(at, side)]), [null, null]] : [])),
    },
    {
      type: "scatter", symbolSize: 8, itemStyle: { color: "transparent", borderColor: colors[side], borderWidth: 1.5 }, silent: true,
      data: high.map((row, at) => [log(row.values[side]), place(at, side)]),
    },
  ]);
  const beyond = medians.filter(({ verdict }) => verdict === "beyond chance").length;
  const differing = `${beyond === 0 ? "no median differs" : `${group(beyond)} of ${group(medians.length)} medians differ`} beyond chance`;
  $("compared-times-title").textContent = `Times: ${areUnknown(medians) ? `unknown whether medians differ, because ${SAMPLED_TIMES}` : differing}`;
  const label = (at) => (Number.isInteger(at) && rows[at] ? `${rows[at].verdict === "beyond chance" ? "* " : ""}${short(rows[at].key)}` : "");
  // On a narrow page, the names take at most half of the width.
  const names = Math.min(270, $("compared-times").clientWidth / 2);
  chart("compared-times", 70 + 30 * rows.length, `Medians in A and B: ${rows.map((row) => `${timeName(row.key)} ${row.texts[0]} and ${row.texts[1]}, ${row.verdict}`).join("; ")}`, {
    left: names + 20,
    x: { type: "value", min: low, max: Math.max(top, low + 1), interval: 1, name: "time", nameGap: 28, axisLabel: { formatter: (power) => time(10 ** power) } },
    y: { type: "value", min: -1, max: rows.length, interval: 1, inverse: true, axisLabel: { formatter: label, width: names, overflow: "truncate" } },
    legend,
    trigger: "item",
    tip: ({ data: [, at] }) => {
      const row = Math.round(at);
      const lineOf = (found, name) => `${name}: A ${found.texts[0]}, B ${found.texts[1]} (${found.texts[3]}), ${found.verdict}`;
      const { samples } = rows[row];
      return [`<b>${timeName(rows[row].key)}</b>`, `${group(samples[0])} samples in A, ${group(samples[1])} in B`, lineOf(rows[row], "median"), lineOf(high[row], "99 %")].join("<br>");
    },
    series,
  });
  const rest = medians.length > rows.length ? ` ${group(medians.length - rows.length)} more are in the table of values.` : "";
  $("compared-times-note").textContent = `Dots are medians, bars their 99 % confidence intervals, rings 99th percentiles. * beyond chance: the confidence intervals do not overlap.${rest}`;
}

/// Shows all values of both runs except pairs, differing values first.
function comparedValues() {
  const text = ({ section, name, key }) => (section === "latency" ? `${timeName(key)}: ${name === "median" ? "median" : "99th percentile"}` : name);
  const line = (row) => {
    const [a, b] = row.values;
    const { interval = "", verb = "", from_bytes: from = "" } = row.key ?? {};
    const [shownA, shownB, difference, relation] = row.texts;
    const of = (value, shownText) => (value === null ? shownText : { value, text: shownText });
    const verdict = element("span", row.verdict, { class: row.verdict === "beyond chance" ? "beyond" : "" });
    const cells = [text(row), of(a, shownA), of(b, shownB), of(a === null || b === null ? null : b - a, difference), relation, verdict];
    const attributes = { "data-of": [row.section, interval, verb, from ?? "", row.value].join(","), "data-a": a ?? "", "data-b": b ?? "", "data-verdict": row.verdict };
    return Object.assign(cells, { attributes });
  };
  const differ = compared.rows.filter(({ verdict }) => ["beyond chance", "differs", "one only"].includes(verdict));
  const table = $("compared-values");
  const show = (rows) => fillList(table, "Values of both runs", ["value", "A", "B", "B − A", "relation", "verdict"], rows.map(line));
  const most = Math.min(differ.length, MAX_COMPARED);
  show(differ.slice(0, most));
  const title = (shownRows) => ($("compared-values-title").textContent = differ.length === 0 ? "No value differs, apart from values that cannot be judged from one value per run" : `Differing values: ${group(shownRows)} of ${group(differ.length)}, differences beyond chance first`);
  title(most);
  const more = $("compared-more");
  more.textContent = `Show all ${group(compared.rows.length)} values, including equal ones`;
  more.addEventListener("click", () => {
    more.remove();
    show(compared.rows);
    $("compared-values-title").textContent = `All values: ${group(differ.length)} differ, differences beyond chance first`;
  });
}

function comparedOverview() {
  const row = (section, value) => compared.rows.find((found) => found.section === section && found.value === value);
  const medians = compared.rows.filter(({ section, value, values: [a, b] }) => section === "latency" && value === "median_ns" && a !== null && b !== null);
  const beyond = medians.filter(({ verdict }) => verdict === "beyond chance").length;
  const health = compared.rows.filter(({ section, verdict }) => section === "health" && verdict !== "one only");
  const wrong = health.filter(({ verdict }) => verdict !== "equal").length;
  const [pairs] = compared.pairs;
  const rate = row("rate", "wire_bytes_per_s_mean");
  const tiles = [
    { label: "Pairs that differ", value: group(pairs.differ), below: `of ${group(pairs.pairs)} pairs of ${NOUNS[pairs.by][1]}` },
    { label: "Medians that differ beyond chance", value: areUnknown(medians) ? "unknown" : group(beyond), below: areUnknown(medians) ? SAMPLED_TIMES : `of ${group(medians.length)} medians in both runs` },
    { label: "Health counts that differ", value: group(wrong), below: `of ${group(health.length)} in both runs` },
    { label: "Mean rate on the wire", value: rate.texts[3] === "=" ? "equal" : rate.texts[3], below: `${rate.texts[0]} in A, ${rate.texts[1]} in B` },
  ];
  $("compared-tiles").replaceChildren(...tiles.map(tile));
  const doubts = compared.doubts.map((doubt, side) => (doubt ? ` ${"AB"[side]}: ${doubt}, so its counts may differ by chance.` : "")).join("");
  $("compared-names").textContent = `A is ${compared.names[0]}, which the rest of this page shows; B is ${compared.names[1]}. Counts of the captured packets are exact.${doubts} The variation between runs is only known from several runs of each.`;
  $("compared-placement").hidden = !compared.placement;
  $("compared-placement").textContent = compared.placement ?? "";
  comparedValues();
}

drawn.push(drawCompared);
if (compared) {
  comparedOverview();
  const [byPairs] = compared.pairs;
  const all = ofPage("compared");
  exportable($("compared-values").closest(".card"), "compared", () => "Values of both runs", all);
  exportChart($("compared-times-card"), "compared-times", "compared-times", () => $("compared-times-title").textContent, { ...all, note: () => $("compared-times-note").textContent });
  exportable(comparedMaps[0].canvas.closest(".card"), "compared-pairs", () => `${sentence(UNITS[comparedState.unit].name)} between ${NOUNS[comparedState.by][1]} in both runs`, {
    ...(all.command && {
      command: () => [all.command(), ...(comparedState.by === byPairs.by ? [] : ["--by", comparedState.by])].join(" "),
      csv: () => all.csv(),
      hasCsv: () => comparedState.by === byPairs.by && all.hasCsv(),
    }),
    drawing: () => [
      comparedMaps.map((map, at) => ({ ...canvasPart((canvas) => map.paint(canvas)), name: ["A", "B", "B − A"][at] })),
      [canvasPart((canvas) => drawComparedLegend(canvas)), canvasPart((canvas) => drawDiverging(canvas, comparedWidth()))],
    ],
    note: () => [`A is ${compared.names[0]}, B is ${compared.names[1]}.`, $("maps-hidden").hidden ? "" : $("maps-hidden").textContent].join(" "),
  });
  const ratesCard = $("compared-rates").parentElement;
  exportChart(ratesCard, "compared-rates", "rates-of-a", () => $("compared-rates-title").textContent, { ...ofPage("rates_a"), label: "of A" });
  exportable(ratesCard, "rates-of-b", () => "", { ...ofPage("rates_b"), label: "of B" });
}
