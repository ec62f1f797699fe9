// Shared by the tabs in which a person decides: one action at a time, decisions that are not on disk yet, and the focus.

let busy = false;

// Unsaved decisions of a tab, and the numbers of those that it has saved. Both survive a reload.
function decisions(name) {
  const place = `${name} ${location.pathname}`; // another address is another session
  let found = null;
  try {
    found = JSON.parse(sessionStorage.getItem(place));
  } catch { /* Without storage, unsaved decisions are lost with the page. */ }
  const drafts = new Map(found?.drafts);
  const saves = found?.saves ?? [];
  const store = () => {
    try {
      sessionStorage.setItem(place, JSON.stringify({ drafts: [...drafts], saves }));
    } catch { /* Storage is full or forbidden: the browser still asks before leaving the page. */ }
  };
  addEventListener("beforeunload", (event) => { if (drafts.size) event.preventDefault(); });
  return { drafts, saves, store };
}

// Keys are ignored meanwhile, so that they decide about nothing unseen.
async function alone(work, tell = warn) {
  if (busy) return;
  const place = document.querySelector("main:not([hidden])");
  busy = true;
  place.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    tell(error.message, false);
  } finally {
    busy = false;
    place.removeAttribute("aria-busy");
  }
}

// Clicking a control takes the focus from text fields without giving it to the control, so that the next key goes to the page.
addEventListener("mousedown", (event) => {
  if (!(view === "captions" || (blind && view === "browse")) || !event.target.closest("button, summary") || event.target.closest("dialog")) return;
  event.preventDefault();
  document.activeElement?.blur();
});
