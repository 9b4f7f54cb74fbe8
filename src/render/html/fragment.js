// The fragment of the address holds the state, so that a reload or a link shows the same view:
// `#matrix?unit=packets&window=3-7&table=rank-table.0.d.node1`. Values that equal those of a new
// page are left out.

const initial = { ...state };
/// The values of the state that are words, and whether a word is possible.
const WORDS = {
  by: (word) => MATRICES.includes(word),
  unit: (word) => Object.hasOwn(UNITS, word),
  selection: (word) => ["p2p", "collective", "all"].includes(word),
  scaling: (word) => ["auto", "linear", "log"].includes(word),
  order: (word) => ["number", "node", "traffic", "cluster"].includes(word),
};

/// Section and state in the fragment.
function fragment() {
  const [section, query] = location.hash.slice(1).split("?");
  return { section, values: new URLSearchParams(query ?? "") };
}

/// Takes the state from the fragment; ignores what this page does not have.
function readFragment() {
  const { values } = fragment();
  const numbers = (name) => (values.get(name) ?? "").split("-").map(Number);
  for (const [key, isPossible] of Object.entries(WORDS)) {
    const word = values.get(key);
    state[key] = word !== null && isPossible(word) ? word : initial[key];
  }
  const job = Number(values.get("job"));
  state.job = values.has("job") && JOBS.some((one) => one.job === job) ? job : initial.job;
  const [from, to] = numbers("window");
  const isWindow = Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from < to && to <= traffic.bins;
  state.window = values.has("window") && hasTimeline && isWindow ? [from, to] : null;
  const own = view();
  readTables(values.getAll("table"));
  const [row, column] = numbers("pair");
  state.pinned = (values.has("pair") && row < own.size && column < own.size ? own.cell(row, column) : null) ?? null;
}

/// Writes the state to the fragment, without a new entry in the history.
function writeFragment() {
  const values = new URLSearchParams();
  for (const key of Object.keys(WORDS)) if (state[key] !== initial[key]) values.set(key, state[key]);
  if (state.job !== initial.job) values.set("job", state.job);
  if (state.window !== null) values.set("window", state.window.join("-"));
  if (state.pinned !== null) values.set("pair", `${view().rows[state.pinned]}-${view().columns[state.pinned]}`);
  tableWords().forEach((word) => values.append("table", word));
  const text = values.toString();
  const { section } = fragment();
  const next = text === "" ? (section === "" ? "" : `#${section}`) : `#${section}?${text}`;
  if (next !== location.hash) history.replaceState(null, "", next === "" ? location.pathname + location.search : next);
}

/// Scrolls to the section of the fragment: the browser knows no section with a state.
function scrollToSection() {
  const { section, values } = fragment();
  if (section !== "" && values.size > 0) document.getElementById(section)?.scrollIntoView();
}
