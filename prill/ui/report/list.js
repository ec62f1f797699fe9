// The list of trajectories. Only visible lines exist in the DOM, so that thousands of lines scroll smoothly.

const LINE = 66; // pixels, as in the style
const RANKS = { success: 0, failure: 1, unscored: 2, undecided: 2, "": 3 };
const order = { by: "", falls: false }; // "" is the file order
let found = [];
let current = null; // an index in overview.rows

function refilter() {
  found = [];
  costRange = findCostRange();
  overview.rows.forEach((row, i) => { if (fits(row, i)) found.push(i); });
  if (order.by) {
    const unknown = shownColumns().find((one) => one.key === order.by)?.isUnknown ?? (() => false); // last, either way
    found.sort((a, b) => unknown(overview.rows[a]) - unknown(overview.rows[b]) || (order.falls ? -1 : 1) * compare(overview.rows[a], overview.rows[b]) || a - b);
  }
  const all = overview.rows.length;
  byId("found").textContent = found.length === all ? `${all.toLocaleString("en")} trajectories` : `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")}`;
  const active = activeFilters();
  byId("active").hidden = !active;
  byId("active").textContent = String(active);
  byId("clear").hidden = !active && !filters.search;
  if (!found.includes(current)) select(found.length ? found[0] : null, false);
  drawHeads();
  drawList();
  if (current !== null) reveal();
}

// Sorts by outcome, then by score, the highest first; a judge is identified by its number.
function compare(one, other) {
  if (order.by === "goal") return one.goal.localeCompare(other.goal);
  const column = shownColumns().find((one) => one.key === order.by);
  if (column) return column.compare(one, other);
  if (order.by === "label") return RANKS[one.truth] - RANKS[other.truth];
  const judge = Number(order.by);
  return RANKS[one.outcomes[judge]] - RANKS[other.outcomes[judge]] || (other.scores[judge] ?? 0) - (one.scores[judge] ?? 0);
}

function setOrder(by, falls) {
  const judge = /^\d+$/.test(by) && Number(by) < overview.judges.length;
  order.by = judge || by === "goal" || COLUMNS.some((column) => column.key === by) || (by === "label" && overview.source) ? by : "";
  order.falls = Boolean(order.by) && falls;
}

// Cycles through ascending, descending and file order.
function sortBy(by) {
  if (order.by !== by) setOrder(by, false);
  else setOrder(order.falls ? "" : by, true);
  refilter();
  addAddress();
  byId("heads").querySelector(`[data-by="${by}"]`).focus();
}

function drawHeads() {
  const arrow = (by) => (order.by === by ? (order.falls ? "▼" : "▲") : "");
  const head = (by, words, title) => el("button", {
    type: "button", class: "quiet", title: `Sort by ${title}`, "aria-label": `Sort by ${title}`, "aria-pressed": String(order.by === by), "data-by": by, click: () => sortBy(by),
  }, el("span", { class: "title" }, words), el("span", { class: "arrow", "aria-hidden": "true" }, arrow(by)));
  byId("heads").replaceChildren(head("goal", "Goal", "goal"), ...[
    ...shownColumns().map((column) => head(column.key, column.title, column.title.toLowerCase())),
    overview.source ? head("label", "Label", `label (${overview.source})`) : null,
    ...overview.judges.map((name, i) => head(String(i), String(i + 1), name)),
  ].filter(Boolean));
}

function drawList() {
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / LINE) - 4);
  const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / LINE) + 4);
  const space = el("div", { class: "space", role: "presentation" });
  space.style.height = `${found.length * LINE}px`;
  for (let place = first; place < last; place++) space.append(line(place));
  list.replaceChildren(space);
  if (current === null) list.removeAttribute("aria-activedescendant");
  else list.setAttribute("aria-activedescendant", `row-${current}`);
}

function line(place) {
  const index = found[place];
  const row = overview.rows[index];
  const cell = (outcome, words, kind, score) => el("span", { class: "cell", title: words },
    el("span", { class: `dot ${outcome || "none"} ${kind}`, role: "img", "aria-label": words }, WORDS[outcome][0]),
    score === null ? null : el("span", { class: "cell-score", "aria-hidden": "true" }, score.toFixed(2).replace(/^0/, "")));
  const outcomes = row.outcomes.map((outcome, i) => {
    const kind = against(row.truth, outcome);
    return cell(outcome, `${overview.judges[i]}: ${WORDS[outcome][1]}${KINDS[kind] ? `, ${KINDS[kind].toLowerCase()}` : ""}`, kind[0] === "F" ? "differs" : "", row.scores[i]);
  });
  const node = el("div", {
    class: "line", role: "option", id: `row-${index}`, "data-id": row.id, "aria-selected": String(index === current),
    "aria-setsize": found.length, "aria-posinset": place + 1, click: () => { select(index); addAddress(); showPane("detail"); },
  },
  el("div", { class: "line-goal" }, el("div", { class: "line-words" }, row.goal), lineId(row, index)),
  shownColumns().map((column) => el("span", { class: `more ${column.key}`, title: column.text(row) }, column.text(row))),
  overview.source ? cell(row.truth, `Label: ${WORDS[row.truth][1]}`, "truth", null) : null, outcomes);
  node.style.top = `${place * LINE}px`;
  return node;
}

// A blind annotator sees numbers: ids may tell what others think of a run.
function lineId(row, index) {
  if (isUnsaved(row)) return el("span", { class: "pill unsaved" }, `${index + 1} not saved`);
  return blind ? el("span", { class: "line-id" }, String(index + 1)) : el("span", { class: "line-id", title: row.id }, el("bdi", {}, row.id));
}

function reveal() {
  const list = byId("list");
  const top = found.indexOf(current) * LINE;
  const far = top < list.scrollTop - LINE || top > list.scrollTop + list.clientHeight;
  if (far) list.scrollTop = top - (list.clientHeight - LINE) / 2;
  else if (top < list.scrollTop) list.scrollTop = top;
  else if (top + LINE > list.scrollTop + list.clientHeight) list.scrollTop = top + LINE - list.clientHeight;
}

function select(index, draw = true) {
  current = index;
  at = LAST;
  if (view === "browse") drawDetail(index);
  if (draw) { reveal(); drawList(); }
}

// Moves through the search results; `wanted` selects which of them count.
function move(by, wanted) {
  let place = found.indexOf(current) + by;
  while (place >= 0 && place < found.length && !wanted(overview.rows[found[place]])) place += by;
  if (place >= 0 && place < found.length) {
    select(found[place]);
    keepAddress();
    showPane("detail");
    return;
  }
  say(`No ${by > 0 ? "later" : "earlier"} ${wanted === disagreement ? "disagreement" : "trajectory"} in the list.`);
}
