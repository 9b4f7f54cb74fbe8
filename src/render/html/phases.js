// Phases: a strip below the timeline and a table; both select time windows.

/// The bins that overlap a phase.
function binsOf({ from_ns, to_ns }) {
  const bin = (ns) => (ns - report.first_bin_ns) / report.bin_ns;
  return [bin(from_ns) + 1e-6, bin(to_ns) - 1e-6];
}

function patternOf({ pattern, confidence }) {
  return confidence > 0 ? `${pattern} (${Math.round(confidence * 100)} %)` : pattern;
}

function drawPhases() {
  const { phases, window_ns: window } = report.phases;
  const some = hasTimeline && phases.length > 0;
  $("phases").hidden = !some;
  $("strip").hidden = !some;
  if (!some) return;
  const show = (phase) => () => choose(...binsOf(phase));
  $("strip").replaceChildren(element("span", "phases"), ...phases.map((phase, index) => {
    const [from, to] = binsOf(phase).map(xOf);
    const width = Math.max(to - from, 3);
    const text = width > 110 && phase.confidence > 0 ? `${index + 1} ${phase.pattern}` : width > 26 ? `${index + 1}` : "";
    const button = element("button", text, { type: "button" });
    button.setAttribute("aria-label", `Phase ${index + 1}, ${patternOf(phase)}, ${seconds(phase.from_ns)} s to ${seconds(phase.to_ns)} s`);
    button.title = `${index + 1}: ${patternOf(phase)}`;
    button.style.left = `${from}px`;
    button.style.width = `${width}px`;
    button.addEventListener("click", show(phase));
    return button;
  }));
  const rows = phases.map((phase, index) => {
    const button = element("button", `${index + 1}`, { type: "button", "aria-label": `Show phase ${index + 1} in the matrix` });
    button.addEventListener("click", () => {
      show(phase)();
      $("traffic").scrollIntoView();
    });
    const collectives = phase.collectives.map(([operation, least]) => `${group(least)} ${operation}`).join(", ");
    return [button, number(phase.from_ns, seconds), number(phase.to_ns - phase.from_ns, time), patternOf(phase), number(phase.messages), number(phase.bytes, bytes), number(phase.wire_rate, (rate) => perSecond(rate, true)), collectives];
  });
  fillList($("phase-table"), "Phases of the job", ["phase", "from [s]", "duration", "pattern", "messages", phases[0].of_mpi ? "MPI bytes" : "payload", "wire rate", "collectives, at least"], rows);
  $("phase-note").textContent = `A new phase begins where the matrices of successive windows of ${time(window)} change; phases begin at least that far apart. A pattern is named if only one is consistent with the traffic, and is unknown otherwise. Select a number to show that phase in the matrix.`;
}
drawn.push(drawPhases);

exportable($("phase-table").closest(".card"), "phases", () => "Phases of the job", ofPage("phases"));
