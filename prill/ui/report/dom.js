// Builds DOM elements for the page.

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

// Long, rarely needed parts: they stay collapsed in print unless they were expanded on the screen.
function optional(title, open, ...inside) {
  const node = folded(title, open, ...inside);
  node.classList.add("optional");
  return node;
}

function plain(text) {
  return el("div", { class: "plain" }, text);
}

// Turns citations of existing steps in a reason, such as [S3], into links.
function cited(text, shown) {
  const states = shown.trajectory ? stateCount(shown.trajectory) : 0;
  return text.split(/(\[S\d{1,5}\])/).map((part) => {
    const step = /^\[S(\d+)\]$/.exec(part);
    return step && step[1] >= 1 && step[1] <= states ? stepLink(shown, step[1] - 1) : part;
  });
}
