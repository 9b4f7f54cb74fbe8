// Exports of a view: the csv of the command that prints the same numbers, the command itself for
// the clipboard, and the drawing as SVG or PNG.

/// The command line of `ibscope name` with the inputs and options of this page.
function commandOf(name, ...words) {
  const { inputs, options, scope } = report.source;
  return spaced(["ibscope", name, inputs, options, scope, ...words]);
}

/// A command for the selected window. With captures, a command that reads only a window would
/// detect ranks and classes in that window alone, so the line first makes a profile, as the page
/// does.
function commandOfWindow(name, window, ...words) {
  const { inputs, options, scope, window: given, is_profile: isProfile } = report.source;
  if (window === null) return commandOf(name, ...words, given);
  const times = ["--from", seconds(binStart(window[0])), "--to", seconds(binStart(window[1]))];
  if (isProfile) return commandOf(name, ...words, ...times);
  const analyze = ["ibscope analyze", inputs, options, given, "-o report.ibp"];
  return `${spaced(analyze)} && ${spaced(["ibscope", name, "report.ibp", scope, ...words, ...times])}`;
}

const spaced = (words) => words.filter((word) => word !== "").join(" ");

/// A csv field, quoted if necessary.
function field(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/// The output of a command, from the page. With `value`, keeps only the rows that have this value
/// in the first column, as `--interval` of the command does.
async function exportedCsv(name, value) {
  const text = new TextDecoder().decode(await inflateText(report.exports[name].csv));
  if (value === undefined) return text;
  const [header, ...rows] = text.split("\n");
  return [header, ...rows.filter((row) => row.startsWith(`${value},`)), ""].join("\n");
}

/// The `command`, `csv` and `hasCsv` of a view whose output is in the page. `interval` returns the
/// value of `--interval`, if the view shows one interval.
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

/// Copies a text to the clipboard. Browsers without a clipboard API for local files copy a
/// selection.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", text);
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const TOO_LARGE = "The output is not in this page: run the command.";

/// Adds the export buttons of a view below its card. `name` is part of the file names. The members
/// of `of` are optional: the functions `command` (without the format), `csv`, `hasCsv`, `drawing`
/// (the rows of `figureSvg`) and `note` (the text below the drawing), and the text `label`.
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
