// Exports of a view: the csv of the command that makes the same numbers, that command for the
// clipboard, and the drawing as SVG or PNG.

/// Words of a command line with the inputs of this page.
function commandOf(name, ...words) {
  const { inputs, options, scope } = report.source;
  return spaced(["ibscope", name, inputs, options, scope, ...words]);
}

/// A command for the selected window. With captures, a command that reads only a window detects ranks
/// and classes in that window alone: the numbers of the page are those of the profile.
function commandOfWindow(name, window, ...words) {
  const { inputs, options, scope, window: given, is_profile: isProfile } = report.source;
  if (window === null) return commandOf(name, ...words, given);
  const times = ["--from", seconds(binStart(window[0])), "--to", seconds(binStart(window[1]))];
  if (isProfile) return commandOf(name, ...words, ...times);
  const analyze = ["ibscope analyze", inputs, options, given, "-o report.ibp"];
  return `${spaced(analyze)} && ${spaced(["ibscope", name, "report.ibp", scope, ...words, ...times])}`;
}

const spaced = (words) => words.filter((word) => word !== "").join(" ");

/// A field of csv.
function field(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/// The output of a command that is in the page; `null` if it is left out. `column` and `value` keep
/// the rows that have this value in the first column, as an option of the command does.
async function exportedCsv(name, value) {
  const text = new TextDecoder().decode(await inflateText(report.exports[name].csv));
  if (value === undefined) return text;
  const [header, ...rows] = text.split("\n");
  return [header, ...rows.filter((row) => row.startsWith(`${value},`)), ""].join("\n");
}

/// A view whose csv is in the page. `more` returns the option for the rows of one interval.
function ofPage(name, interval) {
  if (report.exports[name] === undefined) return {};
  return {
    command: () => [report.exports[name].command, ...(interval ? ["--interval", interval()] : [])].join(" "),
    csv: () => exportedCsv(name, interval?.()),
    hasCsv: () => report.exports[name].csv !== null,
  };
}

function save(blob, name) {
  const link = element("a", null, { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/// Copies a text. Browsers without a clipboard for local files copy the selection.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", text);
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const TOO_LARGE = "The output is not in this page: run the command.";

/// Adds the exports of a view below its card. `name` is part of the file names; `of` has `command`
/// (without the format), `csv` and `hasCsv`, and `drawing`, the rows of parts of `figureSvg`, all of
/// them functions; `note` and `label` are texts.
function exportable(card, name, title, of) {
  const file = `${report.name.replace(/\.(ibp|pcap|pcapng)(\.\w+)?$/, "")}-${name}`;
  const bar = element("div", null, { class: "export", role: "group", "aria-label": `Export: ${name}`, "data-view": name });
  const said = element("span", null, { role: "status" });
  const add = (kind, text, action) => {
    const button = element("button", text, { type: "button", "data-export": kind });
    button.addEventListener("click", async () => {
      said.textContent = "";
      try {
        said.textContent = (await action()) ?? "";
      } catch (error) {
        said.textContent = `failed: ${error.message}`;
      }
    });
    bar.append(button);
    return button;
  };
  bar.append(element("span", of.label ? `Export ${of.label}` : "Export"));
  const svg = () => figureSvg(`${title()} – ${report.name}`, of.drawing(), of.note?.() ?? "");
  if (of.command) {
    const button = add("csv", "CSV", async () => save(new Blob([await of.csv()], { type: "text/csv" }), `${file}.csv`));
    const state = () => {
      button.disabled = !of.hasCsv();
      button.title = of.hasCsv() ? "" : TOO_LARGE;
    };
    drawn.push(state);
  }
  if (of.drawing) {
    add("png", "PNG", async () => save(await pngOf(svg()), `${file}.png`));
    add("svg", "SVG", async () => save(new Blob([svg()], { type: "image/svg+xml" }), `${file}.svg`));
  }
  if (of.command) {
    const button = add("copy", "Copy command", async () => {
      await copy(`${of.command()} --format csv`);
      return "copied";
    });
    drawn.push(() => (button.title = `${of.command()} --format csv`));
  }
  bar.append(said);
  card.append(bar);
}
