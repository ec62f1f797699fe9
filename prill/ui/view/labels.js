// The annotator's labels, next to the verdicts. The page confirms a decision only once it is on disk.

const CHOICES = [["success", "1", "✓ Success"], ["failure", "2", "✗ Failure"], ["not_executable", "3", "Not executable"], ["unsure", "4", "? Unsure"]];
const STEP_CHOICES = [["towards", "→"], ["reached", "★"], ["not_sure", "?"], ["away", "←"]];
const labels = new Map(); // saved labels, by number: {mine, version}
let annotator = null;
let saving = Promise.resolve();

function labelBar(index) {
  if (annotator === null || overview.rows[index].broken) return null;
  const known = labels.get(index);
  if (!known) readLabel(index);
  const mine = known?.mine ?? null;
  const note = el("textarea", { id: "note", rows: "1", maxlength: "20000", placeholder: "Note", "aria-label": "Note", keydown: onNoteKey, change: () => saveNote(index) });
  note.value = mine?.note ?? "";
  return el("section", { class: "label-bar", "aria-label": "Your label" },
    el("div", { class: "choices", role: "group", "aria-label": `Label of ${annotator}` }, CHOICES.map(([value, key, words]) => el("button", {
      type: "button", class: value, "aria-pressed": String(mine?.choice === value), disabled: !known, click: () => decide(index, { choice: value }),
    }, words, " ", el("kbd", {}, key)))),
    note,
    el("p", { class: "hint", id: "label-state", role: "status" }, known ? (mine ? "On disk" : "No label yet") : "Reading …"));
}

function stepChoice(index) {
  if (annotator === null || current === null || !labels.has(current)) return null;
  const mine = labels.get(current).mine;
  const chosen = mine?.steps?.find((step) => step.index === index)?.label;
  return el("div", { class: "step-choice", role: "group", "aria-label": `Your label of step ${index + 1}` }, STEP_CHOICES.map(([value, glyph]) => el("button", {
    type: "button", class: `mark ${value}`, title: STEP_WORDS[value][1], "aria-label": STEP_WORDS[value][1], "aria-pressed": String(chosen === value), disabled: !mine,
    click: (event) => { event.stopPropagation(); decide(current, { step: [index, chosen === value ? null : value] }); },
  }, glyph)));
}

async function readLabel(index) {
  try {
    labels.set(index, await ask(`api/labels/${index}`));
    if (index === current) redrawDetail(index);
  } catch (error) {
    say(error.message);
  }
}

// Saves decisions one after the other, each based on the saved one.
function decide(index, change) {
  saving = saving.then(() => write(index, change)).catch((error) => refused(index, error));
  return saving;
}

async function write(index, { choice, note, step }) {
  if (!labels.has(index)) await readLabel(index);
  const { mine, version } = labels.get(index);
  if (!choice && !mine) { say("Choose an outcome first: 1 to 4."); return; }
  let steps = mine?.steps ?? [];
  if (step) {
    steps = steps.filter((one) => one.index !== step[0]);
    if (step[1]) steps.push({ index: step[0], label: step[1] });
  }
  const typed = index === current ? byId("note")?.value : undefined;
  labels.set(index, await ask(`api/labels/${index}`, { choice: choice ?? mine.choice, note: note ?? typed ?? mine?.note ?? "", steps, version }));
  await after(index);
  say(`${choice ? CHOICES.find(([value]) => value === choice)[2] : "Label"}: on disk`);
}

// Data that is hidden until a run has a label is loaded again with the label.
async function after(index) {
  kept.delete(index);
  await follow();
  if (index !== current) return;
  const typing = document.activeElement === byId("note");
  await fetchDetail(index);
  if (typing) byId("note").blur();
  redrawDetail(index);
  if (typing) byId("detail").focus({ preventScroll: true });
}

async function refused(index, error) {
  say(error.message);
  if (error.status === 409) {
    labels.delete(index);
    await readLabel(index);
  }
  if (byId("label-state") && index === current) byId("label-state").textContent = `Not saved: ${error.message}`;
}

function saveNote(index) {
  const known = labels.get(index);
  const text = byId("note")?.value.trim() ?? "";
  if (known?.mine && text !== known.mine.note) decide(index, { note: text });
}

function onNoteKey(event) {
  if (event.key === "Escape") event.target.blur();
  if (event.key === "Enter" && event.ctrlKey) { event.preventDefault(); saveNote(current); }
}

async function undo() {
  try {
    const { number } = await ask("api/undo", {});
    if (number === null) { say("Nothing of this page to take back."); return; }
    labels.delete(number);
    kept.delete(number);
    await follow();
    await readLabel(number);
    if (!found.includes(number)) setFilters({}, false);
    select(number);
    say("Taken back");
  } catch (error) {
    say(error.message);
  }
}

for (const [value, key] of CHOICES) KEYS[key] = () => { if (annotator !== null && view === "browse" && current !== null) decide(current, { choice: value }); };
KEYS.e = () => { byId("note")?.focus(); };
KEYS.z = () => { if (annotator !== null) undo(); };
