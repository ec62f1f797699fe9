// Shared by the pages of prill annotate: requests, error messages, serialised work, unsaved drafts,
// focus handling, image size.

const LARGEST = 2; // small screenshots are enlarged at most twofold
const PATIENCE = 30000; // milliseconds; the timeout of a request
const STORED = "unsaved";

export const $ = (id) => document.getElementById(id);

let busy = false;

export const isBusy = () => busy;

// An error has the HTTP status as `status`.
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
    // The response is not from prill's routes: use its text.
  }
  throw Object.assign(new Error(message), { status: answer.status });
}

export function say(text, mild = true) {
  $("alert").hidden = !text;
  $("alert").textContent = text ?? "";
  $("alert").className = mild ? "mild" : "";
}

// Ignore keys while the next item is loading, so that they do not decide about it unseen.
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

// Unsaved decisions by index, and the numbers of decisions that this page has saved. Both survive a reload.
export const { drafts, saves } = stored();

function stored() {
  try {
    const found = JSON.parse(sessionStorage.getItem(STORED));
    // Another URL is another session, with other indexes.
    if (found?.address === location.pathname) return { drafts: new Map(found.drafts), saves: found.saves };
  } catch {
    // Without storage, unsaved decisions are lost with the page.
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
    // Storage is full or forbidden: the browser still asks before leaving the page.
  }
}

// Returns the next unsaved index, after `index` and then from the start.
export function nextDraft(index) {
  const places = [...drafts.keys()].sort((a, b) => a - b);
  return places.find((place) => place > index) ?? places[0];
}

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});

// Clicking a control takes focus from text fields without giving it to the control, so that the next key goes to the page, and Enter saves.
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
