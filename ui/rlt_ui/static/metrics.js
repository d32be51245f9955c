// All recorded metrics by name, grouped by their prefix, with a search. Charts are drawn for those that are shown.

import { chooseX, color, createChart, smooth } from "./charts.js";
import { el, empty, section } from "./dom.js";
import { view } from "./learning.js";
import { number, plural } from "./text.js";

const SHOWN = 24; // charts at once

/** What the search has; findings of the overview set it to their metric. */
export const wanted = { text: "" };

/** The name in `metrics` that a text names, the longest. Undefined without one. */
export function findName(text, metrics) {
  return Object.keys(metrics).filter((name) => text.includes(name)).sort((a, b) => b.length - a.length)[0];
}

const prefix = (name) => (name.includes("/") ? name.slice(0, name.indexOf("/")) : "others");

function build(name, data) {
  const values = data.metrics[name];
  const last = values.findLast(Number.isFinite);
  return { ...chooseX(data, view.x), yLabel: name.slice(name.indexOf("/") + 1), series: [{ label: name, values: smooth(values, view.weight), color: color(0) }], summary: last === undefined ? "" : `latest ${number(last)}` };
}

export function metrics() {
  const search = el("input", { type: "search", value: wanted.text, placeholder: "such as kl or timing_s", oninput: () => ((wanted.text = search.value), (limit = SHOWN), show()) });
  const count = el("span", { class: "muted", role: "status" });
  const more = el("button", { type: "button", onclick: () => ((limit += SHOWN), show()) }, "Show more");
  const groups = el("div", { class: "groups" });
  let limit = SHOWN;
  let shown = "";
  let charts = [];
  let data = null;

  function show() {
    const known = Object.keys(data.metrics).sort();
    const found = known.filter((name) => name.toLowerCase().includes(wanted.text.toLowerCase()));
    const names = found.slice(0, limit);
    count.textContent = `${found.length} of ${plural(known.length, "metric")}`;
    more.hidden = found.length <= limit;
    if (names.join() === shown) return charts.forEach((chart) => chart.draw(data));
    shown = names.join();
    charts = names.map((name) => createChart(name, (current) => build(name, current)));
    const prefixes = [...new Set(names.map(prefix))];
    const figures = (each) => charts.filter((_, i) => prefix(names[i]) === each).map((chart) => chart.figure);
    groups.replaceChildren(...prefixes.map((each) => section(each, el("div", { class: "charts" }, figures(each)))));
    if (!names.length) groups.replaceChildren(empty(known.length ? "No metric matches the search." : "No metrics are recorded yet."));
    charts.forEach((chart) => chart.draw(data));
  }

  return {
    nodes: [el("div", { class: "toolbar" }, el("label", {}, "Search ", search), count), groups, more],
    draw(current) {
      data = current;
      show();
    },
  };
}
