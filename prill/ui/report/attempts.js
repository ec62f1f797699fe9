// The attempts at one task side by side: verdicts, labels, and the lesson that the next one began with.

const ENDED = {
  accepted: "The judge accepted this attempt.", attempts: "No attempts were left.",
  repeated_lesson: "The lesson repeats an earlier one, so another attempt would not differ.",
  unscored: "The judge left this attempt unscored.", no_lesson: "No lesson was written.",
  broken: "This attempt failed before its end.", not_begun: "The next attempt could not start.",
};

function attemptsOf(index) {
  const { series } = overview.rows[index];
  if (series === undefined || series === null) return null;
  const places = [...overview.rows.keys()].filter((i) => overview.rows[i].series === series);
  places.sort((a, b) => overview.rows[a].attempt - overview.rows[b].attempt);
  const ended = ENDED[entry.retry?.ended] ?? "";
  if (places.length === 1) return el("p", { class: "hint" }, `The only attempt at this task. ${ended}`);
  return el("section", { class: "attempts" }, el("h3", {}, `${places.length} attempts at this task`),
    el("ol", { class: "attempt-cards" }, places.map((i) => attemptCard(i, i === index))));
}

function attemptCard(i, chosen) {
  const row = overview.rows[i];
  const other = chosen ? entry : readDetail(i);
  const retry = other?.retry ?? {};
  const verdicts = other?.verdicts.filter(Boolean) ?? [];
  return el("li", { class: "attempt", "aria-current": String(chosen) },
    el("div", { class: "judge-head" },
      el("button", { type: "button", class: "jump", disabled: chosen, title: row.id, click: () => goToAttempt(i) }, row.attempt ? `Retry ${row.attempt}` : "First attempt"),
      retry.answer ? el("span", { class: "kind" }, "★ the answer that counts") : null),
    el("p", { class: "parts" },
      row.outcomes.map((outcome, k) => el("span", { title: overview.judges[k] }, badge(outcome), row.scores[k] === null ? null : ` ${row.scores[k].toFixed(2)}`)),
      overview.source ? el("span", { title: `Label (${overview.source})` }, "label ", badge(row.truth)) : null,
      el("span", { class: "hint" }, `${row.steps} ${row.steps === 1 ? "step" : "steps"}`)),
    verdicts.length && verdicts[0].reason ? el("div", { class: "plain", tabindex: "0" }, verdicts[0].reason) : null,
    retry.lesson ? [el("h3", {}, "Lesson ", el("small", {}, "the agent's own words")), el("blockquote", { class: "claim", tabindex: "0" }, retry.lesson)] : null,
    retry.problem ? el("p", { class: "warning" }, retry.problem) : null,
    retry.ended ? el("p", { class: "hint" }, ENDED[retry.ended] ?? retry.ended) : null);
}

function goToAttempt(index) {
  if (!found.includes(index)) setFilters({}, false);
  select(index);
  addAddress();
  byId("detail").focus({ preventScroll: true });
}
