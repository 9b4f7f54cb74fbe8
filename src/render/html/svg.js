// Writes drawings as SVG files: from canvases, from charts, and from SVG elements of the page.

/// A canvas and its context in one object, which records drawing calls as SVG. The class has only
/// the members of both that this page uses. Image data become an embedded picture.
class SvgCanvas {
  constructor() {
    this.style = {};
    this.dataset = {};
    [this.width, this.height] = [0, 0];
    this.measuring = pen(document.createElement("canvas"));
    this.font = this.measuring.font;
    this.clear();
  }

  clear() {
    this.parts = [];
    this.path = [];
    /// Number of groups that were opened since each `save`.
    this.open = [0];
    this.saved = [];
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, textAlign: "left", textBaseline: "alphabetic" });
  }

  getContext() {
    return this;
  }

  /// Sets the ratio of pixels to units, and clears the drawing.
  setTransform(ratio) {
    this.ratio = ratio;
    this.clear();
  }

  measureText(text) {
    return this.measuring.measureText(text);
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, textAlign, textBaseline } = this;
    this.saved.push({ fillStyle, strokeStyle, lineWidth, textAlign, textBaseline });
    this.open.push(0);
  }

  restore() {
    this.parts.push("</g>".repeat(this.open.pop()));
    Object.assign(this, this.saved.pop());
  }

  group(attributes) {
    this.parts.push(`<g ${attributes}>`);
    this.open[this.open.length - 1] += 1;
  }

  translate(x, y) {
    this.group(`transform="translate(${x} ${y})"`);
  }

  rotate(angle) {
    this.group(`transform="rotate(${(angle * 180) / Math.PI})"`);
  }

  beginPath() {
    this.path = [];
  }

  moveTo(x, y) {
    this.path.push(`M${x} ${y}`);
  }

  lineTo(x, y) {
    this.path.push(`L${x} ${y}`);
  }

  rect(x, y, width, height) {
    this.path.push(`M${x} ${y}h${width}v${height}h${-width}z`);
  }

  clip() {
    SvgCanvas.clips += 1;
    const id = `clip${SvgCanvas.clips}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path.join("")}"/></clipPath>`);
    this.group(`clip-path="url(#${id})"`);
  }

  stroke() {
    this.parts.push(`<path d="${this.path.join("")}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"/>`);
  }

  fillRect(x, y, width, height) {
    this.parts.push(`<rect x="${+x.toFixed(2)}" y="${+y.toFixed(2)}" width="${+width.toFixed(2)}" height="${+height.toFixed(2)}" fill="${this.fillStyle}"/>`);
  }

  fillText(text, x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    // Some SVG viewers ignore `dominant-baseline`.
    const down = { top: 10, middle: 4, alphabetic: 0 }[this.textBaseline];
    this.parts.push(`<text x="${+x.toFixed(2)}" y="${+(y + down).toFixed(2)}" text-anchor="${anchor}" fill="${this.fillStyle}">${escapeXml(text)}</text>`);
  }

  createImageData(width, height) {
    return new ImageData(width, height);
  }

  putImageData(image, x, y) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").putImageData(image, 0, 0);
    const place = [x, y, image.width, image.height].map((pixels) => +(pixels / this.ratio).toFixed(2));
    this.parts.push(`<image x="${place[0]}" y="${place[1]}" width="${place[2]}" height="${place[3]}" href="${canvas.toDataURL()}" image-rendering="pixelated"/>`);
  }

  /// The drawing as a part of a figure.
  part() {
    const [width, height] = [this.width, this.height].map((pixels) => Math.round(pixels / this.ratio));
    return { width, height, content: this.parts.join("") };
  }
}
SvgCanvas.clips = 0;

function escapeXml(text) {
  return String(text).replace(/[&<>"]/g, (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[character]);
}

/// The drawing of `draw`, as a part of a figure.
function canvasPart(draw) {
  const canvas = new SvgCanvas();
  draw(canvas);
  return canvas.part();
}

/// A chart as a part of a figure.
function chartPart({ width, height, option }) {
  const drawing = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
  drawing.setOption(option);
  const content = drawing.renderToSVGString();
  drawing.dispose();
  return { width, height, content };
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-size"];

/// An SVG element of the page with its computed styles, as a part of a figure.
function elementPart(picture) {
  const { width, height } = picture.viewBox.baseVal;
  const copy = picture.cloneNode(true);
  const [own, copies] = [picture, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  own.forEach((from, at) => {
    const style = getComputedStyle(from);
    for (const name of STYLES) copies[at].setAttribute(name, style.getPropertyValue(name));
    copies[at].removeAttribute("class");
  });
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { width, height, content: new XMLSerializer().serializeToString(copy) };
}

/// A row of color swatches with their texts, as a part of a figure. A swatch is `[color, text]`.
function swatchPart(swatches) {
  return canvasPart((canvas) => {
    const context = prepare(canvas, 900, 22);
    let x = 0;
    for (const [fill, text] of swatches) {
      context.fillStyle = fill;
      context.fillRect(x, 4, 12, 12);
      context.fillStyle = color("muted");
      context.fillText(text, x + 18, 14);
      x += 36 + context.measureText(text).width;
    }
  });
}

const FIGURE_PAD = 18, FIGURE_GAP = 10, NOTE_LINE = 16;

/// The SVG of a figure: a title, rows of parts, and a note below them. A part has `width`,
/// `height`, `content` (SVG), and optionally `name`, its own title.
function figureSvg(title, rows, note) {
  const widthOf = (row) => row.reduce((sum, { width }) => sum + width + FIGURE_GAP, -FIGURE_GAP);
  const width = Math.max(360, ...rows.map(widthOf)) + 2 * FIGURE_PAD;
  const texts = [];
  const drawings = [];
  let y = FIGURE_PAD;
  const lines = (text, size, weight, fill) => wrap(text, (width - 2 * FIGURE_PAD) / (size * (weight > 400 ? 0.62 : 0.55))).forEach((line) => {
    texts.push(`<text x="${FIGURE_PAD}" y="${y + size}" font-size="${size}" font-weight="${weight}" fill="${fill}">${escapeXml(line)}</text>`);
    y += size + 4;
  });
  lines(title, 15, 600, color("text"));
  for (const row of rows) {
    y += FIGURE_GAP;
    const named = row.some(({ name }) => name);
    let x = FIGURE_PAD;
    for (const { width: own, height, content, name } of row) {
      if (name) texts.push(`<text x="${x}" y="${y + 12}" font-size="13" font-weight="600" fill="${color("text")}">${escapeXml(name)}</text>`);
      drawings.push(`<svg x="${x}" y="${y + (named ? 20 : 0)}" width="${own}" height="${height}" viewBox="0 0 ${own} ${height}" font-size="12">${content}</svg>`);
      x += own + FIGURE_GAP;
    }
    y += (named ? 20 : 0) + Math.max(...row.map(({ height }) => height));
  }
  y += note ? FIGURE_GAP : 0;
  if (note) lines(note, 12, 400, color("muted"));
  const height = Math.ceil(y + FIGURE_PAD);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${escapeXml(fontFamily())}"><rect width="${width}" height="${height}" fill="${color("card")}"/>${texts.join("")}${drawings.join("")}</svg>`;
}

/// Wraps a text between words into lines of at most `most` characters.
function wrap(text, most) {
  const found = [];
  for (const word of text.split(/ +/)) {
    if (found.length > 0 && `${found.at(-1)} ${word}`.length <= most) found[found.length - 1] += ` ${word}`;
    else found.push(word);
  }
  return found;
}

/// Draws an SVG to a PNG with two pixels for each unit.
async function pngOf(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
