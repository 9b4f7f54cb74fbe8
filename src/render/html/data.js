// The data of the page: the document, and the traffic by pair and bin that `cells.rs` packs.

const report = JSON.parse(document.getElementById("data-document").textContent);

/// Indices of the columns of sums, in the order of `cells.rs`.
const PACKETS = 0, WIRE = 1, PAYLOAD = 2, MESSAGES = 3, P2P = 4, P2P_BYTES = 5, COLLECTIVE = 6, COLLECTIVE_BYTES = 7;
const SUMS = 8;

/// Inflates the packed numbers of an element; `null` if the element is empty.
async function inflate(element) {
  const text = element.textContent;
  element.remove();
  return text === "" ? null : inflateText(text);
}

/// Inflates packed numbers.
async function inflateText(base64) {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/// Reads columns of LEB128 integers. Integers above 2^53 are rounded.
class Columns {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  next() {
    const data = this.data;
    let byte = data[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127;
    let factor = 128;
    do {
      byte = data[this.at++];
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte >= 128);
    return value;
  }

  column(Kind, length) {
    const values = new Kind(length);
    for (let i = 0; i < length; i += 1) values[i] = this.next();
    return values;
  }

  sums(length) {
    return Array.from({ length: SUMS }, () => this.column(Float64Array, length));
  }
}

/// Unpacks the traffic: `src`, `dst` (ends), `mpi`, coverage and `totals` of each pair; `bin`,
/// `pair` and `sums` of each cell, in the order of time.
function unpack(data) {
  const columns = new Columns(data);
  const [pairs, cells] = columns.column(Float64Array, 2);
  const traffic = {
    pairs,
    cells,
    src: columns.column(Uint32Array, pairs),
    dst: columns.column(Uint32Array, pairs),
    mpi: columns.column(Uint8Array, pairs),
    class: columns.column(Uint8Array, pairs),
    coverage: columns.column(Uint8Array, pairs),
    missingPackets: columns.column(Float64Array, pairs),
    missingMessages: columns.column(Float64Array, pairs),
    totals: columns.sums(pairs),
    bin: columns.column(Float64Array, cells),
    pair: columns.column(Uint32Array, cells),
    sums: columns.sums(cells),
  };
  for (let i = 1; i < cells; i += 1) {
    if (traffic.bin[i] === 0) traffic.pair[i] += traffic.pair[i - 1];
    traffic.bin[i] += traffic.bin[i - 1];
  }
  traffic.bins = cells > 0 ? traffic.bin[cells - 1] + 1 : 0;
  return traffic;
}

const traffic = unpack(await inflate(document.getElementById("data-cells")));

/// Index of the first cell that is in this bin or a later one.
function firstCell(bin) {
  let [low, high] = [0, traffic.cells];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (traffic.bin[middle] < bin) low = middle + 1;
    else high = middle;
  }
  return low;
}

/// Start of a bin in nanoseconds from the first packet, like `--from` and `--to`.
function binStart(bin) {
  return report.first_bin_ns + bin * report.bin_ns;
}

function endpointName(endpoint) {
  const { id, name } = report.endpoints[endpoint];
  return name ?? id;
}

/// The estimates of a sampled capture, by kind and pair.
const estimated = {};
for (const [by, { pairs }] of Object.entries(report.estimates ?? {})) {
  estimated[by] = new Map(pairs.map(([from, to, ...sums]) => [`${from} ${to}`, sums]));
}

/// Marks a pair that a view does not show.
const NOT_SHOWN = 0xffffffff;

/// The nodes and leaf switches: `names`, the group `of` each port, and the groups with traffic inside
/// that the captures do not show. Without leaf switches, there is no `leaf`.
const { groups: GROUPS, clusters: CLUSTERS } = report.rows;
/// Rows and columns of each matrix in sentences.
const NOUNS = {
  rank: ["rank", "ranks"],
  node: ["node", "nodes"],
  leaf: ["leaf switch", "leaf switches"],
  endpoint: ["port", "ports"],
};

/// Whether the messages of a matrix are those of the transport: only ports have messages of all kinds.
const isOfTransport = (by, selection) => by !== "rank" && selection === "all";

/// Rows and columns of a matrix: their labels, and the cell of each pair. A view by rank shows one
/// job or all jobs (`null`); jobs never share a cell.
class View {
  constructor(by, job) {
    const isRank = by === "rank";
    const jobOf = ([, label]) => report.labels[label].job;
    const isShown = (end) => !isRank || job === null || jobOf(end) === job;
    // Labels are sorted as in `ibscope matrix`: by job, then by number, unknown ranks last.
    const groups = GROUPS[by];
    const key = ([endpoint, label]) => (isRank ? label : groups ? groups.of[endpoint] : endpoint);
    const keys = [...new Set(report.ends.filter(isShown).map(key))].sort((a, b) => a - b);
    const place = new Map(keys.map((value, index) => [value, index]));
    this.keys = keys;
    this.by = by;
    this.size = keys.length;
    const named = (text) => ({ text, full: text });
    this.labels = keys.map((value) => (isRank ? report.labels[value] : named(groups ? groups.names[value] : endpointName(value))));
    const placesOf = (own) => new Set((own ?? []).map((value) => place.get(value)));
    /// Places of nodes and leaf switches with several ranks on one node, and with several ports.
    this.withRanksOnOneNode = placesOf(groups?.with_ranks_on_one_node);
    this.withSeveralPorts = placesOf(groups?.with_several_ports);
    // A rank with several ports is placed at its first port.
    this.ports = keys.map(() => Infinity);
    report.ends.filter(isShown).forEach((end) => {
      const at = place.get(key(end));
      this.ports[at] = Math.min(this.ports[at], end[0]);
    });
    const of = report.ends.map((end) => (isShown(end) ? place.get(key(end)) : null));
    const cells = new Map();
    this.cellOf = new Uint32Array(traffic.pairs).fill(NOT_SHOWN);
    this.rows = [];
    this.columns = [];
    this.coverage = [];
    for (let pair = 0; pair < traffic.pairs; pair += 1) {
      const [row, column] = [of[traffic.src[pair]], of[traffic.dst[pair]]];
      if (row === null || column === null) continue;
      const at = row * this.size + column;
      let cell = cells.get(at);
      if (cell === undefined) {
        cell = this.rows.length;
        cells.set(at, cell);
        this.rows.push(row);
        this.columns.push(column);
        this.coverage.push({ state: 0, packets: 0, messages: 0 });
      }
      this.cellOf[pair] = cell;
      const coverage = this.coverage[cell];
      coverage.state = Math.max(coverage.state, traffic.coverage[pair]);
      coverage.packets += traffic.missingPackets[pair];
      coverage.messages += traffic.missingMessages[pair];
    }
    this.cells = cells;
    this.count = this.rows.length;
    this.nodes = isRank ? this.onNodes() : [];
    // Marks distinguish pairs; if all pairs have the same state, no pair is marked.
    this.marked = new Set(this.coverage.map(({ state }) => state)).size > 1;
  }

  /// Groups of places whose ranks are of the same job and on the same node.
  onNodes() {
    const nodes = new Map();
    this.labels.forEach(({ job, nodes: own }, at) => own.forEach((node) => {
      const of = `${job} ${node}`;
      nodes.set(of, [...(nodes.get(of) ?? []), at]);
    }));
    return [...nodes.values()].filter((ranks) => ranks.length > 1);
  }

  /// Whether both ranks are of the same job and on the same node, so that their messages are not on
  /// the wire; for a node or leaf switch and itself, whether it has such ranks.
  isOnOneNode(row, column) {
    return row === column ? this.withRanksOnOneNode.has(row) : this.nodes.some((ranks) => ranks.includes(row) && ranks.includes(column));
  }

  /// Whether a pair without captured packets may have sent some.
  mayMiss(row, column) {
    return report.is_partial && (row !== column || this.withSeveralPorts.has(row));
  }

  /// The name of a row or column in the csv of `ibscope matrix`.
  csvName(at) {
    if (this.by === "rank") return this.labels[at].csv;
    return GROUPS[this.by] ? this.labels[at].text : report.endpoints[this.keys[at]].id;
  }

  /// Coverage symbol before the number of a cell.
  mark(cell) {
    return this.marked ? report.coverage[this.coverage[cell].state].symbol : "";
  }

  /// Index of the endpoint at which a label is placed, to sort by node and leaf.
  group(label) {
    return this.ports[label];
  }

  cell(row, column) {
    return this.cells.get(row * this.size + column);
  }

  /// The estimates of a pair of a sampled capture, by unit: estimate and ends of the interval,
  /// "too few", or `null` if it is not known.
  estimates(row, column, selection) {
    const found = estimated[this.by]?.get(`${this.keys[row]} ${this.keys[column]}`);
    if (found === undefined) return {};
    const [p2p, collective, all, payload, wire, packets] = found;
    return { messages: { p2p, collective, all }[selection], "mpi-bytes": null, "payload-bytes": payload, "wire-bytes": wire, packets };
  }

  /// Sums of each cell over the bins of a window (`null`: over the whole run), whether an MPI library
  /// was detected in it, its worst coverage, and a bit for each of its classes.
  sum(window) {
    const sums = Array.from({ length: SUMS }, () => new Float64Array(this.count));
    const mpi = new Uint8Array(this.count);
    const coverage = new Uint8Array(this.count);
    const classes = new Uint16Array(this.count);
    const add = (from, to, pairOf, values) => {
      for (let i = from; i < to; i += 1) {
        const pair = pairOf(i);
        if (values[PACKETS][i] === 0) continue;
        const cell = this.cellOf[pair];
        if (cell === NOT_SHOWN) continue;
        mpi[cell] |= traffic.mpi[pair];
        coverage[cell] = Math.max(coverage[cell], traffic.coverage[pair]);
        classes[cell] |= 1 << traffic.class[pair];
        for (let k = 0; k < SUMS; k += 1) sums[k][cell] += values[k][i];
      }
    };
    if (window === null) add(0, traffic.pairs, (i) => i, traffic.totals);
    else add(firstCell(window[0]), firstCell(window[1]), (i) => traffic.pair[i], traffic.sums);
    return { sums, mpi, coverage, classes };
  }
}

/// Units of the matrix; the keys are those of `ibscope matrix --unit`.
const UNITS = {
  messages: { name: "messages", isBytes: false },
  "mpi-bytes": { name: "MPI bytes", isBytes: true },
  "payload-bytes": { name: "payload bytes", isBytes: true },
  "wire-bytes": { name: "wire bytes", isBytes: true },
  packets: { name: "packets", isBytes: false },
};

/// Messages and MPI bytes of a selection.
function mpiOf(selection, at, sums) {
  const point = selection !== "collective";
  const collective = selection !== "p2p";
  const add = (a, b) => (point ? sums[a][at] : 0) + (collective ? sums[b][at] : 0);
  return [add(P2P, COLLECTIVE), add(P2P_BYTES, COLLECTIVE_BYTES)];
}

/// The columns of `ibscope matrix --format csv` for one cell; MPI bytes are `null` if no library
/// was detected.
function values(by, selection, { sums, mpi }, at) {
  const [messages, mpiBytes] = mpiOf(selection, at, sums);
  return {
    messages: isOfTransport(by, selection) ? sums[MESSAGES][at] : messages,
    "mpi-bytes": mpi[at] ? mpiBytes : null,
    "payload-bytes": sums[PAYLOAD][at],
    "wire-bytes": sums[WIRE][at],
    packets: sums[PACKETS][at],
  };
}

/// The values of a unit for every cell; unknown MPI bytes are 0.
function column(by, selection, unit, { sums }, length) {
  const fixed = { "payload-bytes": PAYLOAD, "wire-bytes": WIRE, packets: PACKETS };
  if (unit in fixed) return sums[fixed[unit]];
  if (unit === "messages" && isOfTransport(by, selection)) return sums[MESSAGES];
  const index = unit === "messages" ? 0 : 1;
  const out = new Float64Array(length);
  for (let i = 0; i < length; i += 1) out[i] = mpiOf(selection, i, sums)[index];
  return out;
}
