// The annotator's labels, next to what was recorded. The page says "on disk" of a decision only once it is there.
// A blind page saves with Enter and leads to the next run; otherwise, every change is saved at once.

const OUTCOMES = [["success", "s", "Success"], ["failure", "f", "Failure"], ["not_executable", "x", "Not executable"], ["unsure", "u", "Unsure"]];
const STEP_LABELS = [["towards", "t", "Towards goal"], ["not_sure", "n", "Not sure"], ["reached", "r", "Goal reached"], ["away", "a", "Away from goal"]];
const NAMES = Object.fromEntries([...OUTCOMES, ...STEP_LABELS].map(([value, , name]) => [value, name]));
const { drafts, saves, store } = decisions("labels");
const labels = new Map(); // saved labels, by id: {mine, version}
let annotator = null;
let saving = Promise.resolve(); // of changes that are saved at once
let last = null; // the run that was saved before, with what others say of it
let panelOf = null; // the run that the panel shows
let message = { text: "", mild: true };
let textIsOpen = false;

const formOf = (mine) => ({
  choice: mine?.choice ?? null,
  steps: Object.fromEntries((mine?.steps ?? []).map(({ index, label }) => [index, label])),
  side_effects: mine?.side_effects ?? false,
  note: mine?.note ?? "",
  answers: answersOf(mine),
});
const asText = ({ choice, steps, side_effects, note, answers }) => JSON.stringify([choice, steps, side_effects, note.trim(), answersText(answers)]);
const draftOf = (id) => drafts.get(id) ?? { form: formOf(labels.get(id).mine), version: labels.get(id).version };
const isDone = (row) => Boolean(row.mine) && !row.unanswered;
const isUnsaved = (row) => drafts.has(row.id);
const currentId = () => overview.rows[current]?.id;
const isReady = () => annotator !== null && view === "browse" && entry !== null && labels.has(currentId()) && panelOf === currentId();

// The digest of the content that the page shows, and a decision is about.
const shownDigest = (id) => kept.get(overview.rows.findIndex((row) => row.id === id))?.digest || null;

function keep(id, form, version, digest = drafts.get(id)?.digest ?? shownDigest(id)) {
  const was = drafts.has(id);
  if (asText(form) === asText(formOf(labels.get(id).mine))) drafts.delete(id);
  else drafts.set(id, { form, version, digest });
  store();
  if (was !== drafts.has(id)) drawList();
}

// ---- the panel

function labelPanel(index) {
  const id = overview.rows[index].id;
  if (annotator === null || overview.rows[index].broken || !labels.has(id)) return null;
  if (panelOf !== id) {
    const left = overview.rows.findIndex((row) => row.id === panelOf);
    message = { text: left >= 0 && drafts.has(panelOf) ? `Trajectory ${left + 1} is not saved: its changes are on this page only. "${drafts.size} not saved" goes back to it.` : "", mild: true };
    panelOf = id;
  }
  const buttons = (name, title, offered, act, first) => el("div", { id: name, class: "buttons", role: "group", "aria-label": title },
    offered.map(([value, letter, words], i) => el("button", { type: "button", class: value, value, click: () => act(value) }, el("span", {}, words), el("kbd", {}, blind ? letter : String(first + i)))));
  const note = el("textarea", { id: "note", rows: "2", maxlength: "20000", placeholder: "Optional", input: () => change((form) => { form.note = note.value; }, false), change: () => saveAtOnce() });
  return el("section", { class: "label-panel", "aria-label": `Label of ${annotator}` },
    el("div", { class: "counts" }, el("span", { id: "counts" }), el("progress", { id: "bar", value: "0", "aria-labelledby": "counts" })),
    el("h3", {}, "Outcome"),
    buttons("outcomes", "Outcome", OUTCOMES, choose, 1),
    questionPanel(),
    el("h3", { id: "step-title" }),
    buttons("step-labels", "Label of this step", STEP_LABELS, labelStep, 5),
    el("button", { type: "button", id: "side-effects", title: "The agent changed something that it was not asked to change", click: toggleSideEffects }, el("span", {}, "Side effects"), el("kbd", {}, blind ? "d" : "9")),
    el("h3", {}, el("label", { for: "note" }, "Note"), " ", el("kbd", {}, "e")),
    note,
    el("p", { class: "hint typing" }, el("kbd", {}, "Esc"), " leaves the note, ", el("kbd", {}, "Ctrl"), " ", el("kbd", {}, "Enter"), " saves"),
    el("div", { class: "buttons save" },
      blind ? el("button", { type: "button", id: "save", class: "primary", click: save }, "Save and next ", el("kbd", {}, "Enter")) : null,
      el("button", { type: "button", id: "undo", click: undo }, "Undo ", el("kbd", {}, "z"))),
    el("p", { class: "state" }, el("span", { id: "label-state", class: "pill", role: "status" }), " ", el("button", { type: "button", id: "unsaved", title: "Go to the unsaved one", click: toUnsaved })),
    el("p", { id: "alert", role: "alert" }),
    lastSaid(index));
}

function showForm() {
  if (!isReady()) return;
  const id = currentId();
  const { form } = draftOf(id);
  const steps = entry.trajectory?.steps.length ?? 0;
  for (const button of byId("outcomes").children) button.setAttribute("aria-pressed", String(button.value === form.choice));
  for (const button of byId("step-labels").children) {
    button.disabled = at >= steps;
    button.setAttribute("aria-pressed", String(button.value === form.steps[at]));
  }
  byId("side-effects").setAttribute("aria-pressed", String(form.side_effects));
  byId("step-title").textContent = at < steps ? `Step ${at + 1}` : steps ? "The final state has no step to label" : "No step to label";
  if (byId("note").value.trim() !== form.note.trim()) byId("note").value = form.note;
  showAnswers(form);
  const unsaved = drafts.has(id);
  byId("label-state").className = `pill ${unsaved ? "unsaved" : form.choice ? "saved" : "unsure"}`;
  const open = openQuestions(form.answers).length;
  const left = open ? `, ${open} ${open === 1 ? "question" : "questions"} open` : "";
  byId("label-state").textContent = unsaved ? `Not saved yet${form.choice ? left : ": choose an outcome"}` : form.choice ? `Saved${left}` : "No label yet";
  byId("unsaved").hidden = !drafts.size;
  byId("unsaved").textContent = `${drafts.size} not saved`;
  byId("undo").disabled = !saves.length;
  for (const [index, mark] of document.querySelectorAll("#film .own").entries()) showMark(mark, form.steps[index]);
  showMessage();
  showSession();
}

// The label of a step that this page has, at its step.
const ownMark = () => (annotator === null ? null : el("span", { class: "own" }));

function showMark(mark, value) {
  mark.className = value ? `own mark ${value}` : "own";
  mark.textContent = value ? STEP_WORDS[value][0] : "";
  mark.title = value ? NAMES[value] : "";
}

function showMessage() {
  byId("alert").textContent = message.text;
  byId("alert").className = message.mild ? "mild" : "";
  byId("alert").hidden = !message.text;
}

function warn(text, mild = true) {
  message = { text, mild };
  if (byId("alert")) showMessage();
  else if (text) say(text);
}

function showSession() {
  if (!byId("counts")) return;
  const done = overview.rows.filter(isDone).length;
  const total = overview.rows.filter((row) => !row.broken).length;
  byId("counts").textContent = `${done} done, ${total - done} left`;
  byId("bar").value = done / Math.max(1, total);
}

const answerLines = (answers) => answers.map(([question, value]) => `${question} ${answerText(value)}`);

// What others say of the run that was saved before.
function lastSaid(index) {
  if (last === null || last.index === index) return null;
  const line = (name, tone, words, ...more) => el("li", {}, el("bdi", {}, name), ": ", badge(tone, words), more.filter(Boolean).flatMap((text) => [" · ", el("bdi", {}, text)]));
  const people = last.shown.labels.filter((label) => label.annotator !== annotator).map((label) => line(label.annotator ?? "(unnamed)", outcomeOf(label, "undecided"), label.undecided ? NAMES[label.undecided] : undefined, label.side_effects ? "side effects" : null, label.note, ...answerLines(Object.entries(label.answers ?? {}))));
  const judges = last.shown.verdicts.flatMap((verdict, i) => (verdict ? [line(overview.judges[i], outcomeOf(verdict, "unscored"), verdict.unscored ? `Unscored: ${verdict.unscored}` : undefined, verdict.score === null ? null : `score ${verdict.score.toFixed(2)}`, ...(verdict.findings?.answers?.length ? answerLines(verdict.findings.answers.map(({ question, value }) => [question, value])) : [verdict.reason]))] : []));
  const { choice, answers } = labels.get(last.id).mine;
  return el("section", { id: "last" }, el("h3", {}, "Last saved"),
    el("p", {}, "You, on ", el("button", { type: "button", class: "jump", click: () => alone(() => openRun(last.index)) }, String(last.index + 1)), ": ", badge({ success: "success", failure: "failure" }[choice] ?? "undecided", NAMES[choice]), answerLines(Object.entries(answers)).flatMap((text) => [" · ", el("bdi", {}, text)])),
    el("ul", { class: "bare" }, people, judges));
}

// Another annotator has labelled that run, too.
async function refreshLast() {
  const { index } = last;
  try {
    await fetchDetail(index);
  } catch { return; } // The next request says what is wrong.
  if (last?.index !== index) return;
  last.shown = kept.get(index);
  if (byId("last")) byId("last").replaceWith(lastSaid(current));
}

// ---- what may sway an annotator is folded

// A blind annotator sees the agent and the id only on request.
function blindFacts(row, index) {
  const { platform, site, start_url } = entry?.trajectory?.task ?? row;
  const words = new Set([`${index + 1} of ${overview.rows.length}`, site, start_url, platform === "other" ? null : platform]);
  return [el("p", { class: "meta", id: "about" }, [...words].filter(Boolean).map((word) => el("bdi", {}, word))),
    origin(row)];
}

function origin(row) {
  const fold = folded("Source", false, el("p", { class: "meta" }, el("code", {}, row.id), row.agent ? el("bdi", {}, row.agent) : null));
  fold.id = "origin";
  return fold;
}

// All that the agent says about itself, for those who judge by what the screens show.
function claimsOf(trajectory) {
  const texts = trajectory.steps.flatMap(({ action, thought }, i) => {
    const words = claims(action) ? (action.value ?? action.text) : null;
    return [[`Thought ${i + 1}`, thought], [`Said in step ${i + 1}`, words !== trajectory.answer && words !== action.kind ? words : null]];
  });
  const lines = [["Answer", trajectory.answer], ...texts].filter(([, words]) => words);
  if (!lines.length) return null;
  const fold = folded("What the agent claims ", false, el("ul", { class: "bare claim" }, lines.map(([who, words]) => el("li", {}, el("small", {}, `${who}: `), el("bdi", {}, words)))));
  fold.id = "claims";
  fold.querySelector("summary").append(el("kbd", {}, "c"));
  return fold;
}

// ---- the whole page text of a state, below its screenshot

function stageText() {
  if (annotator === null) return null;
  const state = stateAt(entry.trajectory, at);
  const text = el("details", { id: "text", class: "fold", toggle: () => { textIsOpen = text.open; if (text.open) fillText(text.lastChild, current, at); } },
    el("summary", {}, "Page text ", blind ? el("kbd", {}, "p") : null), el("pre", { tabindex: "0", dir: "auto" }));
  text.open = textIsOpen;
  return [state.caption ? folded("Caption", false, el("div", { class: "plain", dir: "auto" }, state.caption)) : null, state.text ? text : null];
}

async function fillText(place, index, state) {
  try {
    place.textContent = await ask(`texts/${index}/${state}`);
  } catch (error) {
    place.textContent = error.message;
  }
}

// ---- decisions

function change(edit, draws = true) {
  if (!isReady() || (blind && busy && draws)) return;
  const id = currentId();
  const { form, version } = structuredClone(draftOf(id));
  edit(form);
  keep(id, form, version);
  if (draws) message = { text: "", mild: true };
  showForm();
  if (draws) saveAtOnce();
}

const choose = (choice) => change((form) => { form.choice = choice; });
const toggleSideEffects = () => change((form) => { form.side_effects = !form.side_effects; });

function labelStep(value) {
  if (!isReady()) return;
  if (at >= (entry.trajectory?.steps.length ?? 0)) { warn("The final state has no step to label."); return; }
  change((form) => {
    if (form.steps[at] === value) delete form.steps[at];
    else form.steps[at] = value;
  });
}

function saveAtOnce() {
  if (blind || !isReady()) return;
  const index = current;
  const { form } = draftOf(currentId());
  if (!form.choice) return;
  saving = saving.then(() => write(index)).then(follow).catch((error) => warn(error.message, false));
}

// Writes the decision about a run if it is not on disk.
async function write(index) {
  const { id } = overview.rows[index];
  if (!drafts.has(id)) return;
  const sent = structuredClone(drafts.get(id));
  const { form: { choice, steps, side_effects, note, answers }, version, digest } = sent;
  try {
    if (id === currentId()) byId("label-state").textContent = "Saving …";
    const saved = await ask(`api/labels/${index}`, { id, digest, choice, note, side_effects, version, answers: sentAnswers(answers), steps: Object.entries(steps).map(([place, label]) => ({ index: Number(place), label })) });
    labels.set(id, saved);
    overview.rows[index].mine = saved.mine.choice;
    overview.rows[index].unanswered = openQuestions(answersOf(saved.mine)).length;
    saves.push(saved.version);
  } catch (error) {
    if (error.status === 409) await takeOther(id);
    showForm();
    throw new Error(`Not saved. ${error.message} Your label is still here: ${blind ? "Enter" : "the next change"} ${error.status === 409 ? "replaces the other" : "tries again"}.`);
  }
  // What was changed meanwhile is based on what is saved now; of the rest, the server may have read "1,200" as 1200.
  const { form } = drafts.get(id);
  for (const [i, value] of Object.entries(answersOf(labels.get(id).mine))) {
    if (JSON.stringify(form.answers[i]) === JSON.stringify(sent.form.answers[i])) form.answers[i] = value;
  }
  keep(id, form, labels.get(id).version);
  showForm();
}

// Another page has saved a label of this run: it is the saved one now, and the form stays.
async function takeOther(id) {
  await follow();
  const index = overview.rows.findIndex((row) => row.id === id);
  labels.set(id, await ask(`api/labels/${index}`));
  kept.delete(index); // the run may have changed, too
  await fetchDetail(index);
  redrawDetail(index);
  keep(id, drafts.get(id).form, labels.get(id).version, shownDigest(id));
}

const save = () => alone(async () => {
  if (!blind || !isReady()) return;
  const index = current;
  const id = currentId();
  if (!draftOf(id).form.choice) { warn("Choose success, failure, not executable or unsure first (s, f, x, u)."); return; }
  const open = openQuestions(draftOf(id).form.answers).length;
  if (open) { warn(`Answer all questions first: ${open} ${open === 1 ? "is" : "are"} open. q goes to the next; 0 there says that you cannot tell.`); return; }
  await write(index);
  if (drafts.has(id)) { warn("Saved without your later changes: Enter saves them."); return; }
  await follow();
  await fetchDetail(index);
  last = { index, id, shown: kept.get(index) };
  const next = nextUnlabelled(index);
  await openRun(next ?? index);
  if (next === null) warn(`All ${overview.rows.length} are labelled and saved${drafts.size ? `, but ${drafts.size} changed and not saved yet` : ""}. End the command with Ctrl-C in its terminal, or look through them.`);
});

// The next run without a label: among those found, then among all; null if all have one.
function nextUnlabelled(index) {
  for (const places of [found, [...overview.rows.keys()]]) {
    const begin = places.indexOf(index) + 1;
    const next = [...places.slice(begin), ...places.slice(0, begin)].find((i) => !isDone(overview.rows[i]) && !overview.rows[i].broken);
    if (next !== undefined) return next;
  }
  return null;
}

async function openRun(index) {
  if (!isRead(index)) await fetchDetail(index);
  if (!found.includes(index)) { current = index; setFilters({}, false); }
  select(index);
  keepAddress();
  showPane("detail");
}

const undo = () => alone(async () => {
  if (!saves.length) { warn("Nothing to undo: only saves of this page since the command started can be undone."); return; }
  await saving;
  let taken;
  try {
    taken = await ask("api/undo", { version: saves.at(-1) });
  } catch (error) {
    if (error.status === 409) saves.pop();
    store();
    showForm();
    throw new Error(`Not undone: ${error.message}`);
  }
  saves.pop();
  store();
  if (last !== null && taken?.number === last.index) last = null;
  if (taken === null || taken.number === null) { await follow(); warn("It was undone before."); return; }
  const { id } = overview.rows[taken.number];
  labels.set(id, await ask(`api/labels/${taken.number}`));
  const { mine, version } = labels.get(id);
  overview.rows[taken.number].mine = mine?.choice ?? null;
  // Changes since then are kept; what a blind page takes back is there to be changed.
  const waiting = drafts.get(id)?.form ?? (blind ? formOf(taken.undone) : null);
  if (waiting) keep(id, waiting, version);
  await follow();
  await fetchDetail(taken.number);
  await openRun(taken.number);
  warn(`Undone: ${mine ? "your earlier label is in the file again" : "your label is removed from the file"}.${blind ? " Change it and press Enter to save." : ""}`);
});

const goBy = (by) => alone(async () => {
  const place = found.indexOf(current) + by;
  if (place >= 0 && place < found.length) await openRun(found[place]);
});

const toUnsaved = () => alone(async () => {
  const places = [...drafts.keys()].map((id) => overview.rows.findIndex((row) => row.id === id)).filter((i) => i >= 0).sort((a, b) => a - b);
  const next = places.find((i) => i > current) ?? places[0];
  if (next === undefined) return;
  if (next === current) warn(`This one is not saved: ${blind ? "Enter saves it" : "choose an outcome"}.`);
  else await openRun(next);
});

// ---- keys

// Opens the search for a number: #5 is the fifth run.
function askNumber() {
  KEYS["/"]();
  byId("search").value = "#";
  byId("search").setSelectionRange(1, 1);
}

byId("search").addEventListener("keydown", (event) => {
  const number = Number(/^#(\d+)$/.exec(byId("search").value.trim())?.[1] ?? 0);
  if (event.key !== "Enter" || !number || number > overview.rows.length) return;
  setFilters({}, false);
  alone(() => openRun(number - 1));
});

const LABEL_KEYS = { e: () => byId("note").focus(), z: undo, q: nextField };
const BLIND_KEYS = {
  d: toggleSideEffects, Enter: save, ",": () => goBy(-1), ".": () => goBy(1), j: () => goBy(1), k: () => goBy(-1), g: askNumber,
  p: () => { if (byId("text")) byId("text").open = !byId("text").open; },
  c: () => { if (byId("claims")) byId("claims").open = !byId("claims").open; },
};
OUTCOMES.forEach(([value, letter], i) => { LABEL_KEYS[i + 1] = BLIND_KEYS[letter] = () => choose(value); });
STEP_LABELS.forEach(([value, letter], i) => { LABEL_KEYS[i + 5] = BLIND_KEYS[letter] = () => labelStep(value); });
LABEL_KEYS[9] = toggleSideEffects;

function onLabelKey(event) {
  if (annotator === null || view !== "browse" || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, select, textarea");
  const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey) && (!typing || typing.closest(".label-panel"));
  if (event.key === "Enter" && !sends && typing?.matches(".answer-field input")) { event.preventDefault(); nextField(); return; }
  if (!sends && (typing || event.ctrlKey || event.metaKey || event.altKey)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  // Enter activates a control reached by Tab, as usual; a choice that is already selected is saved. The button of a dialog keeps
  // the focus for some milliseconds after it has closed the dialog.
  if (key === "Enter" && !sends && event.target.closest("button, summary, a") && !event.target.closest("[aria-pressed=true], dialog")) return;
  const act = sends && !blind ? () => {} : digitAct(key) ?? (Object.hasOwn(LABEL_KEYS, key) ? LABEL_KEYS[key] : blind && Object.hasOwn(BLIND_KEYS, key) ? BLIND_KEYS[key] : null);
  if (act === null) {
    if (blind && busy && (key.length === 1)) event.stopPropagation();
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  if (event.repeat || busy || !isReady()) return;
  if (typing) typing.blur(); // which saves a changed note, unless the page is blind
  act();
}

document.addEventListener("keydown", onLabelKey, true);
