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

// Turns the citations in a reason into links: those that were checked, else any existing step such as [S3].
function cited(text, shown, checked = []) {
  const states = shown.trajectory ? stateCount(shown.trajectory) : 0;
  const known = new Map();
  for (const one of checked) known.set(one.text, [...(known.get(one.text) ?? []), one]);
  if (!known.size) {
    return text.split(/(\[S\d{1,5}\])/).map((part) => {
      const step = /^\[S(\d+)\]$/.exec(part);
      return step && step[1] >= 1 && step[1] <= states ? stepLink(shown, step[1] - 1) : part;
    });
  }
  const longest = [...known.keys()].sort((one, other) => other.length - one.length);
  const any = longest.map((words) => words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(?<![\\w$])(${any})(?!\\w)`)).map((part) => known.has(part) ? citation(shown, part, known.get(part)) : part);
}

const NOT_SHOWN = { not_shown: "was not shown to the judge", no_such_step: "does not exist" };

function isWrong(one) {
  return one.status in NOT_SHOWN;
}

// A range is one link, to its first step.
function citation(shown, words, steps) {
  const wrong = steps.find(isWrong);
  const why = wrong ? `: step ${wrong.step + 1} ${NOT_SHOWN[wrong.status]}` : "";
  const there = shown.trajectory && steps.find((one) => one.status !== "no_such_step");
  if (!there) return el("span", { class: "wrong-citation", title: `Wrong citation${why}` }, words);
  const name = stateName(shown.trajectory, there.step).toLowerCase();
  return el("button", { type: "button", class: `jump ${wrong ? "wrong-citation" : ""}`, title: `${name}${why}`, "aria-label": `${words}, ${name}${why}`, click: () => goToCard(there.step) }, words);
}

// How many steps the judge cites, and how many of them wrongly.
function citationCount(checked) {
  if (!checked?.length) return null;
  const wrong = checked.filter(isWrong);
  const steps = `${checked.length} ${checked.length === 1 ? "citation" : "citations"}`;
  if (!wrong.length) return el("p", { class: "hint" }, steps);
  const which = [...new Set(wrong.map((one) => `${one.text} (step ${one.step + 1} ${NOT_SHOWN[one.status]})`))];
  return el("p", { class: "warning" }, `${steps}, ${wrong.length} wrong: ${which.join(", ")}`);
}
