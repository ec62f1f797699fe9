// The labelling page. Text from trajectories, judges or people is inserted with textContent only.

import { $, alone, ask, drafts, fit, isBusy, keep, nextDraft, saves, say, store } from "./common.js";

const CHOICES = [["success", "s", "Success"], ["failure", "f", "Failure"], ["not_executable", "x", "Not executable"], ["unsure", "u", "Unsure"]];
const LABELS = [["towards", "t", "Towards goal"], ["not_sure", "n", "Not sure"], ["reached", "r", "Goal reached"], ["away", "a", "Away from goal"]];
const NAMES = Object.fromEntries([...CHOICES, ...LABELS].map(([value, , name]) => [value, name]));

const part = (id) => $(id).querySelector(":scope > :last-child");

let overview, card, form, chosen = 0, last = null;
let version; // of the saved decision that `form` replaces

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text != null) made.textContent = text;
  return made;
}

// Isolate adjacent texts, so that right-to-left marks in one do not affect the next.
const isolated = (words) => words.flatMap((word, i) => [i ? " · " : "", make("bdi", "", word)]);

const formOf = (decision) => ({
  choice: decision?.choice ?? null,
  steps: Object.fromEntries((decision?.steps ?? []).map(({ index, label }) => [index, label])),
  note: decision?.note ?? "",
});

function changed() {
  const saved = formOf(card.mine);
  return form.choice !== saved.choice || form.note.trim() !== saved.note || JSON.stringify(form.steps) !== JSON.stringify(saved.steps);
}

function keepDraft() {
  keep(card.index, changed() ? { form, version } : null);
  $("state").className = `pill ${drafts.has(card.index) ? "unsaved" : "saved"}`;
  $("state").textContent = drafts.has(card.index) ? `Not saved yet${form.choice ? "" : ": no outcome is chosen"}` : card.mine ? "On disk" : "";
}

async function open(index) {
  const next = await ask(`api/cards/${index}`);
  const left = card && card.index !== index && drafts.has(card.index) ? card.index + 1 : null;
  show(next);
  if (left) say(`Trajectory ${left} is not saved: what you decided of it is on this page only. "${drafts.size} not saved" leads back to it.`);
}

function show(next, draft = drafts.get(next.index)) {
  card = next;
  form = draft?.form ?? formOf(card.mine);
  version = draft?.version ?? card.version;
  chosen = 0;
  say(card.index === 0 && overview.broken.length ? `${overview.broken.length} broken lines are left out, the first: ${overview.broken[0]}` : null);
  showTask();
  showStrip();
  showClaims();
  showSaid();
  showSitting();
  select(0);
  showForm();
}

function showTask() {
  $("goal").textContent = card.goal;
  const about = [`${card.index + 1} of ${overview.entries.length}`, card.platform, card.site, card.start_url];
  $("about").replaceChildren(...isolated(about.filter((word, i) => word && about.indexOf(word) === i)));
  $("broke").hidden = !card.error;
  $("broke").textContent = `The environment broke off: ${card.error}`;
  $("earlier").hidden = !card.earlier.length;
  part("earlier").replaceChildren(...card.earlier.flatMap(({ goal, answer }) => [make("bdi", "", goal), "\n  ", answer == null ? "(no answer)" : "The agent said: ", make("bdi", "", answer), "\n"]));
  part("origin").replaceChildren(...isolated([`id ${card.id}`, card.agent && `agent ${card.agent}`].filter(Boolean)));
  $("origin").open = false;
}

// The agent's final message is a claim: it stays collapsed with the thoughts.
function actionText(action) {
  if (claims(action)) return action.kind === "stop" ? "stops" : "tells the user something";
  const text = action.text || action.kind;
  const more = [action.target, action.value].filter((word) => word && !text.includes(word));
  return [text, ...more].join(" · ");
}

function showStrip() {
  $("strip").replaceChildren(...card.states.map((state, i) => {
    const button = make("button");
    button.type = "button";
    button.addEventListener("click", () => select(i));
    if (state.picture) {
      const thumb = make("img", "thumb");
      thumb.loading = "lazy";
      thumb.alt = "";
      thumb.src = `pictures/${card.index}/${i}`;
      thumb.addEventListener("error", () => thumb.replaceWith(make("span", "thumb")));
      button.append(thumb);
    }
    const line = make("span", "line");
    const action = card.actions[i];
    button.title = action ? actionText(action) : "";
    line.append(make("span", "quiet", action ? `${i + 1}` : ""), make("bdi", "", action ? actionText(action) : "Final state"), make("span", "dot"));
    button.append(line);
    return button;
  }));
}

function showClaims() {
  const rows = [];
  const add = (who, text) => {
    const row = make("div", "row");
    row.append(make("span", "quiet", `${who}: `), make("bdi", "", text));
    rows.push(row);
  };
  if (card.answer != null) add("Answer", card.answer);
  card.actions.forEach((action, i) => {
    if (card.thoughts[i]) add(`Thought ${i + 1}`, card.thoughts[i]);
    const words = claims(action) ? (action.value ?? action.text) : null;
    if (words && words !== card.answer && words !== action.kind) add(`Said in step ${i + 1}`, words);
  });
  $("claims").hidden = !rows.length;
  $("claims").open = false;
  part("claims").replaceChildren(...rows);
}

const choiceOf = ({ success, undecided }) => (success == null ? (undecided ?? "unsure") : success ? "success" : "failure");

function opinions(shown) {
  const row = (who, tone, word, ...more) => {
    const made = make("div", "row");
    made.append(make("bdi", "", who), ": ", make("span", `pill ${tone}`, word), ...more.filter(Boolean).flatMap((text) => [" · ", make("bdi", "", text)]));
    return made;
  };
  const steps = (labels) => labels?.length && labels.map(({ index, label }) => `${index + 1} ${NAMES[label].toLowerCase()}`).join(", ");
  const people = (shown.others ?? []).map((other) => row(other.annotator ?? "(unnamed)", choiceOf(other), NAMES[choiceOf(other)], other.note, steps(other.steps)));
  const judges = (shown.verdicts ?? []).map(({ evaluator, success, score, unscored, reason, steps: labels }) => {
    const who = [`${evaluator.name} ${evaluator.version}`, evaluator.model].filter(Boolean).join(", ");
    const word = unscored ? `unscored (${unscored})` : `${success ? "Success" : "Failure"}${score == null ? "" : ` (score ${score.toFixed(2)})`}`;
    return row(who, unscored ? "unsure" : success ? "success" : "failure", word, reason, steps(labels));
  });
  return [...people, ...judges];
}

function showSaid() {
  const rows = opinions(card);
  $("said").hidden = !rows.length;
  $("said").firstChild.textContent = card.mine ? "What others say of this one" : "Verdicts, before your label";
  part("said").replaceChildren(...rows);
  $("last").hidden = !last || last.index === card.index;
  if ($("last").hidden) return;
  const line = make("div", "row");
  const back = make("button", "link", `${last.index + 1}`);
  back.type = "button";
  back.addEventListener("click", () => alone(() => open(last.index)));
  line.append("You, on ", back, ": ", make("span", `pill ${last.mine.choice}`, NAMES[last.mine.choice]));
  part("last").replaceChildren(line, ...opinions(last));
}

function showSitting() {
  const done = overview.entries.filter(({ choice }) => choice).length;
  const total = overview.entries.length;
  $("counts").textContent = `${done} done, ${total - done} left`;
  $("bar").style.width = `${(100 * done) / total}%`;
  $("annotator").textContent = `Annotator: ${overview.annotator}`;
  $("undo").disabled = !saves.length;
  const pairs = overview.pairs ?? [];
  $("agreement").hidden = !pairs.length;
  const table = make("table");
  const add = (tag, cells) => {
    const line = make("tr");
    line.append(...cells.map((cell) => make(tag, "", cell)));
    table.append(line);
  };
  add("th", ["With", "agree", "of", "kappa"]);
  for (const { annotator, agreed, common, kappa } of pairs) {
    const share = common ? `${Math.round((100 * agreed) / common)} %` : "–";
    add("td", [annotator, share, `${common}`, kappa == null ? "–" : kappa.toFixed(2)]);
  }
  const open = pairs.reduce((sum, { undecided }) => sum + undecided, 0);
  const about = open ? [make("p", "quiet", `Success and failure only; ${open} left open by one or both.`)] : [];
  part("agreement").replaceChildren(table, ...about);
}

function showForm() {
  keepDraft();
  for (const button of $("choices").children) button.setAttribute("aria-pressed", String(button.value === form.choice));
  const action = card.actions[chosen];
  for (const button of $("labels").children) {
    button.disabled = !action;
    button.setAttribute("aria-pressed", String(button.value === form.steps[chosen]));
  }
  $("step-title").textContent = action ? `Step ${chosen + 1}` : card.states.length ? "The final state has no step to label" : "No step to label";
  if ($("note").value !== form.note) $("note").value = form.note;
  [...$("strip").children].forEach((button, i) => {
    const dot = button.querySelector(".line").lastChild;
    const label = form.steps[i];
    dot.className = label ? `mark ${label}` : "dot";
    dot.textContent = label ? LABELS.find(([value]) => value === label)[1] : "";
    dot.title = label ? NAMES[label] : "";
  });
}

function select(i) {
  if (!card.states.length) return showNothing();
  chosen = Math.min(Math.max(i, 0), card.states.length - 1);
  const state = card.states[chosen];
  const action = card.actions[chosen];
  [...$("strip").children].forEach((button, j) => button.setAttribute("aria-current", String(j === chosen)));
  const thumb = $("strip").children[chosen];
  $("strip").scrollLeft = thumb.offsetLeft - ($("strip").clientWidth - thumb.offsetWidth) / 2;
  $("action").replaceChildren(make("b", "", action ? `Step ${chosen + 1} of ${card.actions.length}: ` : "Final state, "), make(action ? "bdi" : "span", "", action ? actionText(action) : "after the last action"));
  if (state.url) $("action").append(make("bdi", "address", state.url));
  showPicture(state, action);
  $("caption").hidden = !state.caption;
  part("caption").textContent = state.caption ?? "";
  showText(state);
  showForm();
}

function showNothing() {
  chosen = 0;
  $("action").replaceChildren();
  $("caption").hidden = $("text").hidden = true;
  showEmpty("Nothing was recorded of this trajectory");
  showForm();
}

function showEmpty(why) {
  $("frame").hidden = true;
  $("empty").hidden = false;
  $("empty").textContent = why;
}

function showPicture(state, action) {
  document.querySelector(".evidence").classList.toggle("bare", !state.picture);
  mark(null);
  if (!state.picture) {
    showEmpty("No screenshot of this moment");
    $("text").open = $("caption").open = true;
    return;
  }
  const picture = new Image();
  const mine = [card, chosen];
  const current = () => mine[0] === card && mine[1] === chosen;
  picture.alt = action ? `Screen before step ${chosen + 1}` : "Final screen";
  picture.addEventListener("load", () => {
    if (!current()) return;
    $("picture").replaceWith(picture);
    picture.id = "picture";
    $("frame").hidden = false;
    $("empty").hidden = true;
    fit();
    mark(action);
  });
  picture.addEventListener("error", () => current() && showEmpty("This screenshot is missing or no picture"));
  picture.src = `pictures/${card.index}/${chosen}`;
}

function mark(action) {
  $("frame").querySelector(".overlay")?.remove();
  const { naturalWidth: width, naturalHeight: height } = $("picture");
  const drawn = action && overlay(action, width, height);
  if (drawn) $("frame").append(drawn);
}

async function showText(state = card.states[chosen]) {
  $("text").hidden = !state?.text;
  if (!state?.text || !$("text").open) return;
  const mine = [card, chosen];
  part("text").textContent = "Loading …";
  let text;
  try {
    text = await (await fetch(`texts/${card.index}/${chosen}`)).text();
  } catch {
    text = "The page text could not be read: is prill annotate still running?";
  }
  if (mine[0] === card && mine[1] === chosen) part("text").textContent = text;
}

const choose = (choice) => {
  form.choice = choice;
  $("alert").classList.add("past");
  showForm();
};

const label = (value) => {
  if (!card.actions[chosen]) return say("The final state has no step to label.");
  if (form.steps[chosen] === value) delete form.steps[chosen];
  else form.steps[chosen] = value;
  showForm();
};

function take(change) {
  overview.entries[change.card.index].choice = change.card.mine?.choice ?? null;
  overview.pairs = change.pairs;
  card = change.card;
  version = card.version;
}

const save = () => alone(async () => {
  if (!form.choice) return say("Choose success, failure, not executable or unsure first (s, f, x, u).");
  const steps = Object.entries(form.steps).map(([index, value]) => ({ index: Number(index), label: value }));
  const { choice, note } = form;
  let change;
  try {
    $("state").textContent = "Saving …";
    change = await ask(`api/cards/${card.index}`, { choice, steps, note, version });
  } catch (error) {
    keepDraft();
    if (error.status === 409) await takeOther(error);
    throw new Error(`Not saved. ${error.message} Your label is still here: Enter tries again.`);
  }
  saves.push(change.card.version);
  take(change);
  last = change.card;
  if (form.note !== note) {
    showSitting();
    showForm();
    return say("Saved, but without what was typed since: Enter saves it too.");
  }
  form = formOf(card.mine);
  keepDraft();
  if (change.next == null) {
    show(change.card);
    const rest = drafts.size ? `, but ${drafts.size} changed and not saved yet` : "";
    say(`All ${overview.entries.length} are labelled and on disk${rest}. End prill annotate with Ctrl-C in its terminal, or look through them.`);
  } else {
    await open(change.next);
  }
});

// Another page has saved a label of this trajectory: show it as the saved one, and keep the form.
async function takeOther(error) {
  card = await ask(`api/cards/${card.index}`);
  version = card.version;
  overview.entries[card.index].choice = card.mine?.choice ?? null;
  showSaid();
  showSitting();
  showForm();
  throw new Error(`Not saved. ${error.message} Your label is still here: Enter replaces the other.`);
}

const undo = () => alone(async () => {
  if (!saves.length) return say("Nothing to take back: only what was saved from this page since prill annotate started.");
  let change;
  try {
    change = await ask("api/undo", { version: saves.at(-1) });
  } catch (error) {
    if (error.status === 409) saves.pop();
    store();
    showSitting();
    throw new Error(`Not taken back: ${error.message}`);
  }
  saves.pop();
  last = null;
  if (!change) {
    overview = await ask("api/overview");
    await open(card.index);
    return say("It was taken back before.");
  }
  const waiting = drafts.get(change.card.index)?.form; // changes since then are kept
  take(change);
  show(change.card, { form: waiting ?? formOf(change.undone), version });
  say(`Taken back: ${change.card.mine ? "your earlier label stands in the file again" : "the file has no label of yours now"}. Change it and press Enter to save.`);
});

const step = (by) => alone(() => {
  const index = card.index + by;
  return index >= 0 && index < overview.entries.length ? open(index) : undefined;
});

function showEntries() {
  const wanted = $("find").value.trim().toLowerCase();
  const lines = overview.entries.flatMap(({ goal, choice }, i) => {
    if (wanted && !goal.toLowerCase().includes(wanted) && String(i + 1) !== wanted) return [];
    const item = make("li");
    const button = make("button");
    button.type = "button";
    button.append(make("span", "number", `${i + 1}`), make("bdi", "", goal), make("span", `pill ${choice ?? ""}`, choice ? NAMES[choice] : ""));
    if (drafts.has(i)) button.append(make("span", "pill unsaved", "not saved"));
    button.addEventListener("click", () => goTo(i));
    item.append(button);
    return [item];
  });
  $("entries").replaceChildren(...lines);
}

// Move the focus explicitly: after closing, it stays briefly in a hidden field, which would receive the next key.
function shut(dialog) {
  document.activeElement.blur();
  dialog.close();
}

function goTo(index) {
  shut($("jump"));
  alone(() => open(index));
}

function showJump() {
  $("find").value = "";
  showEntries();
  $("jump").showModal();
  $("find").focus();
  $("entries").children[card.index]?.scrollIntoView({ block: "center" });
}

const KEYS = {
  ArrowLeft: () => select(chosen - 1),
  ArrowRight: () => select(chosen + 1),
  Home: () => select(0),
  End: () => select(card.states.length - 1),
  Enter: save,
  z: undo,
  ",": () => step(-1),
  ".": () => step(1),
  g: showJump,
  e: () => $("note").focus(),
  p: () => ($("text").open = !$("text").open),
  c: () => ($("claims").open = !$("claims").open),
  "?": () => $("keys").showModal(),
};
CHOICES.forEach(([value, key], i) => (KEYS[key] = KEYS[i + 1] = () => choose(value)));
for (const [value, key] of LABELS) KEYS[key] = () => label(value);

document.addEventListener("keydown", (event) => {
  const dialog = document.querySelector("dialog[open]");
  if (dialog && event.key === "Escape") {
    event.preventDefault();
    shut(dialog);
  }
  if (!card || isBusy() || dialog) return;
  // The closed element may still have the focus briefly.
  const target = event.target.closest("dialog") ? document.body : event.target;
  const typing = target.matches("textarea, input");
  if (typing && event.key === "Escape") target.blur();
  const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  if (sends ? false : typing || event.ctrlKey || event.metaKey || event.altKey) return;
  // Enter activates a control reached by Tab, as usual; a choice that is already selected is saved.
  if (event.key === "Enter" && target.closest("button, summary") && !target.closest("[aria-pressed=true], [aria-current=true]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = Object.hasOwn(KEYS, key) ? KEYS[key] : null;
  if (!act) return;
  event.preventDefault();
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  if (typing) target.blur();
  act();
});

function wire() {
  for (const [id, offered, act] of [["choices", CHOICES, choose], ["labels", LABELS, label]]) {
    for (const [value, key, name] of offered) {
      const button = make("button", value);
      button.type = "button";
      button.value = value;
      button.append(make("span", "", name), make("kbd", "", key));
      button.addEventListener("click", () => card && !isBusy() && act(value));
      $(id).append(button);
    }
  }
  $("save").addEventListener("click", save);
  $("undo").addEventListener("click", undo);
  $("list").addEventListener("click", () => card && showJump());
  $("help").addEventListener("click", () => $("keys").showModal());
  $("note").addEventListener("input", () => {
    if (!card) return;
    form.note = $("note").value;
    keepDraft();
  });
  $("unsaved").addEventListener("click", () => card && alone(() => {
    const index = nextDraft(card.index);
    return index === card.index ? say("This is the one that is not saved: Enter saves it.") : open(index);
  }));
  $("text").addEventListener("toggle", () => card && showText());
  $("find").addEventListener("input", showEntries);
  $("jump").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    $("entries").querySelector("button")?.click();
  });
  new ResizeObserver(fit).observe($("stage"));
}

wire();
store();
alone(async () => {
  overview = await ask("api/overview");
  await open(overview.at);
});
