// The charts of the page, drawn by ECharts, and the size distributions.

const charts = {};
/// Width, height and options of each chart, to draw the chart into a file.
const chartDrawings = {};

/// Draws an ECharts chart in a box, with the options that all charts share.
function chart(id, height, label, option) {
  const box = $(id);
  charts[id] ??= echarts.init(box, null, { renderer: "canvas" });
  charts[id].resize({ width: box.clientWidth, height });
  box.setAttribute("aria-label", label);
  const text = { color: color("muted"), fontFamily: fontFamily() };
  const axis = (own) => ({
    ...own,
    nameTextStyle: text,
    nameLocation: "middle",
    nameGap: own.nameGap ?? (own.type === "category" ? 30 : 48),
    axisLabel: { ...text, ...own.axisLabel },
    axisLine: { lineStyle: { color: color("line") } },
    axisTick: { lineStyle: { color: color("line") }, alignWithLabel: false },
    splitLine: { show: own.splitLine ?? own.type !== "category", lineStyle: { color: color("grid") } },
  });
  const full = {
    animation: false,
    textStyle: text,
    grid: { left: option.left ?? 70, right: 16, top: option.legend ? 34 : 22, bottom: option.bottom ?? 46 },
    tooltip: {
      trigger: option.trigger ?? "axis", axisPointer: { type: option.pointer ?? "shadow", shadowStyle: { color: color("cross") } }, confine: true,
      backgroundColor: color("card"), borderColor: color("line"), textStyle: { color: color("text"), fontSize: 13 },
      // The tooltip contains only numbers and names made by this program.
      formatter: option.tip,
    },
    legend: option.legend ? { top: 0, left: 64, textStyle: text, itemWidth: 14, itemHeight: 9, icon: "roundRect", selectedMode: false, data: option.legend } : { show: false },
    xAxis: axis(option.x),
    yAxis: axis(option.y),
    series: option.series,
  };
  charts[id].setOption(full, true);
  chartDrawings[id] = { width: box.clientWidth, height, option: full };
}

/// Adds the exports of a chart below a card.
function exportChart(card, id, name, title, of) {
  exportable(card, name, title, { ...of, drawing: () => [[chartPart(chartDrawings[id])]], note: of.note ?? (() => "") });
}

/// The vertical axis of rates of at most `highest`. The ticks of byte rates are at multiples of a
/// power of two, which are round numbers in KiB/s and MiB/s.
function rateAxis(highest, isBytes) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(highest / 3)));
  const ticks = isBytes ? { interval: step, max: step * Math.max(1, Math.ceil(highest / step)) } : { splitNumber: 3 };
  return { type: "value", min: 0, ...ticks, axisLabel: { formatter: (value) => perSecond(value, isBytes) } };
}

/// The highest rate of all series of `[time, rate]`.
function highestRate(series) {
  return series.reduce((highest, { data }) => data.reduce((most, [, rate]) => Math.max(most, rate), highest), 0);
}

const DISTRIBUTIONS = { mpi_messages: "MPI messages", messages: "transport messages, by payload", packets: "packets on the wire" };
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
      { name: `of the ${what}`, type: "bar", barMaxWidth: 34, barGap: "6%", itemStyle: { color: APART[0] }, data: share("count") },
      { name: "of their bytes", type: "bar", barMaxWidth: 34, itemStyle: { color: APART[1] }, data: share("bytes") },
    ],
  });
  const table = rows.map((row) => [row.of, number(row.from_bytes, sizeClass), number(row.count), number(row.bytes, bytes), number(row.smallest_bytes, bytes), number(row.largest_bytes, bytes)]);
  fillList($("size-table"), DISTRIBUTIONS[distribution], ["of", "size", "number", "bytes", "smallest", "largest"], table);
}
drawn.push(drawSizes);

exportChart($("size-chart").parentElement, "size-chart", "sizes", () => `Sizes of ${DISTRIBUTIONS[distribution]}`, ofPage("sizes"));
