// The tokens of responses, colored by their advantage or mismatch.

import { el } from "./dom.js";
import { signed } from "./text.js";

export const COLORINGS = { advantages: "advantage", mismatches: "mismatch" };
const STRONGEST = 40; // percent of the color

/** The largest absolute value of some rollouts' tokens. 0 if none has the values. */
export function findScale(rollouts, coloring) {
  const values = rollouts.flatMap((each) => each.by_token?.[coloring] ?? []);
  return values.reduce((high, value) => (Number.isFinite(value) ? Math.max(high, Math.abs(value)) : high), 0);
}

/** The tokens of a rollout. Null if it does not have the values. */
export function heat(rollout, coloring, scale) {
  const values = rollout.by_token?.[coloring];
  if (!values) return null;
  const { texts } = rollout.by_token;
  const rest = (rollout.tokens ?? texts.length) - texts.length;
  return el(
    "pre",
    { class: "text", tabindex: 0, "aria-label": `Tokens by ${COLORINGS[coloring]}` },
    texts.map((text, i) => paint(text, values[i], rollout.by_token, i, scale)),
    rest > 0 ? `\n… (${rest} more tokens)` : null,
  );
}

function paint(text, value, values, i, scale) {
  const facts = Object.entries(COLORINGS).filter(([key]) => values[key]).map(([key, name]) => `${name} ${signed(values[key][i])}`);
  const token = el("span", { class: Number.isFinite(value) ? "token" : "token given", title: facts.join(", ") }, text === "\n" ? "⏎\n" : text);
  if (Number.isFinite(value) && value !== 0) token.style.background = tint(value / (scale || 1));
  return token;
}

/** Blue above 0, orange below. `part`: -1 to 1. */
const tint = (part) => `color-mix(in srgb, var(${part > 0 ? "--series-1" : "--series-2"}) ${(STRONGEST * Math.abs(part)).toFixed(1)}%, transparent)`;

export function legend(scale) {
  return el("span", { class: "legend" }, [-1, -0.5, 0, 0.5, 1].map((part) => {
    const cell = el("span", {}, Number.isInteger(part) ? signed(part * scale) : "");
    cell.style.background = part ? tint(part) : "";
    return cell;
  }));
}
