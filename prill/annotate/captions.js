// The page for captions. Whatever comes from files or models is put in with textContent or value only.

const WORDS = { accepted: "Accepted", mended: "Mended", rejected: "Rejected" };
const TONES = { accepted: "success", mended: "not_sure", rejected: "failure" };
const LARGEST = 2; // small screens are drawn at most twice their size

const $ = (id) => document.getElementById(id);

let overview, card, busy = true, undoable = 0;
const drafts = new Map(); // texts that are not decided yet, by place

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("prill annotate does not answer: is it still running?");
  }
  if (answer.ok) return answer.json();
  const text = await answer.text();
  try {
    throw new Error(JSON.parse(text).error);
  } catch (error) {
    throw error instanceof SyntaxError ? new Error(`${answer.status}: ${text}`) : error;
  }
}

function say(text, mild = true) {
  $("alert").hidden = !text;
  $("alert").textContent = text ?? "";
  $("alert").classList.toggle("mild", mild);
}

// One thing at a time: a key pressed while the next caption is still coming must not decide it unseen.
async function alone(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    say(error.message, false);
  } finally {
    busy = false;
  }
}

function keepDraft() {
  if (!card) return;
  if ($("caption").value.trim() !== card.text.trim()) drafts.set(card.index, $("caption").value);
  else drafts.delete(card.index);
}

async function open(index) {
  keepDraft();
  show(await ask(`api/cards/${index}`));
}

function show(next) {
  card = next;
  say(null);
  $("about").textContent = `Caption ${card.index + 1} of ${overview.choices.length}`;
  $("image").textContent = card.image;
  const warnings = [card.truncated && "The caption was cut by the limit of tokens.", card.problem && `There is no caption (${card.problem}): write one, or reject.`];
  $("warning").textContent = warnings.filter(Boolean).join(" ");
  $("warning").hidden = !$("warning").textContent;
  $("caption").value = drafts.get(card.index) ?? card.text;
  $("caption").scrollTop = 0;
  showPicture();
  showState();
}

function showState() {
  const changed = $("caption").value.trim() !== card.caption.trim();
  $("state").className = `pill ${TONES[card.decided] ?? ""}`;
  $("state").textContent = WORDS[card.decided] ?? "";
  $("accept").firstChild.textContent = changed ? "Accept as mended " : "Accept ";
  const done = overview.choices.filter(Boolean).length;
  const total = overview.choices.length;
  $("counts").textContent = `${done} done, ${total - done} left`;
  $("bar").style.width = `${(100 * done) / total}%`;
  $("annotator").textContent = `${overview.annotator}, of captions by ${overview.captioner}`;
  $("undo").disabled = !undoable;
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

function fit() {
  const { naturalWidth: width, naturalHeight: height } = $("picture");
  if (!width || !height) return;
  const scale = Math.min(($("stage").clientWidth - 16) / width, ($("stage").clientHeight - 16) / height, LARGEST);
  $("frame").style.width = `${width * scale}px`;
  $("frame").style.height = `${height * scale}px`;
}

const decide = (choice) => alone(async () => {
  const { card: changed, next } = await ask(`api/cards/${card.index}`, { choice, caption: $("caption").value });
  undoable += 1;
  drafts.delete(card.index);
  overview.choices[changed.index] = changed.decided;
  card = changed;
  $("caption").value = changed.text;
  if (next === null) {
    show(changed);
    say("Every caption has a decision. End prill annotate with Ctrl-C, and run prill caption again: its rows honour them.");
  } else await open(next);
});

const undo = () => alone(async () => {
  if (!undoable) return;
  keepDraft();
  const change = await ask("api/undo", {});
  undoable -= 1;
  if (!change) return;
  overview.choices[change.card.index] = change.card.decided;
  drafts.delete(change.card.index);
  show(change.card);
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
addEventListener("beforeunload", (event) => {
  keepDraft();
  if (drafts.size) event.preventDefault();
});
new ResizeObserver(fit).observe($("stage"));

busy = false;
alone(async () => {
  overview = await ask("api/overview");
  await open(overview.at);
});
