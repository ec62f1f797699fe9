// The page of a reward monitor in prill view: the server reads logs that may be growing, and makes the sections.

const EVERY = 2000; // milliseconds between requests; none while there is more to read
const place = document.getElementById("sections");
const headline = document.getElementById("headline");
let drawn = "";

async function update() {
  try {
    const state = await ask("api/state");
    headline.textContent = state.read < 1 ? `reading ${Math.floor(100 * state.read)} %` : state.headline;
    if (state.html !== drawn) draw(state.html);
    return state.read < 1;
  } catch (error) {
    headline.textContent = error.message;
    return false;
  }
}

// Keeps the focus on the table that had it.
function draw(html) {
  drawn = html;
  const focusable = () => [...place.querySelectorAll("[tabindex]")];
  const focused = focusable().indexOf(document.activeElement);
  place.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  focusable()[focused]?.focus({ preventScroll: true });
}

(async () => {
  for (;;) {
    const more = !document.hidden && await update();
    await new Promise((resume) => setTimeout(resume, more ? 0 : EVERY));
  }
})();
