// The communication graph: ports on a circle, grouped by leaf switch if known, and the payload
// between them.

const MAX_NODES = 64, MAX_EDGES = 300;

/// Sums by pair of ports (or leaves), with both directions in one entry.
function edgesOf(group) {
  const sums = new Map();
  for (let pair = 0; pair < traffic.pairs; pair += 1) {
    const [a, b] = [group(report.ends[traffic.src[pair]][0]), group(report.ends[traffic.dst[pair]][0])];
    const key = a < b ? `${a} ${b}` : `${b} ${a}`;
    const edge = sums.get(key) ?? { ends: a < b ? [a, b] : [b, a], sent: [0, 0] };
    edge.sent[a <= b ? 0 : 1] += traffic.totals[PAYLOAD][pair];
    sums.set(key, edge);
  }
  const total = (edge) => edge.sent[0] + edge.sent[1];
  return [...sums.values()].filter((edge) => edge.ends[0] !== edge.ends[1] && total(edge) > 0).sort((x, y) => total(y) - total(x));
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawGraph() {
  const leaves = [...new Set(report.endpoints.map(({ leaf }) => leaf ?? ""))].sort();
  const known = leaves.some((leaf) => leaf !== "");
  const leafOf = report.endpoints.map(({ leaf }) => leaves.indexOf(leaf ?? ""));
  const many = report.endpoints.length > MAX_NODES;
  const byLeaf = many && known && leaves.length > 1 && leaves.length <= MAX_NODES;
  // If there are too many ports and no leaf is known, group neighbors by address.
  const block = many && !byLeaf ? Math.ceil(report.endpoints.length / MAX_NODES) : 1;
  const edges = edgesOf(byLeaf ? (endpoint) => leafOf[endpoint] : (endpoint) => Math.floor(endpoint / block));
  $("graph").hidden = edges.length === 0;
  if (edges.length === 0) return;
  const shownEdges = edges.slice(0, MAX_EDGES);
  const withLeaves = known && !many;
  const nodes = [...new Set(edges.flatMap(({ ends }) => ends))];
  // Ports of the same leaf are adjacent.
  nodes.sort((a, b) => (withLeaves ? leafOf[a] - leafOf[b] : 0) || a - b);
  const name = (node) => {
    if (byLeaf) return leaves[node] || "no leaf known";
    const last = Math.min((node + 1) * block, report.endpoints.length) - 1;
    return block === 1 ? endpointName(node) : `${endpointName(node * block)} … ${endpointName(last)}`;
  };
  const place = new Map(nodes.map((node, at) => [node, at]));
  const radius = Math.min(250, 90 + 14 * nodes.length);
  const [width, height] = [760, 2 * radius + (withLeaves ? 190 : 130)];
  const center = [width / 2, height / 2];
  const gaps = withLeaves ? new Set(nodes.map((node) => leafOf[node])).size : 0;
  const turn = (2 * Math.PI) / (nodes.length + (gaps > 1 ? gaps * 0.8 : 0));
  let before = null;
  let angle = -Math.PI / 2 - (nodes.length === 2 ? Math.PI / 2 : 0);
  const angles = nodes.map((node) => {
    if (gaps > 1 && before !== null && leafOf[node] !== before) angle += turn * 0.8;
    before = leafOf[node];
    const own = angle;
    angle += turn;
    return own;
  });
  const point = (own, far) => [center[0] + far * Math.cos(own), center[1] + far * Math.sin(own)];
  const most = edges[0].sent[0] + edges[0].sent[1];
  // If there are many edges, draw them thinner.
  const fine = Math.min(1, (16 / shownEdges.length) ** 0.5);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "graph" });
  const heaviest = edges.slice(0, 3).map(({ ends, sent }) => `${name(ends[0])} and ${name(ends[1])} ${bytes(sent[0] + sent[1])}`).join("; ");
  picture.append(svg("title", {}, `Communication graph of ${nodes.length} ${byLeaf ? "leaf switches" : block > 1 ? "groups of ports" : "ports"}; most payload between ${heaviest}`));
  const highlight = (node) => picture.querySelectorAll(".edge").forEach((line) => line.classList.toggle("faded", node !== null && !line.dataset.ends.split(" ").includes(String(node))));
  shownEdges.slice().reverse().forEach(({ ends, sent }) => {
    const at = ends.map((end) => place.get(end));
    const [[ax, ay], [bx, by]] = at.map((index) => point(angles[index], radius));
    const sum = sent[0] + sent[1];
    const share = sum / most;
    const bend = 0.25;
    const [mx, my] = [(ax + bx) / 2 + (center[0] - (ax + bx) / 2) * bend, (ay + by) / 2 + (center[1] - (ay + by) / 2) * bend];
    const line = svg("path", {
      d: `M ${ax} ${ay} Q ${mx} ${my} ${bx} ${by}`, class: "edge", "stroke-width": ((0.8 + 9 * Math.sqrt(share)) * Math.max(fine, 0.12)).toFixed(2),
      "stroke-opacity": ((0.25 + 0.55 * Math.sqrt(share)) * Math.max(fine, 0.5)).toFixed(2), "data-ends": ends.join(" "),
    });
    line.addEventListener("pointermove", (event) => {
      const box = element("div");
      box.append(element("strong", `${name(ends[0])} – ${name(ends[1])}`));
      box.append(element("p", `${name(ends[0])} → ${name(ends[1])}: ${bytes(sent[0])}`), element("p", `${name(ends[1])} → ${name(ends[0])}: ${bytes(sent[1])}`), element("p", "payload, whole capture"));
      tip(box, event.clientX, event.clientY);
    });
    line.addEventListener("pointerleave", () => tip(null));
    picture.append(line);
  });
  if (withLeaves) drawLeaves(picture, nodes, angles, leafOf, leaves, point, radius, turn);
  nodes.forEach((node, at) => {
    const [x, y] = point(angles[at], radius);
    const [tx, ty] = point(angles[at], radius + (withLeaves ? 34 : 14));
    const mark = svg("circle", { cx: x, cy: y, r: nodes.length > 40 ? 4 : 7, class: "node" });
    mark.addEventListener("pointerenter", () => highlight(node));
    mark.addEventListener("pointerleave", () => highlight(null));
    picture.append(mark);
    const right = Math.cos(angles[at]) > 0.01;
    const left = Math.cos(angles[at]) < -0.01;
    const steep = nodes.length > 24;
    const degrees = (angles[at] * 180) / Math.PI;
    picture.append(svg("text", {
      x: tx, y: ty, class: nodes.length > 40 ? "small" : "", "text-anchor": right ? "start" : left ? "end" : "middle",
      "dominant-baseline": "middle", ...(steep ? { transform: `rotate(${left ? degrees + 180 : degrees} ${tx} ${ty})` } : {}),
    }, name(node)));
  });
  $("graph-body").replaceChildren(picture);
  const left = [];
  if (edges.length > shownEdges.length) left.push(`the ${group(shownEdges.length)} heaviest of ${group(edges.length)} edges`);
  if (many) left.push(`${group(report.endpoints.length)} ports, summed ${byLeaf ? "by leaf switch" : `in groups of ${block} neighbors`}; traffic within a group is not shown`);
  const what = left.length > 0 ? ` Shown: ${left.join("; ")}.` : "";
  $("graph-note").textContent = `The width of an edge grows with the square root of the payload in both directions, over the whole capture.${known ? " Arcs are leaf switches, named by the manifest of the run." : ""}${what}`;
}

exportable($("graph-body").closest(".card"), "graph", () => "Communication graph", {
  command: () => commandOfWindow("matrix", null, "--by", "endpoint", "--traffic", "all", "--unit", "payload-bytes"),
  csv: () => {
    const own = (views["endpoint null"] ??= new View("endpoint", null));
    return matrixCsv(own, "endpoint", "all", own.sum(null));
  },
  hasCsv: () => hasEstimates("endpoint", null),
  drawing: () => [[elementPart($("graph-body").firstChild)]],
  note: () => $("graph-note").textContent,
});

/// Draws an arc around the ports of each leaf, with the name of the leaf.
function drawLeaves(picture, nodes, angles, leafOf, leaves, point, radius, turn) {
  let start = 0;
  for (let at = 1; at <= nodes.length; at += 1) {
    if (at < nodes.length && leafOf[nodes[at]] === leafOf[nodes[start]]) continue;
    const [from, to] = [angles[start] - turn * 0.4, angles[at - 1] + turn * 0.4];
    const [[ax, ay], [bx, by]] = [point(from, radius + 18), point(to, radius + 18)];
    picture.append(svg("path", { d: `M ${ax} ${ay} A ${radius + 18} ${radius + 18} 0 ${to - from > Math.PI ? 1 : 0} 1 ${bx} ${by}`, class: "leaf" }));
    const middle = (from + to) / 2;
    const [x, y] = point(middle, radius + 66);
    const name = leaves[leafOf[nodes[start]]];
    const cos = Math.cos(middle);
    picture.append(svg("text", { x, y, class: "leaf-name", "text-anchor": cos > 0.3 ? "start" : cos < -0.3 ? "end" : "middle", "dominant-baseline": "middle" }, name ? `leaf ${name}` : "no leaf known"));
    start = at;
  }
}
