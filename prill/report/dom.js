// Elements. Whatever text the page shows goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const WORDS = {
  success: ["✓", "Success"], failure: ["✗", "Failure"], unscored: ["–", "Unscored"],
  undecided: ["?", "Undecided"], "": ["·", "None"],
};
const STEP_WORDS = {
  towards: ["→", "towards"], reached: ["★", "reached"], not_sure: ["?", "not sure"], away: ["←", "away"],
};

const byId = (id) => document.getElementById(id);

function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function outcomeOf(record, otherwise) {
  if (!record) return "";
  if (record.success === null) return otherwise;
  return record.success ? "success" : "failure";
}

function badge(outcome, text = WORDS[outcome][1]) {
  return el("span", { class: `badge ${outcome || "none"}` }, el("span", { "aria-hidden": "true" }, WORDS[outcome][0]), ` ${text}`);
}

function folded(title, open, ...inside) {
  return el("details", { open, class: "fold" }, el("summary", {}, title), ...inside);
}

function plain(text) {
  return el("div", { class: "plain" }, text);
}

// A block of the page that a browser may still be reading: null until it is there.
function block(id) {
  const node = byId(id);
  return node ? node.textContent : null;
}

// The list of trajectories and what all of them share; the page's script stands behind it.
const overview = JSON.parse(block("overview"));
