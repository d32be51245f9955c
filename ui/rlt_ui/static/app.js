// The page: routes and the live connection. Views are functions of main and parameters that return `refresh`, and `refresh.end` if they follow more.

import { follow } from "./api.js";
import { showComparison } from "./compare.js";
import { el, showError } from "./dom.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { startTheme } from "./theme.js";
import { showUsage } from "./usage.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
let endPrevious = () => {};

function setState(state, text) {
  if (live.dataset.state === state && live.textContent === text) return;
  live.dataset.state = state;
  live.textContent = text;
}

async function route() {
  endPrevious();
  const [, view = "", first = "", tab = ""] = location.hash.replace(/^#main$/, "#/").slice(1).split("/");
  const names = first.split(",").map(decodeURIComponent).filter(Boolean);
  const run = view === "run" ? names[0] : null;
  let refreshing = false;
  let current = true;
  main.replaceChildren(el("p", { class: "loading" }, "Loading…"));

  let refresh = null;
  async function update() {
    if (refreshing) return;
    refreshing = true;
    try {
      if (refresh) await refresh();
      else if (view === "run" && run) refresh = await showRun(main, run, tab || "overview", () => current);
      else if (view === "compare") refresh = await showComparison(main, names, () => current);
      else if (view === "usage") refresh = await showUsage(main, () => current);
      else refresh = await showRuns(main, () => current);
    } catch (error) {
      if (current) main.replaceChildren(showError(error));
      refresh?.end?.();
      refresh = null;
    }
    if (!current) refresh?.end?.();
    refreshing = false;
  }

  const end = follow(run, update, setState);
  endPrevious = () => {
    current = false;
    end();
    refresh?.end?.();
  };
  await update();
}

if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `${location.pathname}${location.hash}`);
startTheme();
addEventListener("hashchange", route);
route();
