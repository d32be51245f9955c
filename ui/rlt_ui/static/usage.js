// The accelerator hours of jobs, also of deleted ones: the groups of `rlt usage`, and what the accelerators did.

import { get } from "./api.js";
import { el, empty, notes, section, showError, table } from "./dom.js";
import { number, percent, plural } from "./text.js";

const GROUPS = ["namespace", "user", "model", "accelerator", "job"].map((name) => [name, name]);
const WINDOWS = [["0", "today"], ["7", "7 days"], ["30", "30 days"], ["", "all time"]];
const UNCHANGED_MS = 60000; // the jobs change with each step, and their hours do not change visibly
const state = { by: "namespace", days: "7" };

const share = (bill, part) => (bill.acceleratorSeconds ? bill.by[part] / bill.acceleratorSeconds : null);
const hours = (bill) => number(bill.acceleratorSeconds / 3600);
const paint = (index) => (index < 8 ? `var(--series-${index + 1})` : "var(--muted)");

/** What the accelerators of a group did, as one bar. The bar of the largest group has the whole width. */
function parts(bill, names, largest) {
  const present = names.filter((name) => bill.by[name] > 0);
  const text = present.map((name) => `${name} ${percent(share(bill, name))}`).join(", ");
  return el("span", { class: "track", role: "img", "aria-label": text, title: text }, present.map((name) => {
    const part = el("span");
    part.style.width = `${(100 * bill.by[name]) / largest}%`;
    part.style.background = paint(names.indexOf(name));
    return part;
  }));
}

function legend(total, names) {
  return el("ul", { class: "shares", "aria-label": "Share of all accelerator hours" }, names.filter((name) => total.by[name] > 0).map((name) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = paint(names.indexOf(name));
    return el("li", {}, swatch, `${name} `, el("strong", {}, percent(share(total, name))));
  }));
}

function rows(found) {
  const largest = Math.max(...found.bills.map((bill) => bill.acceleratorSeconds), 1);
  const cells = (bill, bar) => [bill.group, number(bill.jobs), hours(bill), percent(share(bill, "idle")), percent(share(bill, "lost")), bar];
  const all = found.bills.map((bill) => cells(bill, parts(bill, found.parts, largest)));
  if (found.bills.length > 1) all.push(cells(found.total, "").map((cell) => (cell === "" ? "" : el("strong", {}, cell))));
  const columns = [[state.by[0].toUpperCase() + state.by.slice(1), "sample"], ["Jobs", "num"], ["Hours", "num"], ["Idle", "num"], ["Lost", "num"], ["Parts", "wide"]];
  return table("Accelerator hours", columns, all);
}

export async function showUsage(main, isCurrent) {
  let loaded = 0;
  let request = 0;
  const body = el("div");
  const choose = (name, options) => el("select", { onchange: (event) => ((state[name] = event.target.value), load()) }, options.map(([value, label]) => el("option", { value, selected: value === state[name] }, label)));

  function draw(found) {
    const missing = notes(found.notes) ?? "";
    if (!found.bills.length) return body.replaceChildren(missing, empty("No job has held accelerators in this time."));
    body.replaceChildren(missing, section(
      `${hours(found.total)} accelerator hours of ${plural(found.total.jobs, "job")}`,
      el("p", { class: "muted" }, found.since ? `Used since ${found.since}, 00:00 UTC.` : "Everything that is recorded."),
      legend(found.total, found.parts),
      rows(found),
    ));
  }

  async function load() {
    const current = ++request;
    loaded = Date.now();
    try {
      const found = await get("usage", state);
      if (isCurrent() && current === request) draw(found);
    } catch (error) {
      if (isCurrent() && current === request) body.replaceChildren(showError(error));
    }
  }

  document.title = "Accelerator hours – rlt";
  document.getElementById("where").textContent = "";
  main.replaceChildren(el("div", { class: "toolbar" }, el("h1", {}, "Accelerator hours"), el("label", {}, "Add up by ", choose("by", GROUPS)), el("label", {}, "Window ", choose("days", WINDOWS))), body);
  await load();
  return async () => {
    if (Date.now() - loaded >= UNCHANGED_MS) await load();
  };
}
