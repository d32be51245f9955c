// The attempts of a job on one time axis.

import { el } from "./dom.js";
import { duration, number } from "./text.js";

/** `attempts`: see timeline.py. Null without a recorded time. */
export function timeline(attempts) {
  const now = Date.now() / 1000;
  const bars = attempts.map((each, i) => {
    const start = each.start ?? attempts[i - 1]?.end;
    return { ...each, from: start, to: Math.max(start, each.end ?? now) };
  }).filter((each) => Number.isFinite(each.from) && Number.isFinite(each.to));
  if (!bars.length) return null;
  const first = Math.min(...bars.map((each) => each.from));
  const length = Math.max(...bars.map((each) => each.to)) - first || 1;
  return el(
    "div",
    {},
    el("ol", { class: "timeline", "aria-label": "Timeline of attempts" }, bars.map((each) => row(each, first, length))),
    el("div", { class: "axis" }, [0, 0.5, 1].map((part) => el("span", {}, part ? `+${duration(Math.round(length * part))}` : new Date(1000 * first).toLocaleString([], { dateStyle: "short", timeStyle: "short" })))),
  );
}

function row(each, first, length) {
  const bar = el("span", { class: "bar", "data-outcome": each.outcome });
  bar.style.marginLeft = `${(100 * (each.from - first)) / length}%`;
  bar.style.width = `${(100 * (each.to - each.from)) / length}%`;
  const facts = [
    each.reason || each.outcome,
    Number.isFinite(each.step) ? `step ${number(each.step)}` : null,
    `${each.end === null ? "for " : ""}${each.start === null ? "at most " : ""}${duration(Math.round(each.to - each.from))}`,
  ];
  return el("li", {}, el("span", { class: "name" }, `Attempt ${each.number}`), el("span", { class: "track" }, bar), el("span", { class: "fact" }, facts.filter(Boolean).join(", ")));
}
