// Numbers and times as text.

/** Four significant digits. "–" if the value is missing. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

/** A number with its sign. */
export const signed = (value) => (Number.isFinite(value) ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value))}` : "–");

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1).replace(/\.0$/, "")} %`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${number(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Age of a Unix time in seconds. */
export function age(time) {
  if (!time) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - time);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

const PHASES = {
  gen: "generation of the responses",
  generate_sequences: "generation of the responses, in the engines",
  reward: "computation of the rewards",
  old_log_prob: "log-probabilities of the responses under the policy that the update starts from",
  ref: "log-probabilities under the reference model",
  values: "values of the critic",
  adv: "computation of the advantages",
  update_actor: "update of the policy",
  update_critic: "update of the critic",
  update_weights: "sync of the new weights to the engines",
  sync: "sync of the new weights to the engines",
  testing: "validation",
  save_checkpoint: "checkpoint",
  step: "the whole step",
};

/** What a phase of a step is, by verl's name. */
export const explainPhase = (phase) => PHASES[phase] ?? null;

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
