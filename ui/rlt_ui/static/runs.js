// The list of runs: filter, sort, and the choice of runs to compare.

import { get } from "./api.js";
import { el, empty } from "./dom.js";
import { sparkline } from "./sparkline.js";
import { age, number, plural } from "./text.js";

const MAX_COMPARED = 8;
const COLUMNS = [
  ["Name", (run) => run.name],
  ["Phase", (run) => run.phase],
  ["Progress", (run) => (run.totalSteps ? run.step / run.totalSteps : run.step)],
  ["Reward", (run) => run.reward ?? -Infinity],
  ["GPUs", (run) => run.gpus ?? -1],
  ["Model", (run) => run.model ?? ""],
  ["Algorithm", (run) => run.algorithm ?? ""],
  ["Findings", (run) => run.findings ?? 0],
  ["Created", (run) => run.created ?? 0],
  ["Updated", (run) => run.updated ?? 0],
];
const state = { search: "", phase: "", sort: 9, descending: true, chosen: new Set() };

export function bar(step, total) {
  if (!total) return el("span", {}, `step ${number(step)}`);
  return el(
    "span",
    { class: "progress" },
    el("progress", { value: Math.min(step, total), max: total, "aria-label": "Completed steps" }),
    el("span", { class: "count" }, `${number(step)} / ${number(total)}`),
  );
}

export const phaseBadge = (phase) => el("span", { class: "badge", "data-phase": phase }, phase);

export async function showRuns(main, isCurrent) {
  let data = null;
  const body = el("tbody");
  const heads = COLUMNS.map(([title], i) =>
    el("th", { scope: "col" }, el("button", { type: "button", class: "sort", onclick: () => sortBy(i) }, title)),
  );
  const count = el("span", { class: "muted", role: "status" });
  const phases = el("select", { id: "phase", onchange: (event) => change({ phase: event.target.value }) });
  const compare = el("a", { class: "button", role: "link" }, "Compare");
  const list = el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" },
    el("table", { class: "runs" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "hidden" }, "Compare")), heads)), body),
  );
  const nothing = el("div");

  function change(changes) {
    Object.assign(state, changes);
    draw();
  }

  function sortBy(column) {
    change({ sort: column, descending: state.sort === column ? !state.descending : column > 1 });
  }

  function draw() {
    const search = state.search.toLowerCase();
    const value = COLUMNS[state.sort][1];
    const shown = data.runs
      .filter((run) => !state.phase || run.phase === state.phase)
      .filter((run) => [run.name, run.id, run.model, run.algorithm, run.phase].join(" ").toLowerCase().includes(search))
      .sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (state.descending ? -1 : 1);
      });
    heads.forEach((head, i) => {
      if (i === state.sort) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    count.textContent = shown.length === data.runs.length ? plural(shown.length, "run") : `${shown.length} of ${plural(data.runs.length, "run")}`;
    const names = shown.map((run) => run.name);
    const repeated = new Set(names.filter((name, i) => names.indexOf(name) !== i));
    body.replaceChildren(...shown.map((run) => row(run, repeated.has(run.name))));
    list.hidden = !shown.length;
    nothing.replaceChildren(
      ...(shown.length ? [] : [empty(data.runs.length ? "No run matches the filter." : "There are no runs here yet.")]),
    );
    drawCompare();
  }

  function drawCompare() {
    const chosen = [...state.chosen].filter((id) => data.runs.some((run) => run.id === id));
    compare.textContent = chosen.length < 2 ? "Choose runs to compare" : `Compare ${chosen.length} runs`;
    if (chosen.length < 2) compare.removeAttribute("href");
    else compare.setAttribute("href", `#/compare/${chosen.map(encodeURIComponent).join(",")}`);
    compare.setAttribute("aria-disabled", String(chosen.length < 2));
    for (const box of body.querySelectorAll("input")) box.disabled = !box.checked && chosen.length >= MAX_COMPARED;
  }

  /** `withId`: another run has the same name. */
  function row(run, withId) {
    const box = el("input", {
      type: "checkbox",
      checked: state.chosen.has(run.id),
      "aria-label": `Compare ${run.name}`,
      onchange: (event) => {
        state.chosen[event.target.checked ? "add" : "delete"](run.id);
        drawCompare();
      },
    });
    const cells = [
      [el("a", { href: `#/run/${encodeURIComponent(run.id)}`, title: run.id }, run.name), withId ? el("div", { class: "muted" }, run.id) : null],
      phaseBadge(run.phase),
      [bar(run.step ?? 0, run.totalSteps), run.eta ? el("span", { class: "muted" }, ` ${run.eta} left`) : null],
      el("span", { class: "reward" }, number(run.reward), sparkline(run.rewards ?? [], `Reward of ${run.name}`)),
      run.gpus === undefined || run.gpus === null ? "–" : number(run.gpus),
      run.model || "–",
      run.algorithm || "–",
      run.findings ? el("span", { class: "badge warning" }, plural(run.findings, "finding")) : el("span", { class: "muted" }, "none"),
      el("span", { class: "muted" }, age(run.created)),
      el("span", { class: "muted" }, age(run.updated)),
    ];
    return el("tr", {}, el("td", {}, box), cells.map((cell) => el("td", {}, cell)));
  }

  async function refresh() {
    data = await get("runs");
    if (!isCurrent()) return;
    const found = [...new Set(data.runs.map((run) => run.phase))].sort();
    phases.replaceChildren(el("option", { value: "" }, "All phases"), ...found.map((phase) => el("option", { value: phase, selected: phase === state.phase }, phase)));
    draw();
  }

  data = await get("runs");
  if (!isCurrent()) return refresh;
  document.title = "Runs – rlt";
  document.getElementById("where").textContent = data.title;
  main.replaceChildren(
    el(
      "div",
      { class: "toolbar" },
      el("h1", {}, "Runs"),
      el("label", {}, "Search ", el("input", { type: "search", value: state.search, oninput: (event) => change({ search: event.target.value }) })),
      el("label", {}, "Phase ", phases),
      count,
      el("span", { class: "grow" }),
      data.hasUsage ? el("a", { class: "button", href: "#/usage" }, "Accelerator hours") : null,
      compare,
    ),
    list,
    nothing,
  );
  await refresh();
  return refresh;
}
