// Fills all sections of the page and redraws them when size or theme change.

function overview() {
  document.title = `${report.name} – ibscope report`;
  $("title").textContent = report.name;
  $("subtitle").textContent = `ibscope report · ${report.start.replace("T", " ").replace(/\.\d+Z/, " UTC")} · ${time(report.span_ns)}`;
  $("tiles").replaceChildren(...report.summary.map(tile));
  $("notes").hidden = report.notes.length === 0;
  $("notes").replaceChildren(...report.notes.map((note) => element("li", note)));
  lines($("lines"), report.lines);
}

/// The first findings, and the checks that were not made.
function findings() {
  const { diagnosis } = report;
  $("findings").hidden = !diagnosis;
  if (!diagnosis) return;
  const { top, count, unchecked } = diagnosis;
  const counted = (number, one) => `${group(number)} ${one}${number === 1 ? "" : "s"}`;
  const shown = count > top.length ? `, the first ${top.length}` : "";
  const which = unchecked.length === 0 ? "all checks" : "all checks that were made";
  $("findings-title").textContent = count === 0 ? `No findings: ${which} passed` : `${counted(count, "finding")}, most severe first${shown}`;
  $("findings-list").replaceChildren(...top.map((finding) => {
    const item = element("li");
    item.append(element("strong", `${finding.severity}: ${finding.finding}, ${finding.subject}`), ...[finding.sentence, finding.numbers, finding.advice].filter((text) => text !== "").map((text) => element("p", text)));
    return item;
  }));
  $("findings-list").hidden = count === 0;
  $("findings-more").hidden = count === 0;
  $("unchecked").hidden = unchecked.length === 0;
  $("unchecked-title").textContent = `${counted(unchecked.length, "check")} not made`;
  $("unchecked-list").replaceChildren(...unchecked.map((reason) => element("li", reason)));
}

function sections() {
  $("collectives").hidden = report.collectives.length === 0 && (report.lanes.operations ?? []).length === 0;
  $("collective-sums").hidden = report.collectives.length === 0;
  const named = report.collectives.some((row) => row.job !== null);
  const rows = report.collectives.map((row) => [...(named ? [row.job ?? "no job"] : []), row.operation, number(row.pairs), number(row.messages), number(row.mpi_bytes, bytes), number(row.messages > 0 ? row.mpi_bytes / row.messages : 0, bytes)]);
  fillList($("collective-table"), "Messages of collective operations on the wire", [...(named ? ["job"] : []), "operation", "pairs", "messages", "MPI bytes", "bytes per message"], rows);
  const { totals, worst, connections } = report.health;
  lines($("health-totals"), totals);
  $("worst-title").textContent = worst.length === 0 ? "No connection has findings" : `The worst ${worst.length} of ${group(connections)} connections with findings`;
  $("worst").replaceChildren(...worst.map(([who, findings]) => {
    const item = element("li");
    item.append(element("strong", who));
    const list = element("ul");
    list.append(...findings.map((finding) => element("li", finding)));
    item.append(list);
    return item;
  }));
  $("ranks").hidden = report.ranks.length === 0;
  fillList($("rank-table"), "Node of each rank, and the evidence", report.rank_columns, report.ranks);
  lines($("made-lines"), report.made);
  const input = (row) => [row.name, number(row.bytes, bytes), row.format, number(row.records), row.times[0], row.times[1], row.xxh3_128, row.clock];
  fillList($("inputs"), "Captures", ["capture", "length", "format", "records", "first", "last", "XXH3-128", "clock"], report.inputs.map(input));
}

/// Adds the exports of views that no other file of the script draws.
function exports() {
  exportable($("findings"), "findings", () => "Findings", ofPage("findings"));
  exportable($("collective-sums"), "collectives", () => "Messages of collective operations", ofPage("collectives"));
  exportable($("worst-card"), "health", () => "Health", ofPage("health"));
  exportable($("rank-table").closest(".card"), "ranks", () => "Ranks", ofPage("ranks"));
}

function navigation() {
  const shownSections = [...document.querySelectorAll("main > section")].filter((section) => !section.hidden);
  $("nav").replaceChildren(...shownSections.map((section) => element("a", section.dataset.nav, { href: `#${section.id}` })));
}

function controls() {
  const both = () => {
    drawTimeline();
    update();
  };
  const set = (key) => (value) => {
    state[key] = value;
    if (key === "by" || key === "job") state.pinned = null;
    arrange();
    both();
  };
  const arrange = () => {
    choices($("by"), MATRICES.map((by) => [by, NOUNS[by][1]]), state.by, set("by"));
    $("job-choice").hidden = JOBS.length === 0 || state.by !== "rank";
    choices($("job"), [["", "all"], ...JOBS.map(({ job, text }) => [String(job), text])], state.job === null ? "" : String(state.job), (value) => set("job")(value === "" ? null : Number(value)));
    choices($("unit"), Object.entries(UNITS).map(([key, { name }]) => [key, name]), state.unit, set("unit"));
    choices($("selection"), [["p2p", "point-to-point"], ["collective", "collective"], ["all", "all"]], state.selection, set("selection"));
    // The selection does not apply to payload bytes, wire bytes and packets.
    $("selection").disabled = !isOfMpi();
    choices($("scaling"), [["auto", "automatic"], ["linear", "linear"], ["log", "logarithmic"]], state.scaling, set("scaling"));
    const leaves = report.endpoints.some(({ leaf }) => leaf);
    choices($("order"), [["number", state.by === "rank" ? "by rank" : "by address"], ["node", leaves ? "by leaf and node" : "by node"], ["traffic", "by traffic"], ...(CLUSTERS[state.by] ? [["cluster", "by cluster"]] : [])], state.order, set("order"));
  };
  arrange();
  $("zoom-in").addEventListener("click", () => heat.zoom(0.6));
  $("zoom-out").addEventListener("click", () => heat.zoom(1 / 0.6));
  $("zoom-all").addEventListener("click", () => heat.all());
}

/// Light or dark theme: follows the system until the button overrides it.
function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const showName = () => ($("theme").textContent = isDark() ? "Light" : "Dark");
  const change = () => {
    showName();
    redraw();
  };
  $("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    change();
  });
  dark.addEventListener("change", change);
  showName();
  let before;
  // Print with the light theme and the width of the paper.
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    root.dataset.print = "";
    redraw();
  });
  addEventListener("afterprint", () => {
    if (before === undefined) delete root.dataset.theme;
    else root.dataset.theme = before;
    delete root.dataset.print;
    redraw();
  });
}

readFragment();
overview();
findings();
sections();
latencyTable();
theme();
controls();
exports();
drawn.push(drawGraph);
redraw();
navigation();
if (hasTimeline) listenToBrush();
scrollToSection();
addEventListener("hashchange", () => {
  // A link of the navigation names a section only, and the state stays. Another address has its own.
  if (fragment().values.size === 0) writeFragment();
  else location.reload();
});
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(redraw, 120);
});
// Milliseconds from the start of loading until the page is ready; tests wait for it.
document.documentElement.dataset.ready = performance.now().toFixed(0);
