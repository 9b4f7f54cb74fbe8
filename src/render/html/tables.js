// Tables: sort by a column, and filter rows. The fragment of the address keeps the state.

/// Minimum number of rows of a table with a filter field.
const MIN_FILTERED = 8;
/// Number of rows that a table shows at first.
const MAX_ROWS = 200;

/// The state of the tables by id: `column`, `down`, `filter`.
const tableStates = {};
const tableState = (id) => (tableStates[id] ??= { column: null, down: false, filter: "" });

/// A number as a cell: sorted by its value, shown as text.
function number(value, show = group) {
  return value === null || value === undefined ? "–" : { value, text: show(value) };
}

const cellText = (cell) => (cell === null || cell === undefined ? "–" : cell instanceof Node ? cell.textContent : typeof cell === "object" ? cell.text : String(cell));

/// Compares two cells: numbers by value, then texts, with the numbers in them compared by value.
function compareCells(a, b) {
  const [x, y] = [a, b].map((cell) => cell?.value);
  if (x !== undefined && y !== undefined) return x - y;
  if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
  return cellText(a).localeCompare(cellText(b), "en", { numeric: true });
}

/// Whether a row contains all words of a filter. `name:word` searches only the columns whose
/// heading begins with `name`.
function hasWords(row, header, filter) {
  const texts = row.map((cell) => cellText(cell).toLowerCase());
  return filter.toLowerCase().split(/\s+/).filter((word) => word !== "").every((word) => {
    const [, name, rest] = /^([^:]+):(.+)$/.exec(word) ?? [];
    const columns = name === undefined ? [] : header.flatMap((text, at) => (text.toLowerCase().startsWith(name) ? [at] : []));
    return columns.length > 0 ? columns.some((at) => texts[at].includes(rest)) : texts.some((text) => text.includes(word));
  });
}

/// Fills a table that a person can sort and filter. Cells are texts, elements, or results of
/// `number`; a row may have `attributes`. Shows only the first `MAX_ROWS` rows, with a button for
/// the others, because the layout of thousands of rows takes a second.
function fillList(table, caption, header, rows) {
  const state = tableState(table.id);
  let all = false;
  const draw = () => {
    const chosen = rows.filter((row) => hasWords(row, header, state.filter));
    if (state.column !== null && state.column < header.length) {
      chosen.sort((a, b) => compareCells(a[state.column], b[state.column]) * (state.down ? -1 : 1));
    }
    const shownRows = all ? chosen : chosen.slice(0, MAX_ROWS);
    fill(table, caption, header, shownRows.map((row) => row.map((cell) => (cell instanceof Node ? cell : cellText(cell)))));
    [...table.tBodies[0].rows].forEach((tr, at) => {
      for (const [key, value] of Object.entries(shownRows[at].attributes ?? {})) tr.setAttribute(key, value);
    });
    [...table.tHead.rows[0].cells].forEach((cell, at) => heading(cell, at, state, draw));
    more.hidden = shownRows.length === chosen.length;
    more.textContent = `Show all ${group(chosen.length)} rows`;
    found.textContent = state.filter.trim() === "" ? "" : `${group(chosen.length)} of ${group(rows.length)} rows`;
  };
  const { field, found, more } = tableParts(table, caption);
  field.parentElement.hidden = rows.length < MIN_FILTERED && state.filter === "";
  field.value = state.filter;
  field.oninput = () => {
    state.filter = field.value;
    draw();
    writeFragment();
  };
  more.onclick = () => {
    all = true;
    draw();
  };
  draw();
}

/// Makes a heading a button that sorts the rows: ascending, descending, original order.
function heading(cell, at, state, draw) {
  if (cell.textContent === "") return;
  const isSorted = state.column === at;
  const button = element("button", `${cell.textContent}${isSorted ? (state.down ? " ▾" : " ▴") : ""}`, { type: "button", class: "sort" });
  if (isSorted) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
  button.addEventListener("click", () => {
    const { id } = cell.closest("table");
    Object.assign(state, !isSorted ? { column: at, down: false } : state.down ? { column: null, down: false } : { down: true });
    draw();
    writeFragment();
    document.querySelector(`#${id} thead tr`).cells[at].querySelector("button").focus();
  });
  cell.replaceChildren(button);
}

/// The filter field above a table and the button below it. Creates both on the first call.
function tableParts(table, caption) {
  const box = table.parentElement.classList.contains("scroll") ? table.parentElement : table;
  if (box.previousElementSibling?.dataset.of !== table.id) {
    const label = element("label", null, { class: "filter", "data-of": table.id });
    const field = element("input", null, { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows: ${caption}` });
    label.append(field, element("span", null, { role: "status" }));
    box.before(label);
    box.after(element("button", null, { type: "button", class: "more" }));
  }
  const label = box.previousElementSibling;
  return { field: label.firstChild, found: label.lastChild, more: box.nextElementSibling };
}

/// The table states that differ from those of a new page, as `id.column.d.filter`.
function tableWords() {
  const changed = Object.entries(tableStates).filter(([, { column, filter }]) => column !== null || filter !== "");
  return changed.map(([id, { column, down, filter }]) => `${id}.${column ?? ""}.${down ? "d" : ""}.${filter}`);
}

/// Restores the table states from the fragment. Skips ids that are not tables of this page.
function readTables(words) {
  for (const word of words) {
    const [, id, column, down, filter] = /^([a-z-]+)\.(\d*)\.(d?)\.(.*)$/.exec(word) ?? [];
    if (id === undefined || document.getElementById(id)?.tagName !== "TABLE") continue;
    tableStates[id] = { column: column === "" ? null : Number(column), down: down === "d", filter };
  }
}
