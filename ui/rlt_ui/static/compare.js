// Up to 8 runs in the same charts, and the fields of their configurations that differ.

import { get } from "./api.js";
import { chooseX, color, createChart, smooth } from "./charts.js";
import { el, empty, notes, section, table } from "./dom.js";
import { controls, view } from "./learning.js";
import { findLines, PLOTS } from "./plots.js";
import { number } from "./text.js";

const MAX_RUNS = 8;

export async function showComparison(main, ids, isCurrent) {
  const chosen = ids.slice(0, MAX_RUNS);
  let runs = [];
  let comparison = null;
  async function load() {
    const found = await get("compare", { runs: chosen.map(encodeURIComponent).join(",") });
    comparison = found.comparison;
    runs = found.runs.map((each) => ({ ...each, label: each.info.name }));
    for (const run of runs) {
      if (runs.filter((each) => each.info.name === run.info.name).length > 1) run.label = run.info.id;
    }
  }
  await load();
  if (!isCurrent()) return () => {};
  document.title = "Compare – rlt";
  document.getElementById("where").textContent = "";
  const charts = PLOTS.map((plot) => createChart(plot.title, () => build(plot, runs)));
  const [head, differences] = [el("div"), el("div")];

  function draw() {
    head.replaceChildren(summary(runs, comparison), notes(ids.length > MAX_RUNS ? [`Only the first ${MAX_RUNS} runs are compared.`] : []) ?? "");
    differences.replaceChildren(configurations(runs, comparison));
    for (const chart of charts) chart.draw(runs);
  }

  main.replaceChildren(
    el("div", { class: "toolbar" }, el("h1", {}, `Compare ${runs.length} runs`)),
    head,
    section("Learning", controls(() => charts.forEach((chart) => chart.draw())), el("div", { class: "charts" }, charts.map((chart) => chart.figure))),
    section("Configuration that differs", differences),
  );
  draw();
  return async () => {
    await load();
    if (isCurrent()) draw();
  };
}

function build(plot, runs) {
  // The longest run decides the unit of time, so that all runs have the same.
  const longest = runs.reduce((a, b) => ((a.data.seconds.at(-1) ?? 0) >= (b.data.seconds.at(-1) ?? 0) ? a : b));
  const seconds = (longest.data.seconds.at(-1) ?? 0) || 1;
  const ratio = view.x === "time" ? chooseX(longest.data, "time").x.at(-1) / seconds : 1;
  const points = runs.map((run) => (view.x === "time" ? run.data.seconds.map((each) => each * ratio) : run.data.steps));
  const x = [...new Set(points.flat())].sort((a, b) => a - b);
  const rows = new Map(x.map((each, i) => [each, i]));
  const series = runs.flatMap((run, i) => {
    const names = Object.values(findLines(plot, run.data.metrics));
    if (!names.length) return [];
    const values = new Array(x.length).fill(undefined); // undefined: another run's point
    const smoothed = smooth(run.data.metrics[names[0]], plot.sparse ? 0 : view.weight);
    smoothed.forEach((value, row) => (values[rows.get(points[i][row])] = plot.sparse && value === null ? undefined : value));
    return [{ label: run.label, values, color: color(i), points: plot.sparse ? { show: true } : false }];
  });
  return { x, xLabel: chooseX(longest.data, view.x).xLabel, yLabel: plot.unit, series };
}

/** The table of `rlt compare`: a column for each run. */
function summary(runs, comparison) {
  const until = comparison.reached.map((row) => ({ ...row, name: `${row.name} until reward ${number(comparison.reward)}` }));
  const rows = [...comparison.metrics, ...until, ...comparison.throughput].filter((row) => row.values.some(Number.isFinite));
  const heads = runs.map((run, i) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(--series-${i + 1})`;
    return [el("a", { href: `#/run/${encodeURIComponent(run.info.id)}` }, swatch, run.label), "num"];
  });
  return section("Summary", table("Runs", [["Metric", ""], ...heads], [
    ["phase", ...runs.map((run) => run.info.phase)],
    ["steps", ...runs.map((run) => number(run.info.step))],
    ...rows.map((row) => [row.name, ...row.values.map(number)]),
  ]), el("p", { class: "muted" }, "final: the mean of the last 10 steps, of a validation the last one. The reward that a step reaches is the mean of 10 steps."));
}

function configurations(runs, comparison) {
  const rows = comparison.configuration.map(({ field, values }) => [field, ...values.map((value) => value ?? "–")]);
  return rows.length ? table("Fields that differ", [["Field", "path"], ...runs.map((run) => [run.label, "mono"])], rows) : empty("The configurations are equal.");
}
