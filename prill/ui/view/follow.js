// Polls for updates of the files: rows, the judges' progress, and figures while they are shown.

const EVERY = 1500; // milliseconds between requests
let known = { generation: -1, changes: 0, read: 0 };
let drawnParts = "";
let summaryOf = -1; // the number of changes that the figures on the page reflect
let following = null;

// One request at a time; callers in the meantime wait for the next response.
function follow() {
  following = (following ?? Promise.resolve()).then(askState, askState);
  return following;
}

async function askState() {
  let state;
  try {
    do {
      state = await ask(`api/state?generation=${known.generation}&since=${known.changes}`);
      await released;
      await take(state);
    } while (state.known < state.changes);
  } catch (error) {
    byId("progress").hidden = false;
    byId("progress").textContent = error.message;
  }
}

async function take(state) {
  if (state.generation !== known.generation) beginAnew(state);
  if (filters.search && hits.words === filters.search && (state.rows.length || state.read !== known.read)) searchFor(filters.search);
  known = { generation: state.generation, changes: state.known, read: state.read };
  ({ annotator, blind, questions } = state);
  if (blind) folds.thoughts = !(claimsFolded = true);
  if (annotator !== null) byId("browse").dataset.labels = blind ? "blind" : "open";
  overview.source = state.source || (annotator === null ? "" : "human");
  for (const { number, row, mine, unanswered } of state.rows) {
    Object.assign(row, { mine, unanswered });
    overview.rows[number] = row;
    // Another page has saved a label.
    if (labels.has(row.id) && !drafts.has(row.id) && (labels.get(row.id).mine?.choice ?? null) !== mine) labels.delete(row.id);
    const shown = kept.get(number);
    const drawn = shown ?? asked.has(number);
    kept.delete(number);
    asked.delete(number);
    if (drawn && number === current) refetch(number, JSON.stringify(shown));
    if (last !== null && number === last.index) refreshLast();
  }
  showProgress(state);
  showSession();
  if (!state.rows.length) return;
  measure();
  const parts = JSON.stringify([overview.source, overview.judges, partValues()]);
  if (parts !== drawnParts && !byId("choices").contains(document.activeElement)) {
    drawnParts = parts;
    const chosen = { ...filters };
    drawChoices();
    for (const [key, value] of Object.entries(chosen)) if (byId(`filter-${key}`)) byId(`filter-${key}`).value = value;
  }
  const was = current;
  refilter();
  const place = resumed === null ? -1 : overview.rows.findIndex((row) => row.id === resumed.id);
  if (place >= 0) {
    ({ at } = resumed);
    [current, resumed] = [place, null];
    if (view === "browse") drawDetail(current);
    drawList();
  }
  const wanted = new URLSearchParams(window.location.hash.slice(1)).get("t");
  if (blind && !started) return;
  if (wanted && (current === null || overview.rows[current].id !== wanted) && overview.rows.some((row) => row.id === wanted) && !arrived) {
    arrived = true;
    await searchFor(filters.search);
    fromAddress();
  } else if (view === "browse" && was === null && current !== null) drawDetail(current);
  if (view === "summary") showSummary();
}

async function refetch(number, before) {
  try {
    await fetchDetail(number);
    if (JSON.stringify(kept.get(number)) !== before) redrawDetail(number);
  } catch { /* The next request says what is wrong. */ }
}

let arrived = false; // whether the run in the URL was shown

let resumed = null; // the run and the state that were shown before all rows were read again

function beginAnew(state) {
  if (current !== null) resumed = { id: overview.rows[current].id, at };
  overview.judges = state.judges.map((judge) => judge.name);
  overview.parts = state.parts;
  overview.rows = [];
  kept.clear();
  asked.clear();
  labels.clear();
  hits = { words: "", numbers: null };
  current = null;
  known = { generation: state.generation, changes: 0, read: 0 };
}

// What the choices of the filters depend on.
const partValues = () => [
  ...overview.parts.map((_, i) => new Set(overview.rows.map((row) => row.parts[i])).size), hasCosts()];

function showProgress(state) {
  const all = overview.rows.length;
  const words = state.judges.filter((judge) => !blind && judge.judged < all).map((judge) => {
    const unscored = Object.entries(judge.unscored).map(([reason, count]) => `${reason} ${count}`).join(", ");
    return `${judge.name}: ${judge.judged.toLocaleString("en")} of ${all.toLocaleString("en")}${unscored ? `; unscored: ${unscored}` : ""}`;
  });
  if (state.read < 0.999) words.unshift(`reading ${Math.round(100 * state.read)} %`);
  if (state.problems.length) words.push(`${state.problems.length} ${state.problems.length === 1 ? "problem" : "problems"}: ${state.problems[0]}`);
  if (annotator !== null) {
    const done = overview.rows.filter(isDone).length;
    words.push(`${annotator}: ${done} of ${all} labelled`);
  }
  byId("progress").hidden = !words.length;
  byId("progress").textContent = words.join(" · ");
  byId("progress").title = [...words, ...state.problems].join("\n");
}

// Figures are computed when the summary is opened, and when rows change while it is open.
async function showSummary() {
  if (summaryOf === known.changes) return;
  summaryOf = known.changes;
  const place = byId("summary");
  try {
    const parsed = new DOMParser().parseFromString(await ask("api/summary"), "text/html");
    place.replaceChildren(...parsed.body.childNodes);
  } catch (error) {
    place.replaceChildren(el("p", { class: "empty" }, error.message));
  }
}

// A blind page begins with the run of its address, or else with the first one without a label.
async function begin() {
  started = true;
  const wanted = new URLSearchParams(window.location.hash.slice(1)).get("t");
  const index = overview.rows.findIndex((row) => row.id === wanted);
  if (overview.rows.length) await alone(() => openRun(index >= 0 ? index : (nextUnlabelled(-1) ?? 0)));
}

byId("show-summary").addEventListener("click", showSummary);
KEYS.s = () => { show("summary"); showSummary(); };
byId("search").addEventListener("input", () => searchFor(filters.search));
window.addEventListener("hashchange", () => { if (view === "summary") showSummary(); if (filters.search) searchFor(filters.search); });

(async () => {
  await follow();
  await searchFor(filters.search);
  if (blind && view === "browse") await begin();
  started = true;
  for (;;) {
    await new Promise((resume) => setTimeout(resume, EVERY));
    if (!document.hidden) await follow();
  }
})();
