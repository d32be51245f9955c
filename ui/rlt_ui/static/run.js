// One run: header, tabs, and what each tab shows. A report shows all parts below each other.

import { get, records } from "./api.js";
import { el, empty, notes, section, table } from "./dom.js";
import { evaluations, findSuites } from "./evaluations.js";
import { controls, learning, tiles } from "./learning.js";
import { logs } from "./logs.js";
import { findName, metrics, wanted } from "./metrics.js";
import { extremes, rollouts } from "./rollouts.js";
import { bar, phaseBadge } from "./runs.js";
import { age, duration, percent, plural } from "./text.js";
import { timeline } from "./timeline.js";
import { timing } from "./timing.js";

const TABS = { overview: "Overview", metrics: "Metrics", evaluations: "Evaluations", timing: "Time", rollouts: "Rollouts", state: "State", logs: "Logs", config: "Config" };
const REPORTED = ["overview", "evaluations", "timing", "rollouts", "state", "config"];

export async function showRun(main, run, tab, isCurrent) {
  let [info, data] = await Promise.all([get("run", { run }), get("metrics", { run })]);
  if (!isCurrent()) return () => {};
  document.title = `${info.name} – rlt`;
  document.getElementById("where").textContent = info.source;
  const head = el("div");
  const extra = el("div");
  const parts = { overview, metrics: recorded, evaluations: suites, timing: time, rollouts: browse, state: lifecycle, logs: output, config };
  const shown = (records ? REPORTED : [tab in parts ? tab : "overview"]).map((name) => parts[name]());

  function draw() {
    head.replaceChildren(header(run, info, data));
    extra.replaceChildren(...[notes([...new Set([...(info.notes ?? []), ...(data.notes ?? [])])])].filter(Boolean));
    for (const each of shown) each.draw();
  }

  function overview() {
    const plots = learning();
    const [top, findings] = [el("div"), el("div")];
    return {
      nodes: [findings, top, section("Learning", controls(() => plots.redraw()), el("div", { class: "charts" }, plots.nodes))],
      draw() {
        findings.replaceChildren(cards(info.findings ?? [], (text) => plotLink(findName(text, data.metrics))));
        top.replaceChildren(data.steps.length ? tiles(data) : "");
        plots.draw(data);
      },
    };
  }

  function recorded() {
    const shown = metrics();
    return { nodes: shown.nodes, draw: () => shown.draw(data) };
  }

  function suites() {
    if (records && !findSuites(info, data).length) return { nodes: [], draw() {} };
    const shown = evaluations(run);
    return { nodes: shown.nodes, draw: () => shown.draw(info, data) };
  }

  /** A link to the plot of a metric. Null without one, and in a report. */
  function plotLink(name) {
    if (!name || records) return null;
    return el("a", { href: `#/run/${encodeURIComponent(run)}/metrics`, onclick: () => (wanted.text = name) }, `Plot of ${name}`);
  }

  function time() {
    const shown = timing(run);
    return { nodes: shown.nodes, draw: () => shown.draw(data) };
  }

  function browse() {
    if (records) return extremes(records.rollouts);
    const shown = rollouts(run);
    return { nodes: [section("Rollouts", ...shown.nodes)], draw: shown.draw };
  }

  function lifecycle() {
    const place = el("div");
    return { nodes: [place], draw: () => place.replaceChildren(...state(info)) };
  }

  function output() {
    const shown = logs(run);
    return { ...shown, nodes: [section("Logs", ...shown.nodes)] };
  }

  function config() {
    const search = el("input", { type: "search", oninput: () => draw() });
    const only = el("input", { type: "checkbox", onchange: () => draw() });
    const place = el("div");
    function draw() {
      const defaults = new Map(Object.entries(info.changed ?? {}));
      const rows = flatten(info.config ?? {})
        .filter(([path, value]) => `${path} ${value}`.toLowerCase().includes(search.value.toLowerCase()))
        .filter(([path]) => !only.checked || defaults.has(path))
        .map(([path, value]) => [path, value, defaults.has(path) ? describeDefault(defaults.get(path)) : ""]);
      place.replaceChildren(rows.length ? table("Resolved configuration", [["Field", "path"], ["Value", "mono"], ["Default", ""]], rows) : empty(Object.keys(info.config ?? {}).length ? "No field matches." : "The configuration is not recorded."));
    }
    return { nodes: [section("Resolved configuration", el("div", { class: "toolbar" }, el("label", {}, "Search ", search), el("label", {}, only, " Only fields that differ from their default")), place)], draw };
  }

  const links = records ? [] : Object.entries(TABS).map(([key, title]) =>
    el("a", { href: `#/run/${encodeURIComponent(run)}/${key}`, "aria-current": key === tab ? "page" : null }, title),
  );
  const tabs = links.length ? el("nav", { class: "tabs", "aria-label": "Parts of the run" }, links) : "";
  main.replaceChildren(head, extra, tabs, ...shown.flatMap((each) => each.nodes));
  links.find((each) => each.hasAttribute("aria-current"))?.scrollIntoView({ block: "nearest", inline: "nearest" });
  draw();

  async function refresh() {
    [info, data] = await Promise.all([get("run", { run }), get("metrics", { run })]);
    if (isCurrent()) draw();
  }
  refresh.end = () => shown.forEach((each) => each.end?.());
  return refresh;
}

function header(run, info, data) {
  const seconds = data.seconds.at(-1) ?? 0;
  const durations = (data.metrics["timing_s/step"] ?? []).slice(-10).filter(Number.isFinite);
  const mean = durations.reduce((sum, each) => sum + each, 0) / (durations.length || 1);
  const left = info.totalSteps ? (info.totalSteps - info.step) * mean : null;
  const facts = [
    ["Model", info.model],
    ["Algorithm", info.algorithm],
    ["Time of steps", seconds ? duration(seconds) : null],
    ["Time left", records ? null : info.eta ?? (left > 0 && durations.length ? `about ${duration(left)}` : null)],
    ["GPUs", info.gpus],
    ["Updated", info.updated ? age(info.updated) : null],
    ...Object.entries(info.details ?? {}).map(([name, value]) => [name[0].toUpperCase() + name.slice(1), value]),
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el(
    "div",
    { class: "head" },
    el("div", { class: "toolbar" }, el("h1", {}, info.name), phaseBadge(info.phase), bar(info.step ?? 0, info.totalSteps), info.totalSteps ? el("span", { class: "muted" }, percent(Math.min(1, info.step / info.totalSteps))) : null, records ? null : el("a", { href: `api/report?run=${encodeURIComponent(run)}`, download: "" }, "Export as HTML")),
    el("p", { class: "sentence" }, info.sentence),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value))))),
  );
}

function cards(findings, plotLink) {
  if (!findings.length) return el("p", { class: "good" }, "No problems found.");
  return el("div", { class: "findings" }, findings.map((each) => el(
    "article",
    { class: "card finding", "data-severity": each.severity ?? "" },
    el("h3", {}, el("span", { class: "badge warning" }, each.severity ?? "finding"), " ", each.code ?? ""),
    el("p", {}, each.message ?? ""),
    where(each) ? el("p", {}, "Where: ", where(each)) : null,
    each.evidence ? el("p", {}, "Evidence: ", el("span", { class: "mono" }, each.evidence)) : null,
    plotLink(each.evidence ?? "") ? el("p", {}, plotLink(each.evidence)) : null,
    each.remedy ? el("p", {}, "Remedy: ", each.remedy) : null,
    /^https:\/\//.test(each.source ?? "") ? el("p", {}, el("a", { href: each.source, rel: "noreferrer noopener", target: "_blank" }, "Source")) : null,
  )));
}

const where = ({ pod, node, rank }) => [pod, node, rank === undefined || rank === null ? null : `rank ${rank}`].filter(Boolean).join(", ");

const time = (text) => (text ? new Date(text).toLocaleString() : "–");

function state(info) {
  const parts = [];
  if (info.preflight?.length) {
    parts.push(section("Preflight checks", table("Preflight checks", [["Check", ""], ["Result", ""], ["Value", "mono"], ["Limit", "mono"], ["Message", ""]], info.preflight.map((each) => [
      each.name,
      el("span", { class: `badge ${each.result}` }, { passed: "✓ passed", warned: "! warned", failed: "✗ failed" }[each.result] ?? each.result),
      each.value ?? "",
      each.threshold ?? "",
      [each.message, each.remedy].filter(Boolean).join(" "),
    ]))));
  }
  if (info.attempts?.length || info.timeline?.length) {
    const times = timeline(info.timeline ?? []);
    parts.push(section("Attempts", times ?? "", !info.attempts?.length ? "" : table("Attempts", [["Attempt", "num"], ["Started", ""], ["Ended", ""], ["Reason", ""], ["Step", "num"], ["Node at fault", ""], ["Message", ""]], info.attempts.map((each) => [
      String(each.number),
      time(each.startTime),
      each.completionTime ? time(each.completionTime) : each.logTime ? `last log line ${age(each.logTime)}` : "–",
      each.reason ?? "not recorded",
      each.step === undefined ? "–" : String(each.step),
      each.nodeAtFault ?? "–",
      each.message ?? "",
    ]))));
  }
  if (info.conditions?.length) {
    parts.push(section("Conditions", table("Conditions", [["Condition", ""], ["Status", ""], ["Reason", ""], ["Since", ""], ["Message", ""]], info.conditions.map((each) => [each.type, each.status, each.reason ?? "", time(each.lastTransitionTime), each.message ?? ""]))));
  }
  if (info.pods) {
    parts.push(section("Pods", !info.pods.length ? el("p", { class: "muted" }, "The job has no pods.") : table("Pods", [["Pod", ""], ["Node", ""], ["Phase", ""], ["Ready", ""], ["Restarts", "num"]], info.pods.map((each) => [each.name, each.node ?? "–", each.phase ?? "", each.ready ? "yes" : "no", String(each.restarts)]))));
  }
  if (info.events?.length) {
    parts.push(section("Events", table("Events", [["Last seen", ""], ["Type", ""], ["Reason", ""], ["Count", "num"], ["Message", ""]], info.events.map((each) => [time(each.time), each.type === "Warning" ? el("span", { class: "badge warning" }, each.type) : each.type, each.reason, String(each.count), each.message]))));
  }
  if (info.network) parts.push(network(info.network));
  if (info.missing?.length) parts.push(section("Not recorded here", el("p", {}, `A run directory has no ${info.missing.join(", no ")}: they are in the status of the job. Pass the name of the job to see them.`)));
  if (info.commands?.length) parts.push(section("Commands", el("ul", { class: "commands" }, info.commands.map((each) => el("li", {}, el("code", {}, each))))));
  return parts.length || records ? parts : [empty("Nothing is recorded.")];
}

function network(found) {
  const facts = [["Profile", found.profile], ["Fabric", found.fabric], ["Vendor", found.vendor], ["Candidate nodes", found.candidates], ["Attachment", found.attach?.mode]].filter(([, value]) => value !== undefined);
  return section(
    "Network",
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value))))),
    notes(found.warnings) ?? "",
    found.evidence?.length ? el("ul", {}, found.evidence.map((each) => el("li", {}, each))) : "",
    found.env?.length ? table(plural(found.env.length, "variable"), [["Variable", "mono"], ["Value", "mono"], ["Reason", ""]], found.env.map((each) => [each.name, String(each.value ?? ""), each.rule ?? ""])) : "",
  );
}

/** The default of a field that has another value. null: the field has no default. */
function describeDefault(value) {
  const badge = el("span", { class: "badge" }, "not the default");
  return value === null ? badge : el("span", {}, badge, " ", el("span", { class: "mono muted" }, flatten(value)[0]?.[1] ?? "none"));
}

/** Path and text of each value in nested JSON. */
function flatten(value, path = "") {
  if (value === null || typeof value !== "object" || (Array.isArray(value) && value.every((each) => each === null || typeof each !== "object"))) {
    return [[path, typeof value === "string" ? value : JSON.stringify(value)]];
  }
  const entries = Array.isArray(value) ? value.map((each, i) => [`${path}[${i}]`, each]) : Object.entries(value).map(([key, each]) => [path ? `${path}.${key}` : key, each]);
  return entries.flatMap(([key, each]) => flatten(each, key));
}

