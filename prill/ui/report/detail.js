// One trajectory: its screenshots and steps, and next to them its verdicts and labels.

function drawDetail(index) {
  const place = byId("detail");
  entry = index === null ? null : readDetail(index);
  if (entry === null) {
    const why = index === null ? "No trajectory matches the filters." : "Loading …";
    place.replaceChildren(el("p", { class: "empty" }, why));
    return;
  }
  const row = overview.rows[index];
  const { trajectory, notes } = entry;
  const states = trajectory ? stateCount(trajectory) : 0;
  at = Math.max(0, Math.min(at, states - 1));
  place.replaceChildren(...[
    el("button", { type: "button", id: "back", click: () => showPane("list") }, "← List"),
    el("h2", {}, trajectory ? trajectory.task.goal : row.goal),
    facts(row, index),
    row.broken ? el("p", { class: "notice" }, row.broken) : null,
    trajectory?.error ? el("p", { class: "notice" }, `The environment failed: ${trajectory.error}`) : null,
    blind ? null : [attemptsOf(index), othersOf(index)],
    el("div", { class: "scene" },
      el("div", { class: "seen" }, states ? stage() : null, trajectory ? film() : null),
      el("div", { class: "beside" }, labelPanel(index), labelLine(entry, row), judgeCards(entry, row), answer(entry))),
    trajectory ? timeline(entry) : null,
    earlier(trajectory),
    notes ? folded("Metadata", false, el("pre", { tabindex: "0" }, notes)) : null,
  ].flat().filter(Boolean));
  go(at);
  showForm();
  place.scrollTop = 0;
}

// Redraws the judges for a comparison: the two chosen ones come first, the rest is collapsed.
function drawJudges() {
  if (byId("judges") && view === "browse") byId("judges").replaceWith(judgeCards(entry, overview.rows[current]));
}

function facts(row, index) {
  if (blind) return blindFacts(row, index);
  const words = [row.site, row.agent, row.platform === "other" ? null : row.platform, row.broken ? null : `${row.steps} ${row.steps === 1 ? "step" : "steps"}`];
  return el("p", { class: "meta" }, el("code", {}, row.id), words.filter(Boolean).map((word) => el("span", {}, word)));
}

function answer(shown) {
  const { trajectory } = shown;
  if (claimsFolded && trajectory) return claimsOf(trajectory);
  if (!trajectory?.answer) return null;
  return el("section", { class: "answer" }, el("h3", {}, "Answer ", el("small", {}, "the agent's claim, not evidence")),
    el("blockquote", { class: "claim" }, trajectory.answer));
}

function earlier(trajectory) {
  const turns = trajectory?.task.earlier ?? [];
  if (!turns.length) return null;
  return folded(`${turns.length} earlier ${turns.length === 1 ? "turn" : "turns"} of this conversation`, false,
    el("ol", {}, turns.map((turn) => el("li", {}, el("bdi", {}, turn.task.goal), turn.answer ? el("blockquote", { class: "claim" }, turn.answer) : null))));
}
