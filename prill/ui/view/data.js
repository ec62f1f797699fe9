// The page's source of runs: the server, which reads files that may be growing.

const HOME = document.getElementById("show-browse").hidden ? "captions" : "browse";
let blind = false; // whether verdicts and labels of others are hidden until the annotator has decided
let started = false;
const MOST_KEPT = 60; // runs that stay in memory
let printing = false; // all that are printed stay
const overview = { judges: [], source: "", parts: [], rows: [] };
const kept = new Map(); // cached runs, by number, the newest last
const asked = new Map(); // pending requests
let hits = { words: "", numbers: null };

// Whether a run is there, and the annotator's label of it.
const isRead = (index) => kept.has(index) && (annotator === null || Boolean(overview.rows[index].broken) || labels.has(overview.rows[index].id));

function readDetail(index) {
  if (isRead(index)) return kept.get(index);
  if (blind && !started) return null; // the first run without a label will be shown
  fetchDetail(index).then(() => { if (index === current || (overview.rows[index]?.series ?? null) !== null) redrawDetail(index); }, (error) => say(error.message));
  return null;
}

function fetchDetail(index) {
  if (!asked.has(index)) {
    const { id, broken } = overview.rows[index];
    const label = annotator === null || broken || labels.has(id) ? null : ask(`api/labels/${index}`);
    const request = Promise.all([ask(`api/runs/${index}`), label]).then(([shown, mine]) => {
      if (asked.get(index) !== request) return overview.rows[index] && fetchDetail(index); // the run has changed since it was asked for
      if (mine !== null && !labels.has(id)) labels.set(id, mine);
      kept.delete(index);
      kept.set(index, shown);
      if (kept.size > (printing ? MAX_PRINTED : MOST_KEPT)) kept.delete(kept.keys().next().value);
    }).finally(() => { if (asked.get(index) === request) asked.delete(index); });
    asked.set(index, request);
  }
  return asked.get(index);
}

// Pending between press and release, when nothing is redrawn: the click would be lost.
let released = Promise.resolve();
addEventListener("pointerdown", () => {
  released = new Promise((resume) => {
    addEventListener("pointerup", () => setTimeout(resume), { once: true });
    setTimeout(resume, 2000); // a release outside the page is not told
  });
});

// Redraws the run on the screen if it or another attempt at its task was updated: not before the annotator has left a text field.
async function redrawDetail(index) {
  await released;
  if (view !== "browse" || current === null) return;
  if (document.activeElement.matches(".label-panel :is(textarea, input)")) {
    document.activeElement.addEventListener("blur", () => setTimeout(() => redrawDetail(index)), { once: true });
    return;
  }
  const { series } = overview.rows[current];
  if (index !== current && (series === null || overview.rows[index].series !== series)) return;
  const place = byId("detail");
  const top = place.scrollTop;
  const { id, value, parentElement } = document.activeElement;
  const focused = id ? `#${id}` : value && parentElement.id ? `#${parentElement.id} > [value=${value}]` : null;
  drawDetail(current);
  place.scrollTop = top;
  if (focused) place.querySelector(focused)?.focus({ preventScroll: true });
}

async function areThere(indices) {
  for (const index of indices) if (!isRead(index)) await fetchDetail(index);
}

const hasCalls = (index, judge) => Boolean(kept.get(index)?.verdicts[judge]?.usage.calls);
const readCalls = (index, judge) => ask(`api/calls/${index}/${judge}`);

// The server searches pages, thoughts, actions and reasons; until it responds, goals and ids are searched.
function hasWords(index, words) {
  if (/^#\d*$/.test(words)) return words === "#" || words === `#${index + 1}`;
  if (hits.words === words) return hits.numbers === null || hits.numbers.has(index);
  const row = overview.rows[index];
  const text = `${row.goal} ${row.id}`.toLowerCase();
  return words.split(/\s+/).every((word) => text.includes(word));
}

let searching = 0;
async function searchFor(words) {
  const turn = ++searching;
  if (!words) return;
  try {
    const numbers = await ask(`api/search?q=${encodeURIComponent(words)}`);
    if (turn !== searching) return;
    hits = { words, numbers: numbers === null ? null : new Set(numbers) };
    refilter();
  } catch (error) {
    say(error.message);
  }
}
