// One trajectory state by state: the selected one large, all of them as a list below it.

const folds = { thoughts: true, captions: false, texts: false };
let entry = null; // the trajectory on the screen, with its images, verdicts and labels
const LAST = Infinity;
let at = LAST; // the state that is shown large: at first the last one, where the outcome is

function stage() {
  return el("section", { id: "stage", "aria-label": "Screenshot" }, el("div", { class: "stage-head", "aria-live": "polite" }), el("div", { class: "stage-picture" }), el("div", { class: "stage-texts" }));
}

function drawStage() {
  const { trajectory, pictures } = entry;
  const step = trajectory.steps[at];
  const [head, place, texts] = byId("stage").children;
  head.replaceChildren(el("strong", {}, placeName(trajectory)),
    el("span", { class: "action" }, step ? [el("bdi", {}, actionWords(step.action)), where(step.action)] : "what the agent left behind"),
    el("button", { type: "button", "aria-label": "Previous state", title: "Previous state (←)", disabled: at === 0, click: () => turn(-1) }, "←"),
    el("button", { type: "button", "aria-label": "Next state", title: "Next state (→)", disabled: at + 1 >= stateCount(trajectory), click: () => turn(1) }, "→"));
  const inside = frame(trajectory, pictures, at);
  const image = inside.querySelector("img");
  if (image) {
    // As large as the space allows, but at most twice its size; the frame keeps the image's aspect ratio.
    const { width, height } = pictures[at];
    image.loading = "eager";
    inside.style.width = `min(100%, calc(var(--stage) * ${width / height}), ${2 * width}px)`;
  }
  place.replaceChildren(image
    ? el("button", { type: "button", class: "enlarge", "aria-label": `Enlarge: ${alternative(trajectory, at)}`, click: enlarge }, inside)
    : inside);
  texts.replaceChildren(...[stageText()].flat().filter(Boolean));
}

function placeName(trajectory, index = at) {
  return `${stateName(trajectory, index)}${index < trajectory.steps.length ? ` of ${trajectory.steps.length}` : ""}`;
}

// Clamps any number to an existing state.
function go(index) {
  if (!entry?.trajectory || !stateCount(entry.trajectory)) return;
  at = Math.max(0, Math.min(index, stateCount(entry.trajectory) - 1));
  drawStage();
  markCard();
  if (byId("viewer").open) drawViewer();
}

function turn(by) {
  go(at + by);
  keepAddress();
}

function markCard() {
  const list = byId("film").querySelector(".film");
  for (const card of list.children) card.setAttribute("aria-current", String(card.id === `card-${at}`));
  list.scrollTop = byId(`card-${at}`).offsetTop - 4;
  showForm();
}

// The target of a link: the state itself, regardless of the scroll position.
function goToCard(index) {
  if (!byId(`card-${index}`)) return;
  go(index);
  keepAddress();
  byId("stage").scrollIntoView({ block: "nearest" });
  byId(`card-${index}`).focus({ preventScroll: true });
}

function film() {
  if (!stateCount(entry.trajectory)) return el("p", { class: "empty" }, "No steps were recorded.");
  const list = filmstrip();
  const has = {
    thoughts: entry.trajectory.steps.some((step) => step.thought),
    captions: list.querySelector(".fold .plain") !== null,
    texts: list.querySelector("pre") !== null,
  };
  const words = { thoughts: "thoughts", captions: "captions", texts: "page text" };
  const switches = Object.keys(folds).filter((key) => has[key]).map((key) => el("label", {},
    el("input", { type: "checkbox", checked: folds[key], change: (event) => { folds[key] = event.target.checked; redrawFilm(); } }), ` ${words[key]}`));
  return el("section", { id: "film" },
    el("div", { class: "film-head" }, el("h3", {}, "Steps"), switches.length ? el("div", { class: "switches" }, "Open all: ", switches) : null), list);
}

function redrawFilm() {
  byId("film").querySelector(".film").replaceWith(filmstrip());
  markCard();
}

function filmstrip() {
  const cards = [];
  for (let index = 0; index < stateCount(entry.trajectory); index++) cards.push(card(index));
  return el("ol", { class: "film", tabindex: "0", "aria-label": "Steps" }, cards);
}

function card(index) {
  const { trajectory, pictures } = entry;
  const step = trajectory.steps[index];
  const state = stateAt(trajectory, index);
  const picture = pictures[index];
  const choose = (event) => { if (event.currentTarget.matches("button") || !event.target.closest("button, summary, pre, a")) goToCard(index); };
  return el("li", { class: "card", id: `card-${index}`, tabindex: "-1", click: choose },
    picture ? el("div", { class: `thumb ${picture.height > picture.width ? "tall" : ""}` }, frame(trajectory, pictures, index)) : null,
    el("div", { class: "card-body" },
      el("div", { class: "card-head" }, el("button", { type: "button", class: "jump", click: choose }, stateName(trajectory, index)), step ? [el("span", { class: "kind" }, step.action.kind), ownMark()] : null),
      step ? el("p", { class: "action" }, el("bdi", {}, actionWords(step.action)), where(step.action), claims(step.action) && actionWords(step.action) !== step.action.kind ? el("small", {}, " (a claim)") : null) : el("p", { class: "action" }, "what the agent left behind"),
      step && !(claimsFolded && claims(step.action)) ? actionParts(step.action) : null,
      stepOpinions(entry, index),
      frameGrades(entry, index),
      step && step.thought ? folded("Thought (a claim)", folds.thoughts, el("blockquote", { class: "claim" }, step.thought)) : null,
      state.caption && picture ? optional("Caption", folds.captions, plain(state.caption)) : null,
      state.text && (picture || state.caption) ? optional("Page text", folds.texts, el("pre", { tabindex: "0" }, state.text)) : null,
      state.url ? el("p", { class: "url", title: state.url }, state.url) : null));
}

// Details that the action's text omits.
function actionParts(action) {
  const parts = [["target", action.target], ["value", action.value]].filter(([, value]) => value && !actionWords(action).includes(value));
  return parts.length ? el("p", { class: "parts" }, parts.map(([name, value]) => el("span", {}, el("small", {}, `${name} `), value))) : null;
}

function enlarge() {
  drawViewer();
  byId("viewer").showModal();
}

function drawViewer() {
  const { trajectory, pictures } = entry;
  const step = trajectory.steps[at];
  const inside = frame(trajectory, pictures, at);
  if (inside.querySelector("img")) {
    const { width, height } = pictures[at];
    const scale = Math.min(2, (0.93 * window.innerWidth - 30) / width, (0.94 * window.innerHeight - 90) / height);
    inside.style.width = `${Math.floor(width * scale)}px`;
  }
  byId("viewer").replaceChildren(
    el("div", { class: "viewer-head" },
      el("strong", {}, placeName(trajectory)),
      el("span", { class: "action" }, step ? actionWords(step.action) : ""),
      el("button", { type: "button", "aria-label": "Previous state", disabled: at === 0, click: () => turn(-1) }, "←"),
      el("button", { type: "button", "aria-label": "Next state", disabled: at + 1 >= stateCount(trajectory), click: () => turn(1) }, "→"),
      el("button", { type: "button", click: () => byId("viewer").close() }, "Close")),
    el("div", { class: "viewer-picture" }, inside));
}
