// The suites of a run: scores by step with their intervals, paired gains, gates, and the prompts whose score has changed.

import { get, records } from "./api.js";
import { color, createChart } from "./charts.js";
import { el, empty, notes, section, table } from "./dom.js";
import { number, plural, signed } from "./text.js";

const MEAN = /^val\/(.+)\/reward\/mean$/;
const VERDICTS = { true: ["passed", "✓ passed"], false: ["failed", "✗ failed"], null: ["warned", "? unknown"] };
const PREVIEW = 120;
const MAX_SUITES = 16; // of spec.evaluation

const preview = (text) => (text === undefined ? "not recorded" : text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text);
const scoreOf = (value) => (value === undefined ? "–" : number(value));
const range = (low, high, format) => (Number.isFinite(low) && Number.isFinite(high) ? `${format(low)} to ${format(high)}` : "–");

/** The suites of a run in the order of spec.evaluation: name, gate (promoteIf), verdict, and the values of each step. */
export function findSuites(info, data) {
  const configured = Array.isArray(info.config?.evaluation) ? info.config.evaluation : [];
  const settings = new Map(configured.filter((each) => typeof each?.name === "string").map((each) => [each.name, each]));
  const evaluated = Object.keys(data.metrics).map((name) => name.match(MEAN)?.[1]).filter(Boolean);
  const promoted = info.conditions?.find((each) => each.type === "Promoted");
  const results = new Map((info.gates ?? []).map((each) => [each.suite, each]));
  return [...new Set([...settings.keys(), ...evaluated])].slice(0, MAX_SUITES).map((name) => {
    const gate = settings.get(name)?.promoteIf ?? null;
    const result = results.get(name) ?? (gate && promoted?.status === "True" ? { passed: true } : null);
    const missing = promoted?.status === "False" ? "see Promoted" : "not decided";
    return { name, gate, result, missing, ...readValues(name, data) };
  });
}

/** The steps in which a suite has a mean, and the values of its metrics in these steps. */
function readValues(name, data) {
  const means = data.metrics[`val/${name}/reward/mean`] ?? [];
  const rows = means.map((value, row) => (Number.isFinite(value) ? row : -1)).filter((row) => row >= 0);
  const read = (metric) => rows.map((row) => data.metrics[`val/${name}/reward/${metric}`]?.[row] ?? null);
  const values = Object.fromEntries(["mean", "low", "high", "gain", "gain_low", "gain_high"].map((metric) => [metric, read(metric)]));
  return { steps: rows.map((row) => data.steps[row]), values };
}

/** Curve, band and bound of a suite. `names`: the metrics of the curve and its limits. `field`: of promoteIf, with the bound. */
function build({ gate, steps, values }, names, field, label) {
  const [middle, low, high] = names.map((name) => values[name]);
  const edge = { color: color(0), width: 0.5, faint: true, points: false };
  const bound = metricOf(gate) === "mean" ? gate?.[field] : undefined; // of best@N and maj@N there is no curve
  const hasBand = low.some(Number.isFinite);
  const series = hasBand ? [{ label: "95 % high", values: high, ...edge }, { label: "95 % low", values: low, ...edge }] : [];
  series.push({ label, values: middle, color: color(0), points: { show: true } });
  if (Number.isFinite(bound)) series.push({ label: "bound", values: steps.map(() => bound), color: color(1), width: 1.25, points: false });
  const last = middle.findLast(Number.isFinite);
  return { x: steps, xLabel: "step", yLabel: label, series, bands: hasBand ? [{ series: [1, 2], fill: `${color(0)}26` }] : [], summary: last === undefined ? "" : `latest ${number(last)}` };
}

const metricOf = (gate) => gate?.metric ?? "mean";
const buildScore = (suite) => build(suite, ["mean", "low", "high"], "minimum", "mean score");
const buildGain = (suite) => build(suite, ["gain", "gain_low", "gain_high"], "gainAbove", "gain");

function describeGate(gate) {
  if (!gate) return el("span", { class: "muted" }, "none");
  const metric = metricOf(gate) === "mean" ? "mean" : `${gate.metric}@N`;
  const bounds = [];
  if (Number.isFinite(gate.gainAbove)) bounds.push(`gain of ${metric}, lower limit > ${number(gate.gainAbove)}`);
  if (Number.isFinite(gate.minimum)) bounds.push(`${metric} ≥ ${number(gate.minimum)}`);
  return bounds.join("; ");
}

function verdict({ gate, result, missing }) {
  if (!result) return gate ? el("span", { class: "muted" }, missing) : "–";
  const [kind, text] = VERDICTS[result.passed ?? null];
  return [el("span", { class: `badge ${kind}` }, text), result.evidence ? el("div", { class: "muted" }, result.evidence) : null];
}

function summary(suites) {
  const columns = [["Suite", "sample"], ["Step", "num"], ["Mean", "num"], ["95 % interval", "num"], ["Gain", "num"], ["95 % interval of the gain", "num"], ["Gate", "sample"], ["Verdict", "sample"]];
  return table("Suites", columns, suites.map((suite) => {
    const last = (name) => suite.values[name].at(-1);
    return [
      suite.name,
      suite.steps.length ? number(suite.steps.at(-1)) : "–",
      scoreOf(last("mean")),
      range(last("low"), last("high"), number),
      signed(last("gain")),
      range(last("gain_low"), last("gain_high"), signed),
      describeGate(suite.gate),
      verdict(suite),
    ];
  }));
}

function decision(info) {
  const found = info.conditions?.find((each) => each.type === "Promoted");
  if (!found) return "";
  const kind = { True: "passed", False: "failed" }[found.status] ?? "warned";
  return el("p", {}, el("span", { class: `badge ${kind}` }, `Promoted: ${found.status}`), " ", [found.reason, found.message].filter(Boolean).join(": "));
}

/** The prompts with another score than before the first step. */
function changes(run) {
  let found = { suites: [], notes: [] };
  let shown = "";
  let request = 0;
  const select = el("select", { onchange: () => show() });
  const kind = el("select", { onchange: () => show() }, el("option", { value: "won" }, "won"), el("option", { value: "lost" }, "lost"));
  const tools = el("div", { class: "toolbar" }, el("label", {}, "Suite ", select), el("label", {}, "Samples that were ", kind));
  const body = el("div");
  const dialog = el("dialog", { class: "group", "aria-labelledby": "change-title" });
  const card = section("Samples that changed", tools, body, dialog);

  function show() {
    const suite = found.suites.find((each) => each.suite === select.value);
    tools.hidden = !suite;
    const missing = notes(found.notes) ?? "";
    if (!suite) return body.replaceChildren(missing || empty("No changes are recorded: they need a suite with beforeTrain, and an evaluation after a step."));
    const won = kind.value === "won";
    const samples = suite.samples.filter((each) => each.score > each.baseScore === won);
    const total = won ? suite.won : suite.lost;
    body.replaceChildren(
      el("p", {}, `Step ${number(suite.step)} against the model before the first step, ${plural(suite.prompts, "prompt")} in both: `, el("span", { class: "difference up" }, `${number(suite.won)} won`), ", ", el("span", { class: "difference down" }, `${number(suite.lost)} lost`), `, ${number(suite.prompts - suite.won - suite.lost)} equal.`, samples.length < total ? ` The ${plural(samples.length, "largest change")} of ${number(total)} are recorded.` : ""),
      samples.length ? rows(samples, suite) : empty(`No sample was ${kind.value}.`),
      missing,
    );
  }

  function rows(samples, suite) {
    return table("Samples that changed", [["Number", "num"], ["Prompt", "sample"], ["Answer", "sample"], ["Before", "num"], ["After", "num"], ["Change", "num"], ["Responses", ""]], samples.map((each) => [
      number(each.index),
      preview(each.prompt),
      preview(each.answer),
      number(each.baseScore),
      number(each.score),
      el("span", { class: `difference ${each.score > each.baseScore ? "up" : "down"}` }, signed(each.score - each.baseScore)),
      el("button", { type: "button", "aria-label": `Compare responses to prompt ${each.index}`, onclick: () => open(each, suite) }, "Compare"),
    ]));
  }

  function open(sample, suite) {
    const article = (title, score, text) => el("article", {}, el("h3", {}, `${title}: mean score ${number(score)}`), text === undefined ? el("p", { class: "muted" }, "The file of this evaluation has no texts of this prompt.") : el("pre", { class: "text", tabindex: 0 }, text));
    dialog.replaceChildren(
      el("div", { class: "toolbar" }, el("h2", { id: "change-title" }, `${suite.suite}, prompt ${sample.index}`), el("span", { class: "grow" }), el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")),
      el("pre", { class: "text", tabindex: 0, "aria-label": "Prompt" }, sample.prompt ?? ""),
      sample.answer === undefined ? "" : el("p", {}, "Answer: ", el("span", { class: "mono" }, sample.answer)),
      el("div", { class: "siblings" }, article("Before the first step", sample.baseScore, sample.baseResponse), article(`Step ${suite.step}`, sample.score, sample.response)),
    );
    dialog.showModal();
  }

  async function load() {
    const current = ++request;
    try {
      const answer = await get("changes", { run });
      if (current !== request) return;
      found = answer;
    } catch (error) {
      if (current !== request) return;
      found = { suites: [], notes: [error.message] };
    }
    const chosen = select.value;
    select.replaceChildren(...found.suites.map((each) => el("option", { value: each.suite, selected: each.suite === chosen }, each.suite)));
    show();
  }

  return {
    card,
    draw(suites) {
      card.hidden = !suites.length;
      const state = JSON.stringify(suites.map((each) => each.steps.at(-1)));
      if (state === shown || !suites.length) return;
      shown = state;
      load();
    },
  };
}

export function evaluations(run) {
  const [top, groups] = [el("div"), el("div", { class: "groups" })];
  const plots = section("Scores and paired gains by step", groups);
  const samples = records ? null : changes(run);
  let charts = [];
  let names = null;
  return {
    nodes: [top, plots, ...(samples ? [samples.card] : [])],
    draw(info, data) {
      const suites = findSuites(info, data);
      const none = records ? "" : empty("The run has no suites: spec.evaluation is empty. Metrics has the validation of other programs.");
      top.replaceChildren(suites.length ? section("Suites", decision(info), summary(suites), el("p", { class: "muted" }, "Gain: the difference to the model before the first step, paired by prompt. Intervals are about other prompts of the same kind.")) : none);
      plots.hidden = !suites.some((each) => each.steps.length);
      if (names !== suites.map((each) => each.name).join("\n")) {
        names = suites.map((each) => each.name).join("\n");
        charts = suites.map(({ name }) => [createChart(`${name}: score`, buildScore), createChart(`${name}: gain`, buildGain)]);
        groups.replaceChildren(...charts.map((pair) => el("div", { class: "charts pair" }, pair.map((chart) => chart.figure))));
      }
      suites.forEach((suite, i) => charts[i].forEach((chart) => chart.draw(suite)));
      samples?.draw(suites);
    },
  };
}
