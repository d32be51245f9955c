// The logs of a run: of its pods and of its attempts, live.

import { followLog, get } from "./api.js";
import { el, empty, notes } from "./dom.js";

const NEAR_END = 40; // pixels
const STEP_LINE = /(^|\s)step:\d+ - \S+:/; // the metrics of a step, of which the page has plots

export function logs(run) {
  const select = el("select", { onchange: () => open(select.value) });
  const search = el("input", { type: "search", oninput: () => show() });
  const steps = el("input", { type: "checkbox", onchange: () => show() });
  const follow = el("input", { type: "checkbox", checked: true, onchange: () => show() });
  const state = el("span", { class: "muted", role: "status" });
  const text = el("pre", { class: "text log", tabindex: 0, "aria-label": "End of the log" });
  const missing = el("div");
  const bar = el("div", { class: "toolbar" }, el("label", {}, "Log ", select), el("label", {}, "Lines with ", search), el("label", {}, steps, " Step lines"), el("label", {}, follow, " Follow"), state);
  let known = "";
  let chosen = null;
  let found = null;
  let end = () => {};
  let hasEnded = false;
  text.addEventListener("scroll", () => (follow.checked = text.scrollHeight - text.scrollTop - text.clientHeight < NEAR_END));

  function open(log) {
    end();
    [chosen, found] = [log, null];
    state.textContent = "Loading…";
    text.replaceChildren();
    end = followLog(run, log, (event) => {
      found = event.text === undefined ? found : event;
      state.textContent = event.problem ?? "";
      show();
    });
  }

  function show() {
    if (!found) return;
    const wanted = search.value.toLowerCase();
    const lines = found.text.split("\n").filter((line) => (steps.checked || !STEP_LINE.test(line)) && line.toLowerCase().includes(wanted));
    const content = lines.join("\n");
    if (text.textContent !== content) text.textContent = content;
    if (!state.textContent || !found.text) state.textContent = !found.text ? "The log is empty." : found.isCut ? "The end of the log" : "The whole log";
    if (follow.checked) text.scrollTop = text.scrollHeight;
  }

  return {
    nodes: [bar, text, missing],
    async draw() {
      const listed = await get("logs", { run }).catch((error) => ({ logs: [], notes: [error.message] }));
      if (hasEnded) return;
      missing.replaceChildren(notes(listed.notes) ?? "");
      const ids = listed.logs.map((each) => each.id);
      if (!ids.includes(chosen) && ids.length) open(ids[0]);
      bar.hidden = text.hidden = !ids.length;
      if (!ids.length) missing.prepend(empty("There are no logs."));
      if (JSON.stringify(listed.logs) === known) return;
      known = JSON.stringify(listed.logs);
      select.replaceChildren(...listed.logs.map((each) => el("option", { value: each.id, selected: each.id === chosen }, each.title)));
    },
    end() {
      hasEnded = true;
      end();
    },
  };
}
