// What the parts of the page are made of.

const WORDS = {
  success: ["✓", "Success"], failure: ["✗", "Failure"], unscored: ["–", "Unscored"],
  undecided: ["?", "Undecided"], "": ["·", "None"],
};
const STEP_WORDS = {
  towards: ["→", "towards"], reached: ["★", "reached"], not_sure: ["?", "not sure"], away: ["←", "away"],
};

const byId = (id) => document.getElementById(id);

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

// Long, and rarely wanted: it stays folded on paper unless it was unfolded on the screen.
function optional(title, open, ...inside) {
  const node = folded(title, open, ...inside);
  node.classList.add("optional");
  return node;
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
