// Which plots the page has, and the metrics in each, by verl's names. The first name that a run has counts. A wide plot
// shows the whole band: the mean of advantages is close to 0.

export const PLOTS = [
  { title: "Reward", unit: "reward", lines: { mean: ["critic/rewards/mean", "critic/score/mean"] }, band: "critic/rewards" },
  { title: "Rewards by name", unit: "reward", pattern: /^reward\/(.+)\/mean$/, least: 2 },
  { title: "Validation", unit: "score", pattern: /^val-core\/(.+\/mean@\d+.*)$/, sparse: true },
  { title: "KL to the reference model", unit: "nats", lines: { KL: ["actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"] } },
  { title: "KL of engine and trainer", unit: "nats", lines: { KL: ["rollout_corr/kl"] } },
  { title: "Difference of engine and trainer", unit: "probability", lines: { mean: ["training/rollout_probs_diff_mean"], maximum: ["training/rollout_probs_diff_max"] } },
  { title: "Staleness", unit: "steps", lines: { mean: ["training/staleness/mean"], maximum: ["training/staleness/max"] } },
  { title: "Entropy", unit: "nats", lines: { entropy: ["actor/entropy", "actor/entropy_loss"] } },
  { title: "Response length", unit: "tokens", lines: { mean: ["response_length/mean"] }, band: "response_length" },
  { title: "Truncated responses", unit: "share of responses", lines: { truncated: ["response_length/clip_ratio"] } },
  { title: "Clipped tokens", unit: "share of tokens", lines: { clipped: ["actor/pg_clipfrac"], "dual clip": ["actor/pg_clipfrac_lower"] } },
  { title: "Gradient norm", unit: "norm before clipping", lines: { norm: ["actor/grad_norm"] } },
  { title: "Policy loss", unit: "loss", lines: { loss: ["actor/pg_loss"] } },
  { title: "Advantage", unit: "advantage", lines: { mean: ["critic/advantages/mean"] }, band: "critic/advantages", wide: true },
  { title: "Learning rate", unit: "rate", lines: { rate: ["actor/lr"] } },
  { title: "Throughput of a device", unit: "tokens/s", lines: { tokens: ["perf/throughput"] } },
];

export const TILES = [
  { title: "Reward, mean of 10 steps", names: ["critic/rewards/mean", "critic/score/mean"], unit: "", window: 10 },
  { title: "KL", names: ["actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"], unit: "nats" },
  { title: "Entropy", names: ["actor/entropy", "actor/entropy_loss"], unit: "nats" },
  { title: "Response length", names: ["response_length/mean"], unit: "tokens" },
  { title: "Truncated", names: ["response_length/clip_ratio"], unit: "%", factor: 100 },
  { title: "Step time", names: ["timing_s/step"], unit: "s" },
  { title: "Tokens per second", names: ["perf/total_num_tokens"], per: "timing_s/step", unit: "tokens/s" },
  { title: "MFU", names: ["perf/mfu/actor"], unit: "%", factor: 100 },
];

/** The edges of a band, the upper one first. A band of quantiles stays narrow where one response of a batch is extreme. */
const BANDS = [
  { "90 %": "p90", "10 %": "p10" },
  { maximum: "max", minimum: "min" },
];

const find = (metrics, names) => names.find((name) => name in metrics);

/** Label -> name of the metric for the lines of a plot that the run has. */
export function findLines(plot, metrics) {
  if (plot.pattern) {
    const found = Object.keys(metrics).map((name) => [name.match(plot.pattern)?.[1], name]).filter(([label]) => label);
    return found.length >= (plot.least ?? 1) ? Object.fromEntries(found.slice(0, 8)) : {};
  }
  const found = Object.entries(plot.lines).map(([label, names]) => [label, find(metrics, names)]);
  return Object.fromEntries(found.filter(([, name]) => name));
}

/** Label -> name of the metric for the edges of a plot's band: the first ones that the run has. */
export function findBand(plot, metrics) {
  if (!plot.band) return [];
  const bands = BANDS.map((edges) => Object.entries(edges).map(([label, statistic]) => [label, `${plot.band}/${statistic}`]));
  return bands.find((edges) => edges.every(([, name]) => name in metrics)) ?? [];
}

/** The values of a tile. Null if the run does not have the metric. */
export function findTile(tile, metrics) {
  const name = find(metrics, tile.names);
  if (!name) return null;
  const divisor = tile.per && metrics[tile.per];
  if (tile.per && !divisor) return null;
  return metrics[name].map((value, i) => (Number.isFinite(value) ? (value * (tile.factor ?? 1)) / (divisor ? divisor[i] : 1) : null));
}
