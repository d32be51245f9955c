// Elements. Everything that a run has recorded becomes a text node or an attribute, and never markup.

const PROPERTIES = new Set(["value", "checked", "disabled", "selected"]);
const SVG = "http://www.w3.org/2000/svg";

/** Create an element. Attributes that start with `on` are listeners; null, undefined and false are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** A table with a caption for screen readers. `columns`: [title, class]. A cell is a text or a node. */
export function table(caption, columns, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: columns[i][1] }, cell))))),
    ),
  );
}

export const section = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);

export const empty = (text) => el("p", { class: "empty" }, text);

/** What is missing, as a list. Null without any. */
export function notes(texts) {
  if (!texts?.length) return null;
  return el("ul", { class: "notes", "aria-label": "What is missing" }, texts.map((text) => el("li", {}, text)));
}

/** Why something cannot be shown, and what to do next. */
export function showError(error) {
  return el(
    "div",
    { class: "card error", role: "alert" },
    el("h2", {}, "This cannot be shown"),
    el("p", {}, error.message),
    error.next ? el("p", {}, "Next: ", el("code", {}, error.next)) : null,
  );
}
