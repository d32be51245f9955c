// The time of the steps by phase, and the spans of one step.

import { get, records } from "./api.js";
import { chooseX, createChart, stack } from "./charts.js";
import { el, empty, notes, section, svg } from "./dom.js";
import { view } from "./learning.js";
import { duration, explainPhase, number, percent } from "./text.js";

const PREFIX = "timing_s/";
const TOTAL = "timing_s/step";
const MAX_PHASES = 7;
const OTHER = "other phases";

/** Phase -> seconds of each step, the longest phases first. */
export function splitPhases(data) {
  const phases = Object.entries(data.metrics).filter(([name]) => name.startsWith(PREFIX) && name !== TOTAL);
  const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
  const ordered = phases.map(([name, values]) => [name.slice(PREFIX.length), values]).sort((a, b) => sum(b[1]) - sum(a[1]));
  const rest = ordered.slice(MAX_PHASES).map(([, values]) => values);
  if (!rest.length) return Object.fromEntries(ordered);
  const others = data.steps.map((_, row) => rest.reduce((total, values) => total + (values[row] ?? 0), 0));
  return Object.fromEntries([...ordered.slice(0, MAX_PHASES), [OTHER, others]]);
}

function shares(parts) {
  const totals = Object.entries(parts).map(([phase, values]) => [phase, values.reduce((sum, value) => sum + (value ?? 0), 0)]);
  const all = totals.reduce((sum, [, seconds]) => sum + seconds, 0);
  return el(
    "ul",
    { class: "shares", "aria-label": "Share of the time of all steps" },
    totals.map(([phase, seconds], i) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = `var(--series-${(i % 8) + 1})`;
      return el("li", { title: explainPhase(phase) }, swatch, `${phase} `, el("strong", {}, percent(all ? seconds / all : null)), ` ${duration(seconds)}`);
    }),
  );
}

/** Three to six times from 0 to at most `length`, at a distance of 1, 2 or 5 times a power of ten. */
function roundTicks(length) {
  if (!(length > 0)) return [0];
  const unit = 10 ** Math.floor(Math.log10(length / 5));
  const distance = unit * [1, 2, 5, 10].find((each) => each * unit >= length / 5);
  return Array.from({ length: Math.floor(length / distance) + 1 }, (_, i) => i * distance);
}

function gantt(spans, step, colored) {
  const lanes = [...new Set(spans.map((span) => `${span.rank}/${span.thread ?? 0}`))].sort((a, b) => {
    const [[r, t], [s, u]] = [a.split("/").map(Number), b.split("/").map(Number)];
    return r - s || t - u;
  });
  const found = [...new Set(spans.map((span) => span.phase))].filter((phase) => phase !== "step");
  // The colors are the same as in the stacked columns; phases that are not among them have the last one.
  const phases = [...colored.filter((phase) => found.includes(phase)), ...found.filter((phase) => !colored.includes(phase))];
  const palette = [...colored, ...phases.filter((phase) => !colored.includes(phase))];
  const start = spans.reduce((low, span) => Math.min(low, span.start), Infinity);
  const end = spans.reduce((high, span) => Math.max(high, span.end), -Infinity);
  const paint = (phase) => `series-${Math.min(palette.indexOf(phase), 7) + 1}`;
  const engines = new Map(spans.map((span) => [String(span.rank), span.engine]));
  const name = (lane) => {
    const [rank, thread] = lane.split("/");
    const process = engines.get(rank) != null ? `engine ${engines.get(rank)}` : rank === "-1" ? "driver" : `rank ${rank}`;
    return `${process}${thread === "0" ? "" : `, thread ${thread}`}`;
  };
  const [width, row, letter] = [900, 24, 7];
  const left = 16 + letter * Math.max(...lanes.map((lane) => name(lane).length));
  const height = lanes.length * row + 34;
  const place = (time) => left + ((time - start) / (end - start || 1)) * width;
  const ticks = roundTicks(end - start).map((seconds) => start + seconds);
  const ordered = [...spans].sort((a, b) => b.end - b.start - (a.end - a.start));
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": `Spans of step ${step}` },
    svg(
      "svg",
      { class: "gantt", viewBox: `0 0 ${left + width + 20} ${height}`, role: "img", "aria-label": `${spans.length} spans of ${lanes.length} threads in ${duration(end - start)}` },
      ticks.map((time) => svg("line", { class: "grid", x1: place(time), x2: place(time), y1: 0, y2: lanes.length * row })),
      lanes.map((lane, i) => svg("text", { x: left - 8, y: i * row + 16, "text-anchor": "end" }, name(lane))),
      ordered.map((span) => {
        const lane = lanes.indexOf(`${span.rank}/${span.thread ?? 0}`);
        const outer = span.phase === "step";
        return svg(
          "rect",
          { class: outer ? "outer" : paint(span.phase), x: place(span.start), width: Math.max(1, place(span.end) - place(span.start)), y: lane * row + (outer ? 2 : 5), height: outer ? row - 4 : row - 10, rx: 2 },
          svg("title", {}, `${name(`${span.rank}/${span.thread ?? 0}`)}: ${[span.phase, explainPhase(span.phase)].filter(Boolean).join(" – ")}, ${duration(span.end - span.start)} from ${duration(span.start - start)}`),
        );
      }),
      ticks.map((time) => svg("text", { x: place(time), y: lanes.length * row + 16, "text-anchor": "middle" }, number(time - start))),
      svg("text", { x: left + width / 2, y: height - 3, "text-anchor": "middle" }, "seconds since the start of the step"),
    ),
    el(
      "ul",
      { class: "shares", "aria-label": "Phases" },
      phases.map((phase) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = `var(--${paint(phase)})`;
        return el("li", { title: explainPhase(phase) }, swatch, phase);
      }),
    ),
  );
}

export function timing(run) {
  const chart = createChart("Time of each step by phase", (data) => {
    const parts = splitPhases(data);
    const series = Object.keys(parts).length ? stack(parts, (value) => `${number(value)} s`) : [];
    const total = data.metrics[TOTAL]?.at(-1);
    return { ...chooseX(data, view.x), yLabel: "seconds", series, range: (_, __, high) => [0, (high || 1) * 1.05], summary: total ? `latest step ${duration(total)}` : "" };
  });
  const split = el("div");
  const input = el("input", { type: "number", min: 0, step: 1, class: "short", onchange: () => load() });
  const spans = el("div");
  let colored = [];
  let follows = true;
  let request = 0;

  async function load() {
    const step = Number(input.value);
    if (input.value === "" || !Number.isInteger(step) || step < 0) return;
    const current = ++request;
    try {
      const found = await get("spans", { run, step });
      if (current !== request) return;
      spans.replaceChildren(found.spans.length ? gantt(found.spans, step, colored) : empty(`Step ${step} has no spans.`), notes(found.notes) ?? "");
    } catch (error) {
      if (current === request) spans.replaceChildren(empty(error.message));
    }
  }
  input.addEventListener("input", () => (follows = false));

  return {
    nodes: [
      section("Time by phase", chart.figure, split),
      records ? "" : section("Spans of a step", el("div", { class: "toolbar" }, el("label", {}, "Step ", input)), spans),
    ],
    draw(data) {
      chart.draw(data);
      const parts = splitPhases(data);
      colored = Object.keys(parts);
      split.replaceChildren(Object.keys(parts).length ? shares(parts) : empty("No step times are recorded."));
      if (records) return; // a report has no spans
      if (follows && data.steps.length) {
        input.value = data.steps.at(-1);
        input.max = data.steps.at(-1);
        load();
      } else if (!data.steps.length) spans.replaceChildren(empty("There are no steps with spans."));
    },
    redraw: () => chart.draw(),
  };
}
