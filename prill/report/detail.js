// One trajectory.

const readDetail = (index) => {
  const text = block(`t${index}`);
  return text === null ? null : JSON.parse(text);
};

function drawDetail(index) {
  const place = byId("detail");
  if (index === null) {
    place.replaceChildren(el("p", { class: "empty" }, "No trajectory fits the filters."));
    return;
  }
  const row = overview.rows[index];
  const shown = readDetail(index);
  if (shown === null) {
    place.replaceChildren(el("p", { class: "empty" }, "The browser is still reading this page …"));
    return;
  }
  place.replaceChildren(...[
    el("button", { type: "button", id: "back", click: () => showPane("list") }, "← List"),
    el("h2", {}, row.goal),
    facts(row),
    row.broken ? el("p", { class: "notice" }, row.broken) : null,
    shown.trajectory?.error ? el("p", { class: "notice" }, `The environment broke off: ${shown.trajectory.error}`) : null,
    labelLine(shown, row),
    judgeCards(shown, row),
    answer(shown.trajectory),
    shown.trajectory ? timeline(shown) : null,
    shown.trajectory ? film(shown) : null,
    earlier(shown.trajectory),
    shown.notes ? folded("Metadata", false, el("pre", { tabindex: "0" }, shown.notes)) : null,
  ].filter(Boolean));
  if (shown.trajectory) place.querySelector("h2").textContent = shown.trajectory.task.goal;
  place.scrollTop = 0;
}

// The judges anew, when others are compared: the chosen two stand side by side, the rest is folded.
function drawJudges() {
  if (byId("judges") && view === "browse") byId("judges").replaceWith(judgeCards(readDetail(current), overview.rows[current]));
}

function facts(row) {
  const words = [row.site, row.agent, row.platform === "other" ? null : row.platform, row.broken ? null : `${row.steps} ${row.steps === 1 ? "step" : "steps"}`];
  return el("p", { class: "meta" }, el("code", {}, row.id), words.filter(Boolean).map((word) => el("span", {}, word)));
}

function answer(trajectory) {
  if (!trajectory?.answer) return null;
  return el("section", { class: "answer" }, el("h3", {}, "Answer ", el("small", {}, "what the agent claims, not evidence")),
    el("blockquote", { class: "claim" }, trajectory.answer));
}

function earlier(trajectory) {
  const turns = trajectory?.task.earlier ?? [];
  if (!turns.length) return null;
  return folded(`${turns.length} earlier ${turns.length === 1 ? "turn" : "turns"} of this conversation`, false,
    el("ol", {}, turns.map((turn) => el("li", {}, turn.task.goal, turn.answer ? el("blockquote", { class: "claim" }, turn.answer) : null))));
}

function film(shown) {
  if (!stateCount(shown.trajectory)) return el("p", { class: "empty" }, "No steps were recorded.");
  const strip = filmstrip(shown);
  const has = {
    thoughts: shown.trajectory.steps.some((step) => step.thought),
    captions: strip.querySelector(".fold .plain") !== null,
    texts: strip.querySelector("pre") !== null,
  };
  const words = { thoughts: "thoughts", captions: "captions", texts: "page text" };
  const switches = Object.keys(folds).filter((key) => has[key]).map((key) => el("label", {},
    el("input", { type: "checkbox", checked: folds[key], change: (event) => { folds[key] = event.target.checked; redrawFilm(shown); } }), ` ${words[key]}`));
  return el("section", { id: "film" },
    el("div", { class: "film-head" }, el("h3", {}, "Steps"), switches.length ? el("div", { class: "switches" }, "Open all: ", switches) : null), strip);
}

function redrawFilm(shown) {
  const left = byId("film").querySelector(".film").scrollLeft;
  const fresh = filmstrip(shown);
  byId("film").querySelector(".film").replaceWith(fresh);
  fresh.scrollLeft = left;
}
