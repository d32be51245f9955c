// The rollouts of a step: best, worst, search, and the responses to one prompt side by side.

import { get } from "./api.js";
import { el, empty, notes, section } from "./dom.js";
import { COLORINGS, findScale, heat, legend } from "./heat.js";
import { number, plural, signed } from "./text.js";

const PAGE = 20;
const PREVIEW = 160;
const SEARCH_MS = 250;

const preview = (text) => (text?.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : (text ?? ""));
const sign = (value) => (Number.isFinite(value) ? (value > 0 ? "up" : value < 0 ? "down" : "") : "");

function sideRequest(segment) {
  return el("span", { class: "given", title: "a side request of the agent, with its response: not trained on" }, `[side request, not trained on]\n${segment.text}\n`);
}

function content(rollout) {
  const segments = rollout.segments;
  if (!segments) return el("pre", { class: "text", tabindex: 0 }, rollout.response ?? "");
  return el("pre", { class: "text", tabindex: 0 }, segments.map((each) => (each.side ? sideRequest(each) : el("span", { class: each.learned ? "learned" : "given", title: each.learned ? "tokens of the policy" : "tokens of the environment" }, each.text))));
}

function answer(rollout) {
  const found = rollout.ground_truth;
  return found === undefined || found === null ? null : el("span", { class: "term" }, `answer ${preview(String(found))}`);
}

function terms(rollout) {
  const rewards = Object.entries(rollout.rewards ?? {});
  return rewards.length > 1 ? rewards.map(([name, value]) => el("span", { class: "term" }, `${name} ${number(value)}`)) : [];
}

/** What the step recorded about a response. "–": the program does not record it. */
function recorded(rollout) {
  const facts = [
    ["advantage", signed(rollout.advantage), "mean advantage of the sampled tokens"],
    ["tokens", number(rollout.tokens), "length of the response"],
    ["finish_reason", rollout.finish_reason ?? "–", "why the response ended"],
  ].map(([key, text, title]) => el("span", { class: "term", title: rollout[key] === undefined ? `${title}: not recorded` : title }, `${key.replace("_", " ")} ${text}`));
  facts.push(...[rollout.images ?? []].flat().map((name) => el("span", { class: "term", title: "an image of the prompt: a file in the pods, or below the run directory" }, `image ${name}`)));
  const optional = { data_source: "data source", index: "index", kept: "kept as", failure: "failed:" };
  const given = Object.entries(optional).filter(([key]) => rollout[key] !== undefined && rollout[key] !== null);
  return [...facts, ...given.map(([key, name]) => el("span", { class: "term" }, `${name} ${rollout[key]}`))];
}

/** The programs and files of the sandbox in which an agent ran. */
function sandbox(rollout) {
  const found = rollout.sandbox;
  if (!found) return null;
  const programs = [found.programs ?? []].flat();
  const files = [found.files ?? []].flat();
  return el(
    "details",
    {},
    el("summary", {}, `Sandbox: ${plural(found.num_programs ?? programs.length, "program")}, ${plural(files.length, "file")}`),
    el("p", { class: "terms" }, el("span", { class: "term" }, `pod ${found.pod}`), found.end ? el("span", { class: "term" }, found.end) : null),
    programs.map((each) => el("div", {}, el("p", { class: "terms" }, el("code", {}, each.command), el("span", { class: "term" }, each.problem || `exit code ${each.exit_code}`)), el("pre", { class: "text", tabindex: 0 }, each.output))),
    files.length ? el("p", { class: "terms" }, files.map((each) => el("span", { class: "term" }, `${each.path} (${number(each.size)} bytes)`))) : null,
  );
}

function sibling(rollout, isChosen, coloring, scale) {
  const tokens = heat(rollout, coloring, scale);
  return el(
    "article",
    { class: isChosen ? "chosen" : "" },
    el("h3", {}, `Reward ${rollout.reward === null ? "NaN" : number(rollout.reward)} `, rollout.difference === undefined ? null : el("span", { class: `difference ${sign(rollout.difference)}` }, signed(rollout.difference))),
    el("p", { class: "terms" }, answer(rollout), terms(rollout), recorded(rollout)),
    tokens ?? content(rollout),
    sandbox(rollout),
    coloring && !tokens ? el("p", { class: "muted" }, "The tokens of this response are not recorded.") : null,
  );
}

/** The rollouts of a report: few, with their whole texts. */
export function extremes(page) {
  const articles = page.rollouts.map((each) => el("div", {}, el("pre", { class: "text", tabindex: 0, "aria-label": "Prompt" }, each.prompt ?? ""), sibling(each)));
  return { nodes: articles.length ? [section(`Best and worst rollouts of step ${page.step}`, el("div", { class: "siblings" }, articles))] : [], draw() {} };
}

export function rollouts(run) {
  const query = { step: null, order: "best", search: "", offset: 0, grouped: 1 };
  let steps = [];
  let request = 0;
  let timer = null;
  const slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => go({ step: steps[Number(slider.value)], offset: 0 }, 100) });
  const shown = el("output", { class: "stepname" });
  const latest = el("button", { type: "button", onclick: () => go({ step: null, offset: 0 }) }, "Latest");
  const order = el("select", { onchange: (event) => go({ order: event.target.value, offset: 0 }) }, [
    ["best", "best first"],
    ["worst", "worst first"],
    ["highest-advantage", "highest advantage first"],
    ["lowest-advantage", "lowest advantage first"],
    ["recorded", "as recorded"],
  ].map(([value, label]) => el("option", { value, selected: value === query.order }, label)));
  const search = el("input", { type: "search", placeholder: "in prompt, response, answer", oninput: (event) => go({ search: event.target.value, offset: 0 }, SEARCH_MS) });
  const grouped = el("input", { type: "checkbox", checked: true, onchange: () => go({ grouped: Number(grouped.checked), offset: 0 }) });
  const count = el("span", { class: "muted", role: "status" });
  const body = el("div");
  const pager = el("div", { class: "toolbar" });
  const dialog = el("dialog", { class: "group", "aria-labelledby": "group-title" });

  function go(changes, delay = 0) {
    Object.assign(query, changes);
    if (query.step !== null) shown.textContent = `step ${query.step}`;
    clearTimeout(timer);
    timer = setTimeout(load, delay);
  }

  async function load() {
    const current = ++request;
    try {
      const page = await get("rollouts", { run, ...query, limit: PAGE });
      if (current === request) draw(page);
    } catch (error) {
      if (current === request) body.replaceChildren(empty(error.message));
    }
  }

  function draw(page) {
    steps = page.steps;
    slider.max = Math.max(0, steps.length - 1);
    slider.value = steps.indexOf(page.step);
    slider.disabled = steps.length < 2;
    latest.disabled = query.step === null;
    shown.textContent = page.step === null ? "" : `step ${page.step}`;
    slider.setAttribute("aria-valuetext", shown.textContent);
    count.textContent = page.matched < page.recorded ? `${page.matched} of ${plural(page.recorded, "rollout")}` : plural(page.recorded, "rollout");
    body.replaceChildren(
      page.rollouts.length ? list(page) : empty(page.recorded ? "No rollout matches the search." : "There are no rollouts."),
      notes(page.notes) ?? "",
    );
    const last = Math.min(page.matched, query.offset + PAGE);
    pager.hidden = page.matched <= PAGE;
    pager.replaceChildren(
      el("button", { type: "button", disabled: query.offset === 0, onclick: () => go({ offset: Math.max(0, query.offset - PAGE) }) }, "Previous"),
      el("span", {}, `${query.offset + 1}–${last} of ${page.matched}`),
      el("button", { type: "button", disabled: last >= page.matched, onclick: () => go({ offset: query.offset + PAGE }) }, "Next"),
    );
  }

  function list(page) {
    return el(
      "ol",
      { class: "rollouts" },
      page.rollouts.map((rollout) =>
        el(
          "li",
          {},
          el(
            "div",
            { class: "score" },
            el("span", { class: "number" }, rollout.reward === null ? "NaN" : number(rollout.reward)),
            el("span", { class: `difference ${sign(rollout.difference)}`, title: "reward minus the mean reward of the same prompt" }, signed(rollout.difference)),
          ),
          el(
            "div",
            { class: "texts" },
            el("p", { class: "prompt" }, el("span", { class: "label" }, "Prompt"), preview(rollout.prompt)),
            el("p", { class: "response" }, el("span", { class: "label" }, "Response"), preview(rollout.response)),
            el("p", { class: "terms" }, answer(rollout), terms(rollout), recorded(rollout)),
          ),
          el("button", { type: "button", onclick: () => open(rollout, page.step) }, rollout.siblings > 1 ? `Compare group of ${rollout.siblings}` : "Compare group"),
        ),
      ),
    );
  }

  async function open(rollout, step) {
    let page;
    try {
      page = rollout.index === undefined ? { rollouts: [rollout], matched: 1, notes: [] } : await get("rollouts", { run, step, group: rollout.index, limit: 64 });
    } catch (error) {
      page = { rollouts: [rollout], matched: 1, notes: [error.message] };
    }
    const siblings = el("div", { class: "siblings" });
    const scale = el("span");
    const show = (coloring) => {
      const strongest = findScale(page.rollouts, coloring);
      scale.replaceChildren(coloring ? legend(strongest) : "");
      siblings.replaceChildren(...page.rollouts.map((each) => sibling(each, each.row === rollout.row, coloring, strongest)));
    };
    const known = Object.keys(COLORINGS).filter((each) => page.rollouts.some((one) => one.by_token?.[each]));
    const select = el("select", { onchange: () => show(select.value) }, el("option", { value: "" }, "nothing"), known.map((each) => el("option", { value: each }, COLORINGS[each])));
    dialog.replaceChildren(
      el("div", { class: "toolbar" }, el("h2", { id: "group-title" }, `Step ${step}: ${plural(page.matched, "response")} to one prompt`), el("span", { class: "grow" }), el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")),
      el("pre", { class: "text", tabindex: 0, "aria-label": "Prompt" }, rollout.prompt ?? ""),
      known.length ? el("div", { class: "toolbar colors" }, el("label", {}, "Color tokens by ", select), scale) : "",
      siblings,
      notes(page.notes) ?? "",
    );
    show("");
    dialog.showModal();
  }

  return {
    nodes: [
      el("div", { class: "toolbar" }, el("label", {}, "Step ", slider), shown, latest, el("label", {}, "Order ", order), el("label", {}, "Search ", search), el("label", {}, grouped, " One response for each prompt"), count),
      body,
      pager,
      dialog,
    ],
    draw() {
      if (query.step === null && !dialog.open) load();
    },
  };
}
