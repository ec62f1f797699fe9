// What the pages of prill annotate share: asking the server, saying what is wrong, one thing at a time, what is not saved yet,
// where the focus is, the size of pictures.

const LARGEST = 2; // small screens are drawn at most twice their size
const PATIENCE = 30000; // milliseconds that an answer may take
const STORED = "unsaved";

export const $ = (id) => document.getElementById(id);

let busy = false;

export const isBusy = () => busy;

// An error has the status of the answer as `status`.
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer, text;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(PATIENCE) });
    text = await answer.text();
  } catch {
    throw new Error("prill annotate does not answer: is it still running?");
  }
  if (answer.ok) return JSON.parse(text);
  let message = `${answer.status}: ${text.trim()}`;
  try {
    message = JSON.parse(text).error;
  } catch {
    // Not from a route of ours: the text itself is all there is to say.
  }
  throw Object.assign(new Error(message), { status: answer.status });
}

export function say(text, mild = true) {
  $("alert").hidden = !text;
  $("alert").textContent = text ?? "";
  $("alert").className = mild ? "mild" : "";
}

// A key pressed while the next one is still coming must not decide about it unseen.
export async function alone(work) {
  if (busy) return;
  busy = true;
  document.querySelector("main").setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    say(error.message, false);
  } finally {
    busy = false;
    document.querySelector("main").removeAttribute("aria-busy");
  }
}

// What was decided here and is not on disk, by place, and the numbers of what this page has saved. Both survive a reload.
export const { drafts, saves } = stored();

function stored() {
  try {
    const found = JSON.parse(sessionStorage.getItem(STORED));
    // Another address is another sitting, whose places are others.
    if (found?.address === location.pathname) return { drafts: new Map(found.drafts), saves: found.saves };
  } catch {
    // Without storage, what is not saved lives as long as the page.
  }
  return { drafts: new Map(), saves: [] };
}

export function keep(index, draft) {
  if (draft) drafts.set(index, draft);
  else drafts.delete(index);
  store();
}

export function store() {
  $("unsaved").hidden = !drafts.size;
  $("unsaved").textContent = `${drafts.size} not saved`;
  try {
    sessionStorage.setItem(STORED, JSON.stringify({ address: location.pathname, drafts: [...drafts], saves }));
  } catch {
    // Full or forbidden: the browser still asks before it leaves the page.
  }
}

// Where the next one lies that is not saved, after `index` and then from the start.
export function nextDraft(index) {
  const places = [...drafts.keys()].sort((a, b) => a - b);
  return places.find((place) => place > index) ?? places[0];
}

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});

// A control pressed by the mouse takes no focus, and a text field loses it: the next key is the page's, and Enter saves.
addEventListener("mousedown", (event) => {
  if (!event.target.closest("button, summary") || event.target.closest("dialog")) return;
  event.preventDefault();
  document.activeElement?.blur();
});

export function fit() {
  const { naturalWidth: width, naturalHeight: height } = $("picture");
  if (!width || !height) return;
  const scale = Math.min(($("stage").clientWidth - 16) / width, ($("stage").clientHeight - 16) / height, LARGEST);
  $("frame").style.width = `${width * scale}px`;
  $("frame").style.height = `${height * scale}px`;
}
