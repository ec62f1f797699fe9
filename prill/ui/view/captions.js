// The caption page: one caption at a time, with unsaved drafts. Text from files or models is inserted with textContent or value only.

const LARGEST = 2; // small screenshots are enlarged at most twofold

const $ = (id) => document.getElementById(id);

const decides = () => true;

function warn(text, mild = true) {
  $("alert").hidden = !text;
  $("alert").textContent = text ?? "";
  $("alert").className = mild ? "mild" : "";
}

function keep(index, draft) {
  if (draft) drafts.set(index, draft);
  else drafts.delete(index);
  store();
  showUnsaved();
}

function showUnsaved() {
  $("unsaved").hidden = !drafts.size;
  $("unsaved").textContent = `${drafts.size} not saved`;
}

// Returns the next unsaved index, after `index` and then from the start.
function nextDraft(index) {
  const places = [...drafts.keys()].sort((a, b) => a - b);
  return places.find((place) => place > index) ?? places[0];
}

function fit() {
  const { naturalWidth: width, naturalHeight: height } = $("picture");
  if (!width || !height) return;
  const scale = Math.min(($("stage").clientWidth - 16) / width, ($("stage").clientHeight - 16) / height, LARGEST);
  $("frame").style.width = `${width * scale}px`;
  $("frame").style.height = `${height * scale}px`;
}

const WORDS = { accepted: "Accepted", mended: "Edited", rejected: "Rejected" };
const TONES = { accepted: "success", mended: "not_sure", rejected: "failure" };

let overview, card;
let version; // of the saved decision that the next one replaces
let shown = ""; // the saved text, as the text field returns it

// A draft has a choice only if saving it failed.
function keepDraft(choice = drafts.get(card.index)?.choice) {
  const text = $("caption").value;
  keep(card.index, choice || text.trim() !== shown.trim() ? { text, choice, version } : null);
}

async function open(index) {
  const next = await ask(`api/cards/${index}`);
  const left = card && card.index !== index && drafts.has(card.index) ? card.index + 1 : null;
  show(next);
  if (left) warn(`Caption ${left} is not saved: its changes are on this page only. "${drafts.size} not saved" goes back to it.`);
}

function show(next) {
  card = next;
  const draft = drafts.get(card.index);
  version = draft?.version ?? card.version;
  warn(null);
  $("about").textContent = `Caption ${card.index + 1} of ${overview.choices.length}`;
  $("image").textContent = card.image;
  const warnings = [card.truncated && "The caption was cut by the limit of tokens.", card.problem && `There is no caption (${card.problem}): write one, or reject.`];
  $("warning").textContent = warnings.filter(Boolean).join(" ");
  $("warning").hidden = !$("warning").textContent;
  put(card.text);
  if (draft) $("caption").value = draft.text;
  $("caption").disabled = false; // what was typed before this would be overwritten
  $("caption").scrollTop = 0;
  showPicture();
  showState();
}

function put(text) {
  $("caption").value = text;
  shown = $("caption").value;
}

function showState() {
  keepDraft();
  const draft = drafts.get(card.index);
  const changed = $("caption").value.trim() !== card.caption.replace(/\r\n?/g, "\n").trim();
  $("state").className = `${draft ? "unsaved" : (TONES[card.decided] ?? "")}`;
  $("state").textContent = draft ? `Not saved yet${draft.choice ? `: ${draft.choice}` : ""}` : card.decided ? `${WORDS[card.decided]}, saved` : "";
  $("accept").firstChild.textContent = changed ? "Accept edited " : "Accept ";
  const done = overview.choices.filter(Boolean).length;
  const total = overview.choices.length;
  $("counts").textContent = `${done} done, ${total - done} left`;
  $("bar").value = done / total;
  // Isolated: right-to-left marks in names do not affect neighbouring text.
  $("annotator").replaceChildren(el("bdi", {}, overview.annotator), ", of captions by ", el("bdi", {}, overview.captioner));
  $("undo").disabled = !saves.length;
}

function showPicture() {
  const picture = new Image();
  const mine = card;
  picture.alt = "The screenshot";
  picture.addEventListener("load", () => {
    if (mine !== card) return;
    $("picture").replaceWith(picture);
    picture.id = "picture";
    $("frame").hidden = false;
    $("empty").hidden = true;
    fit();
  });
  picture.addEventListener("error", () => {
    if (mine !== card) return;
    $("frame").hidden = true;
    $("empty").hidden = false;
    $("empty").textContent = "This screenshot is missing, or no longer the one that was captioned";
  });
  picture.src = `pictures/${card.index}`;
}

const decide = (choice) => alone(async () => {
  const caption = $("caption").value;
  let change;
  try {
    $("state").textContent = "Saving …";
    change = await ask(`api/cards/${card.index}`, { choice, caption, version });
  } catch (error) {
    keepDraft(choice);
    if (error.status === 409) take(await ask(`api/cards/${card.index}`));
    showState();
    throw new Error(`Not saved. ${error.message} Your decision is still here: ${choice} it again.`);
  }
  saves.push(change.card.version);
  drafts.delete(card.index);
  take(change.card);
  if ($("caption").value !== caption) {
    shown = caption;
    showState();
    return warn("Saved without your later changes: accept it again to save them.");
  }
  put(card.text);
  keepDraft();
  if (change.next === null) {
    show(card);
    const rest = drafts.size ? `, but ${drafts.size} changed and not saved yet` : "";
    warn(`Every caption has a decision${rest}. End ${document.querySelector("main").dataset.command} with Ctrl-C, and run prill caption again: its rows follow them.`);
  } else await open(change.next);
});

function take(changed) {
  card = changed;
  version = card.version;
  overview.choices[card.index] = card.decided;
}

const undo = () => alone(async () => {
  if (!saves.length) return warn("Nothing to undo: only decisions of this page since its command started can be undone.");
  let change;
  try {
    change = await ask("api/undo", { version: saves.at(-1) });
  } catch (error) {
    if (error.status === 409) saves.pop();
    showState();
    throw new Error(`Not undone: ${error.message}`);
  }
  saves.pop();
  if (!change) {
    overview = await ask("api/overview");
    await open(card.index);
    return warn("It was undone before.");
  }
  const waiting = drafts.get(change.card.index); // text typed since then is kept
  const text = waiting?.text ?? change.undone;
  take(change.card);
  keep(card.index, text != null ? { ...waiting, text, version } : null);
  show(card);
  warn("Undone.");
});

const step = (by) => alone(async () => {
  const index = card.index + by;
  if (index >= 0 && index < overview.choices.length) await open(index);
});

const KEYS = {
  a: () => decide("accept"),
  r: () => decide("reject"),
  e: () => $("caption").focus(),
  z: undo,
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  "?": () => $("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (!card || busy || document.querySelector("dialog[open]")) return;
  const typing = event.target === $("caption");
  if (typing && event.key === "Escape") event.target.blur();
  if (typing && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.target.blur();
    decide("accept");
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = Object.hasOwn(KEYS, key) ? KEYS[key] : null;
  if (!act) return;
  event.preventDefault();
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  act();
});

$("accept").addEventListener("click", () => card && decide("accept"));
$("reject").addEventListener("click", () => card && decide("reject"));
$("undo").addEventListener("click", undo);
$("help").addEventListener("click", () => $("keys").showModal());
$("caption").addEventListener("input", () => card && showState());
$("unsaved").addEventListener("click", () => card && alone(() => {
  const index = nextDraft(card.index);
  return index === card.index ? warn("This one is not saved: accept or reject it.") : open(index);
}));
new ResizeObserver(fit).observe($("stage"));

showUnsaved();
alone(async () => {
  overview = await ask("api/overview");
  await open(overview.at);
});
