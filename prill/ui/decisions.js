// Shared by the pages on which a person decides: one action at a time, decisions that are not on disk yet, and the focus.
// A page defines `warn`, which shows a message, and `decides`, whether keys decide at the moment.

const STORED = `unsaved ${location.pathname}`; // another address is another session, or another page of it
// Unsaved decisions, and the numbers of decisions that this page has saved. Both survive a reload.
const { drafts, saves } = stored();
let busy = false;

function stored() {
  try {
    const found = JSON.parse(sessionStorage.getItem(STORED));
    if (found) return { drafts: new Map(found.drafts), saves: found.saves };
  } catch { /* Without storage, unsaved decisions are lost with the page. */ }
  return { drafts: new Map(), saves: [] };
}

function store() {
  try {
    sessionStorage.setItem(STORED, JSON.stringify({ drafts: [...drafts], saves }));
  } catch { /* Storage is full or forbidden: the browser still asks before leaving the page. */ }
}

// Keys are ignored meanwhile, so that they decide about nothing unseen.
async function alone(work) {
  if (busy) return;
  const place = document.querySelector("main:not([hidden])");
  busy = true;
  place.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    warn(error.message, false);
  } finally {
    busy = false;
    place.removeAttribute("aria-busy");
  }
}

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});

// Clicking a control takes the focus from text fields without giving it to the control, so that the next key goes to the page.
addEventListener("mousedown", (event) => {
  if (!decides() || !event.target.closest("button, summary") || event.target.closest("dialog")) return;
  event.preventDefault();
  document.activeElement?.blur();
});
