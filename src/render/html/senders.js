// Senders over time: a heat map with a row for each sender and a column for each bin.

const sent = report.senders && new Columns(await inflateText(report.senders.values)).column(Float64Array, Math.ceil(report.senders.names.length / report.senders.block) * report.senders.columns);

function drawSenders() {
  $("senders-card").hidden = sent === null;
  if (sent !== null) paintSenders($("senders-canvas"), $("senders-legend"));
}

/// Draws the heat map and its legend on canvases.
function paintSenders(box, legend) {
  const { by, bin_ns: binNs, first_ns: firstNs, columns, block, names } = report.senders;
  const rows = sent.length / columns;
  const [left, right, above, below] = [PLOT.left, PLOT.right, 8, PLOT.bottom];
  const width = $("senders-card").clientWidth - 36;
  const side = width - left - right;
  const height = Math.min(Math.max(rows * 2, 160), 520);
  const context = prepare(box, width, above + height + below);
  const ratio = box.width / width;
  const most = sent.reduce((a, b) => Math.max(a, b), 0);
  const least = sent.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), most);
  const isLog = most > least * 100;
  const share = (value) => (isLog ? Math.log(value / least) / Math.log(most / least) : value / most);
  const none = channels(color("none"));
  // A pixel that covers several cells shows the highest.
  const [across, down] = [Math.round(side * ratio), Math.round(height * ratio)];
  const best = new Float64Array(across * down);
  for (let row = 0; row < rows; row += 1) {
    const [top, bottom] = [Math.floor((row * down) / rows), Math.max(Math.floor(((row + 1) * down) / rows), Math.floor((row * down) / rows) + 1)];
    for (let column = 0; column < columns; column += 1) {
      const value = sent[row * columns + column];
      if (value === 0) continue;
      const [from, to] = [Math.floor((column * across) / columns), Math.max(Math.floor(((column + 1) * across) / columns), Math.floor((column * across) / columns) + 1)];
      for (let y = top; y < bottom; y += 1) for (let x = from; x < to; x += 1) best[y * across + x] = Math.max(best[y * across + x], value);
    }
  }
  const image = context.createImageData(across, down);
  best.forEach((value, at) => {
    image.data.set(value > 0 ? SHADES[Math.round(share(value) * 255)] : none, at * 4);
    image.data[at * 4 + 3] = 255;
  });
  context.putImageData(image, Math.round(left * ratio), Math.round(above * ratio));
  context.fillStyle = color("text");
  context.textBaseline = "middle";
  context.textAlign = "right";
  const every = Math.ceil((rows * 16) / height);
  for (let row = 0; row < rows; row += every) context.fillText(names[row * block].slice(0, 10), left - 6, above + ((row + 0.5) * height) / rows);
  context.fillStyle = color("muted");
  context.textAlign = "center";
  const spanS = (binNs * columns) / 1e9;
  const step = [1, 2, 5].flatMap((digit) => Array.from({ length: 16 }, (_, power) => digit * 10 ** (power - 9))).sort((a, b) => a - b).find((one) => (spanS / one) * 70 <= side) ?? spanS;
  for (let tick = Math.ceil(firstNs / 1e9 / step); tick * step <= firstNs / 1e9 + spanS; tick += 1) {
    const x = left + ((tick * step - firstNs / 1e9) / spanS) * side;
    if (x > left + 10 && x < left + side - 10) context.fillText(`${+(tick * step).toFixed(9)} s`, x, above + height + 14);
  }
  $("senders-title").textContent = `Wire rate by sending ${by} over time`;
  const rate = (value) => perSecond((value * 1e9) / binNs, true);
  const several = block > 1 ? ` A row shows the highest of ${block} senders.` : "";
  const pixels = rows > down || columns > across ? " A pixel shows the highest of its cells." : "";
  $("senders-canvas").setAttribute("aria-label", `Wire rate of ${names.length} senders over time, in bins of ${time(binNs)}; the maximum is ${rate(most)}.`);
  $("senders-note").textContent = `A column is a bin of ${time(binNs)}; a cell shows the mean rate in it.${several}${pixels}`;
  drawSendersLegend(legend, isLog ? "logarithmic" : "linear", rate(isLog ? least : 0), rate(most));
  const hover = (event) => {
    const place = box.getBoundingClientRect();
    const column = Math.floor(((event.clientX - place.left - left) / side) * columns);
    const row = Math.floor(((event.clientY - place.top - above) / height) * rows);
    if (column < 0 || column >= columns || row < 0 || row >= rows) return tip(null);
    const start = firstNs + column * binNs;
    const named = names.slice(row * block, (row + 1) * block);
    const content = element("div");
    content.append(element("strong", `${by} ${named.length > 1 ? `${named[0]} to ${named.at(-1)}` : named[0]}`));
    content.append(element("p", `${seconds(start)} s to ${seconds(start + binNs)} s`), element("p", rate(sent[row * columns + column])));
    tip(content, event.clientX, event.clientY);
  };
  box.onpointermove = hover;
  box.onpointerleave = () => tip(null);
}

/// The color bar below the heat map.
function drawSendersLegend(box, kind, low, high) {
  const width = Math.min($("senders-card").clientWidth - 36, 420);
  const context = prepare(box, width, 34);
  for (let x = 0; x < width; x += 1) {
    context.fillStyle = `rgb(${SHADES[Math.round((x / (width - 1)) * 255)].join(",")})`;
    context.fillRect(x, 2, 1, 12);
  }
  context.fillStyle = color("muted");
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(low, 0, 25);
  context.textAlign = "right";
  context.fillText(high, width, 25);
  context.textAlign = "center";
  context.fillText(kind, width / 2, 25);
}
drawn.push(drawSenders);

exportable($("senders-card"), "senders", () => $("senders-title").textContent, {
  ...ofPage("senders"),
  drawing: () => {
    const [map, legend] = [new SvgCanvas(), new SvgCanvas()];
    paintSenders(map, legend);
    return [[map.part()], [legend.part()]];
  },
  note: () => $("senders-note").textContent,
});
