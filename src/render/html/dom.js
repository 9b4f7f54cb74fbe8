// Elements of the page. Text always becomes a text node, never markup.

const $ = (id) => document.getElementById(id);

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/// Fills a table: header, rows of texts, and a caption for screen readers.
function fill(table, caption, header, rows) {
  const head = element("thead");
  const line = element("tr");
  // A header without text names nothing.
  header.forEach((text) => line.append(text === "" ? element("td") : element("th", text, { scope: "col" })));
  head.append(line);
  const body = element("tbody");
  for (const row of rows) {
    const tr = element("tr");
    row.forEach((cell) => {
      const td = element("td");
      td.append(cell ?? "–");
      tr.append(td);
    });
    body.append(tr);
  }
  table.replaceChildren(element("caption", caption, { class: "visually-hidden" }), head, body);
}

/// A tile: a label, a value, and a line below.
function tile({ label, value, below, warn }) {
  const box = element("div", null, { class: warn ? "tile warn" : "tile" });
  box.append(element("dt", label), element("dd", value, { class: "value" }), element("dd", below, { class: "below" }));
  return box;
}

/// Fills a table body with lines of a label and a text.
function lines(body, rows) {
  const line = ([label, text]) => {
    const tr = element("tr");
    tr.append(label === "" ? element("td") : element("th", label, { scope: "row" }), element("td", text));
    return tr;
  };
  body.replaceChildren(...rows.map(line));
}

/// Fills a selection list with pairs of value and text.
function choices(select, options, value, changed) {
  select.replaceChildren(...options.map(([key, text]) => element("option", text, { value: key })));
  select.value = value;
  select.onchange = () => changed(select.value);
}

/// A color of the style sheet.
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/// The font of the page, without double quotes, because charts write it between double quotes into
/// SVG.
function fontFamily() {
  return getComputedStyle(document.body).fontFamily.replaceAll('"', "'");
}

/// The drawing context of a canvas. It is kept in main memory, so that it can be printed too.
function pen(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.font = `12px ${fontFamily()}`;
  return context;
}

/// Resizes a canvas to a size in CSS pixels, sharp on this screen; returns its context.
function prepare(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = pen(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/// Functions that draw in the colors of the style sheet; all are called again when these change.
const drawn = [];
function redraw() {
  SHADES.forEach((_, index) => (SHADES[index] = shade(index / 255)));
  drawn.forEach((draw) => draw());
}

/// Shows the tooltip beside a point of the page, or hides it.
function tip(content, x, y) {
  const box = $("tip");
  box.hidden = content === null;
  if (content === null) return;
  box.replaceChildren(content);
  const { width, height } = box.getBoundingClientRect();
  const left = x + 18 + width > innerWidth ? x - 18 - width : x + 18;
  const top = y + 18 + height > innerHeight ? y - 18 - height : y + 18;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

/// The color of a share from 0 to 1, as `[red, green, blue]`, in the color scale of the figures.
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const STOPS = report.colors.scale.map(channels);

/// Whether the page is dark: as the system, until the button overrides it.
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === undefined ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}

function shade(share) {
  const [low, high] = report.colors.parts[isDark() ? "dark" : "light"];
  const position = (low + Math.min(Math.max(share, 0), 1) * (high - low)) * (STOPS.length - 1);
  const below = Math.min(Math.floor(position), STOPS.length - 2);
  const part = position - below;
  return STOPS[below].map((from, index) => Math.round(from + part * (STOPS[below + 1][index] - from)));
}
/// Colors that distinguish categories.
const APART = report.colors.apart;
const SHADES = Array.from({ length: 256 }, (_, index) => shade(index / 255));
