// Line charts and stacked columns with uPlot: axes with units, a shared cursor, smoothing, light and dark.

import uPlot from "./vendor/uPlot.esm.js";
import { el } from "./dom.js";
import { number } from "./text.js";

const HEIGHT = 220;
const CURSOR = uPlot.sync("run");
const drawn = new Set();

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const color = (i) => css(`--series-${(i % 8) + 1}`);

/** An exponential moving average of the finite values; `weight` of the past, 0 to below 1. */
export function smooth(values, weight) {
  if (!weight) return values;
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return null;
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return mean / norm; // without the bias towards 0 of the first values
  });
}

/** Draw all charts again, with the colors of the theme. Those that are no longer on the page are forgotten. */
export function redrawAll() {
  for (const chart of [...drawn]) {
    if (chart.figure.isConnected) chart.draw();
    else forget(chart);
  }
}

function forget(chart) {
  chart.plot?.destroy();
  chart.observer.disconnect();
  drawn.delete(chart);
}

/**
 * A chart with a title. `chart.draw(data)` draws or updates it.
 * `build(data)` returns {x, xLabel, yLabel, series: [{label, values, color?, faint?, fill?, text?}], bands?, range?}.
 */
export function createChart(title, build) {
  const frame = el("div", { class: "plot", tabindex: 0, role: "img" });
  const heading = el("h3", {}, title);
  const latest = el("span", { class: "latest" });
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, heading, latest), frame);
  const chart = { figure, plot: null, data: null, draw, observer: null };
  frame.addEventListener("keydown", moveCursor);
  chart.observer = new ResizeObserver(() => resize());
  chart.observer.observe(frame);
  drawn.add(chart);

  function resize() {
    const width = frame.clientWidth;
    if (!width) return;
    if (!chart.plot) draw();
    else if (chart.plot.width !== width) chart.plot.setSize({ width, height: HEIGHT });
  }

  function draw(data = chart.data) {
    chart.data = data;
    const width = frame.clientWidth;
    if (!data || !width) return;
    const { x, xLabel, yLabel, series, bands, range, summary } = build(data);
    const finite = series.filter((each) => each.values.some(Number.isFinite));
    chart.plot?.destroy();
    chart.plot = null;
    figure.hidden = !finite.length;
    if (!finite.length) return;
    latest.textContent = summary ?? "";
    frame.setAttribute("aria-label", `${title} in ${yLabel} by ${xLabel}. ${summary ?? ""} Left and right arrow keys move the cursor.`);
    const axis = { stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
    const options = {
      width,
      height: HEIGHT,
      scales: { x: { time: false }, y: { range: range ?? widen } },
      axes: [
        { ...axis, label: xLabel, labelSize: 18, size: 32, values: (_, ticks) => ticks.map((tick) => (xLabel === "step" && !Number.isInteger(tick) ? "" : number(tick))) },
        { ...axis, label: yLabel, labelSize: 18, size: 64, values: (_, ticks) => ticks.map(number) },
      ],
      cursor: { sync: { key: CURSOR.key }, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { live: true },
      series: [
        { label: xLabel, value: (_, value) => (value === null || value === undefined ? "–" : number(value)) },
        ...series.map((each, i) => ({
          label: each.label,
          scale: "y",
          stroke: each.color ?? color(i),
          width: each.width ?? 1.75,
          alpha: each.faint ? 0.3 : 1,
          fill: each.fill,
          paths: each.paths,
          spanGaps: false,
          points: { show: each.values.filter(Number.isFinite).length < 3 ? true : each.points },
          value: (_, value, __, index) => (index === null || index === undefined ? "–" : each.text ? each.text(index) : number(value)),
        })),
      ],
      bands,
    };
    chart.plot = new uPlot(options, [x, ...series.map((each) => each.values)], frame);
    for (const each of [...frame.querySelectorAll(".u-legend tr")]) {
      if (each.querySelector(".u-label")?.textContent === "") each.remove();
    }
  }

  function moveCursor(event) {
    const { plot } = chart;
    const delta = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!plot || !delta) return;
    event.preventDefault();
    const x = plot.data[0];
    const index = Math.min(x.length - 1, Math.max(0, (plot.cursor.idx ?? (delta > 0 ? -1 : x.length)) + delta));
    plot.setCursor({ left: plot.valToPos(x[index], "x"), top: HEIGHT / 3 });
  }

  return chart;
}

/** A range with space around the values; a constant is in its middle. */
function widen(_, low, high) {
  if (low === null || high === null || !Number.isFinite(low)) return [0, 1];
  const space = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.1 || 1;
  return [low - space, high + space];
}

/** Columns stacked to their sum, as series of createChart. `parts`: label -> values. */
export function stack(parts, text) {
  const entries = Object.entries(parts);
  const sums = entries[0][1].map(() => 0);
  const paths = uPlot.paths.bars({ size: [1, 100], gap: 0 });
  const series = entries.map(([label, values], i) => {
    values.forEach((value, row) => (sums[row] += Number.isFinite(value) ? value : 0));
    return { label, values: [...sums], color: color(i), fill: color(i), paths, width: 0, points: false, text: (row) => text(values[row]) };
  });
  return series.reverse(); // the tallest columns first, so that the others are drawn over them
}

/** The x values of a run: steps, or hours of steps. */
export function chooseX(data, by) {
  return by === "time"
    ? { x: data.seconds.map((each) => each / scaleOf(data).size), xLabel: `time of all steps (${scaleOf(data).unit})` }
    : { x: data.steps, xLabel: "step" };
}

function scaleOf(data) {
  const total = data.seconds.at(-1) ?? 0;
  return total > 7200 ? { size: 3600, unit: "hours" } : total > 300 ? { size: 60, unit: "minutes" } : { size: 1, unit: "seconds" };
}

