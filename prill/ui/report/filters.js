// The filters of the list: search words and choices, all of which must match.

const filters = { search: "", judge: "0", verdict: "", against: "", among: "", truth: "", cost: "" };
const AGAINST = { wrong: "disagrees", FP: "false positive", FN: "false negative", unscored: "unscored", agrees: "agrees", "": "any" };

function fits(row, i) {
  if (filters.search && !hasWords(i, filters.search)) return false;
  const outcome = row.outcomes[Number(filters.judge)] ?? "";
  if (filters.verdict && (filters.verdict === "none" ? "" : filters.verdict) !== outcome) return false;
  if (filters.against && !standsAgainst(against(row.truth, outcome))) return false;
  if (filters.among === "differ" && !judgesDisagree(row.outcomes)) return false;
  if (rival() !== null && !judgesDisagree([outcome, row.outcomes[rival()]])) return false;
  if (filters.among === "agree" && (judgesDisagree(row.outcomes) || !row.outcomes.some((one) => one === "success" || one === "failure"))) return false;
  if (filters.truth && (filters.truth === "none" ? "" : filters.truth) !== row.truth) return false;
  if (filters.cost && !costRange(costOf(row))) return false;
  return overview.parts.every((part, i) => !filters[`by-${part}`] || filters[`by-${part}`] === (row.parts[i] ?? "(none)"));
}

const COSTS = { "": "any", most: "most expensive tenth", upper: "above the median", lower: "up to the median", unknown: "unknown" };
let costRange = () => true;

// Compares with the costs of all runs by this judge: in dollars, or in tokens if no dollars are known.
function findCostRange() {
  if (filters.cost === "unknown") return (cost) => cost === null;
  const costs = overview.rows.map(costOf).filter((cost) => cost !== null).sort(compareCosts);
  const unit = costs.at(-1)?.usd === null ? "tokens" : "usd";
  const priced = costs.filter((cost) => cost[unit] !== null);
  const median = priced[Math.ceil(priced.length / 2) - 1]?.[unit];
  const most = priced[Math.floor(0.9 * priced.length)]?.[unit];
  const wanted = { most: (value) => value >= most, upper: (value) => value > median, lower: (value) => value <= median }[filters.cost];
  return (cost) => cost !== null && cost[unit] !== null && wanted(cost[unit]);
}

// The judge that the chosen one must differ from; null: any.
function rival() {
  return ["", "differ", "agree"].includes(filters.among) ? null : Number(filters.among);
}

function standsAgainst(kind) {
  if (filters.against === "wrong") return kind === "FP" || kind === "FN";
  if (filters.against === "agrees") return kind === "TP" || kind === "TN";
  return kind === filters.against;
}

function choice(key, title, options) {
  const select = el("select", { id: `filter-${key}`, change: (event) => { filters[key] = event.target.value; refilter(); if (key === "judge" || key === "among") drawJudges(); addAddress(); } },
    options.map(([value, words]) => el("option", { value }, words)));
  return el("label", {}, el("span", {}, title), select);
}

function slice(key, title, read) {
  const counts = new Map();
  for (const row of overview.rows) counts.set(read(row) ?? "(none)", (counts.get(read(row) ?? "(none)") ?? 0) + 1);
  if (counts.size < 2) return null;
  const options = [...counts].sort(([a], [b]) => a.localeCompare(b)).map(([value, count]) => [value, `${value} (${count})`]);
  return choice(key, title[0].toUpperCase() + title.slice(1), [["", "any"], ...options]);
}

const hasCosts = () => overview.rows.some((row) => row.usd.concat(row.tokens).some((cost) => cost !== null));

function drawChoices() {
  for (const part of overview.parts) filters[`by-${part}`] ??= "";
  const several = overview.judges.length > 1;
  const judged = overview.judges.length > 0;
  const labelled = Boolean(overview.source);
  byId("choices").replaceChildren(...[
    several ? choice("judge", "Judge", overview.judges.map((name, i) => [String(i), name])) : null,
    judged ? choice("verdict", several ? "Its verdict" : "Verdict", [["", "any"], ["success", "✓ success"], ["failure", "✗ failure"], ["unscored", "– unscored"], ["none", "no verdict"]]) : null,
    judged && labelled ? choice("against", "Against the label", ["", "wrong", "FP", "FN", "unscored", "agrees"].map((key) => [key, AGAINST[key]])) : null,
    several ? choice("among", "Between judges", [["", "any"], ["differ", "disagree"], ["agree", "agree"],
      ...(overview.judges.length > 2 ? overview.judges.map((name, i) => [String(i), `differs from ${name}`]) : [])]) : null,
    labelled ? choice("truth", "Label", [["", "any"], ["success", "✓ success"], ["failure", "✗ failure"], ["undecided", "? undecided"], ["none", "no label"]]) : null,
    hasCosts() ? choice("cost", several ? "Its cost" : "Cost", Object.entries(COSTS)) : null,
    ...overview.parts.map((part, i) => slice(`by-${part}`, part, (row) => row.parts[i])),
  ].filter(Boolean));
  byId("filters").hidden = !byId("choices").children.length;
}

function drawFilters() {
  drawChoices();
  byId("filters").open = window.innerWidth > 820 && (byId("choices").children.length <= 4 || window.innerHeight >= 900);
  byId("search").addEventListener("input", (event) => { filters.search = event.target.value.trim().toLowerCase(); refilter(); keepAddress(); });
  byId("clear").addEventListener("click", () => { setFilters({}); addAddress(); byId("search").focus(); });
}

// Sets these filters and clears the others; values that a choice does not offer are ignored.
function setFilters(wanted, draw = true) {
  for (const key of Object.keys(filters)) {
    const node = key === "search" ? byId("search") : byId(`filter-${key}`);
    filters[key] = (node && wanted[key]) ?? (key === "judge" ? filters.judge : "");
    if (!node) continue;
    node.value = filters[key];
    if (key === "search") filters.search = filters.search.trim().toLowerCase();
    else filters[key] = node.value || (key === "judge" ? "0" : "");
  }
  refilter();
  if (draw) drawJudges();
}

function activeFilters() {
  return Object.entries(filters).filter(([key, value]) => value && key !== "judge" && key !== "search").length;
}
