// Tiles and learning plots of a run.

import { chooseX, color, createChart, smooth } from "./charts.js";
import { el, empty } from "./dom.js";
import { findBand, findLines, findTile, PLOTS, TILES } from "./plots.js";
import { sparkline } from "./sparkline.js";
import { number } from "./text.js";

export const view = { weight: 0, x: "step" };

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export function tiles(data) {
  const found = TILES.map((tile) => [tile, findTile(tile, data.metrics)]).filter(([, values]) => values);
  return el(
    "dl",
    { class: "tiles" },
    found.map(([tile, values]) => {
      const finite = values.filter(Number.isFinite);
      const last = tile.window ? average(finite.slice(-tile.window)) : values.at(-1);
      const first = tile.window ? average(finite.slice(0, tile.window)) : finite[0];
      const change = Number.isFinite(last) && finite.length > 1 ? last - first : null;
      return el(
        "div",
        { class: "tile" },
        el("dt", {}, tile.title),
        el("dd", { class: "value" }, Number.isFinite(last) ? number(last) : "NaN", el("small", {}, tile.unit ? ` ${tile.unit}` : "")),
        el("dd", { class: "change" }, change === null ? "first step" : `${change < 0 ? "−" : "+"}${number(Math.abs(change))} since ${tile.window ? `the first ${tile.window}` : `step ${number(data.steps[0])}`}`),
        el("dd", {}, sparkline(values, `${tile.title} by step`)),
      );
    }),
  );
}

/** Controls of smoothing and of the x axis. `onChange` draws the charts again. */
export function controls(onChange) {
  const shown = el("output", {}, number(view.weight));
  const slider = el("input", {
    type: "range",
    min: 0,
    max: 0.98,
    step: 0.02,
    value: view.weight,
    oninput: (event) => {
      view.weight = Number(event.target.value);
      shown.textContent = number(view.weight);
      onChange();
    },
  });
  const select = el("select", { onchange: (event) => ((view.x = event.target.value), onChange()) }, [
    el("option", { value: "step", selected: view.x === "step" }, "step"),
    el("option", { value: "time", selected: view.x === "time" }, "time"),
  ]);
  return el("div", { class: "toolbar" }, el("label", {}, "Smoothing ", slider, " ", shown), el("label", {}, "x axis ", select));
}

function build(plot, data) {
  const lines = findLines(plot, data.metrics);
  const series = [];
  const bands = [];
  const labels = Object.keys(lines);
  const edges = findBand(plot, data.metrics);
  if (labels.length && edges.length) {
    const edge = { color: color(0), width: 0.5, faint: true, points: false };
    series.push(...edges.map(([label, name]) => ({ label, values: data.metrics[name], ...edge })));
    bands.push({ series: [1, 2], fill: `${color(0)}26` });
  }
  labels.forEach((label, i) => {
    const values = data.metrics[lines[label]];
    const points = plot.sparse ? { show: true } : false;
    if (view.weight && !plot.sparse) series.push({ label: `${label} (raw)`, values, color: color(i), faint: true, width: 1, points });
    series.push({ label, values: plot.sparse ? values : smooth(values, view.weight), color: color(i), points, paths: undefined });
  });
  const range = bands.length && !plot.wide ? () => fit(data.metrics[lines[labels[0]]]) : undefined;
  const last = labels.length ? [...data.metrics[lines[labels[0]]]].reverse().find(Number.isFinite) : undefined;
  return { ...chooseX(data, view.x), yLabel: plot.unit, series: plot.sparse ? series.map((each) => withoutGaps(each)) : series, bands, range, summary: last === undefined ? "" : `latest ${number(last)}` };
}

/** The range of a plot with a band: the curve fills half of it, and the band may leave it. The whole band of a wide plot is visible. */
function fit(values) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const space = (high - low) / 2 || Math.abs(high) / 10 || 1;
  return [low - space, high + space];
}

const withoutGaps = (series) => ({ ...series, values: series.values.map((value) => (value === null ? undefined : value)) }); // undefined joins, null is a gap

export function learning() {
  const charts = PLOTS.map((plot) => [plot, createChart(plot.title, (data) => build(plot, data))]);
  const none = empty("No metrics are recorded yet.");
  return {
    nodes: [...charts.map(([, chart]) => chart.figure), none],
    draw(data) {
      none.hidden = data.steps.length > 0;
      for (const [, chart] of charts) chart.draw(data);
    },
    redraw: () => charts.forEach(([, chart]) => chart.draw()),
  };
}
