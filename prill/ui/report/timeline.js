// Step verdicts and labels: a timeline of all, and each at its step.

// One line for each judge that labelled steps, for each judge that points at steps, and for each annotator.
function stepVoices(shown) {
  const voices = [];
  shown.verdicts.forEach((verdict, i) => {
    if (verdict && verdict.steps) voices.push({ name: overview.judges[i], labels: verdict.steps, citations: verdict.findings?.citations });
  });
  for (const label of shown.labels) {
    if (label.steps) voices.push({ name: label.annotator || overview.source, labels: label.steps, person: true });
  }
  return voices;
}

function timeline(shown) {
  const voices = stepVoices(shown);
  const pointing = shown.verdicts.map((verdict, i) => ({ name: overview.judges[i], criteria: verdict?.findings?.criteria ?? [] }))
    .filter((judge) => judge.criteria.some((criterion) => criterion.step !== null));
  const rewarding = shown.verdicts.map((verdict, i) => ({ name: overview.judges[i], rewards: verdict?.rewards ?? [] })).filter((judge) => judge.rewards.length);
  if (!voices.length && !pointing.length && !rewarding.length) return null;
  const numbers = [...Array(stateCount(shown.trajectory)).keys()];
  const head = el("tr", {}, el("td", {}), numbers.map((n) => el("th", { scope: "col" },
    el("button", { type: "button", class: "jump", "data-step": n, "aria-label": `Show ${stateName(shown.trajectory, n)}`, click: () => goToCard(n) },
      n < shown.trajectory.steps.length ? String(n + 1) : "end"))));
  const lines = voices.map((voice) => el("tr", {}, el("th", { scope: "row" }, voice.name, voice.person ? el("small", {}, " person") : null),
    numbers.map((n) => el("td", {}, stepMark(voice.labels.find((label) => label.index === n))))));
  const paid = rewarding.map((judge) => el("tr", {}, el("th", { scope: "row" }, judge.name, el("small", {}, ` reward, sum ${amount(judge.rewards.reduce((sum, one) => sum + one, 0))}`)),
    numbers.map((n) => el("td", { class: "reward" }, n < judge.rewards.length ? amount(judge.rewards[n]) : null))));
  const shows = pointing.map((judge) => el("tr", {}, el("th", { scope: "row" }, judge.name, el("small", {}, " criteria shown")),
    numbers.map((n) => el("td", {}, criteriaAt(judge.criteria, n)))));
  const key = Object.entries(STEP_WORDS).map(([label, [glyph, words]]) => el("span", {}, el("span", { class: `mark ${label}` }, glyph), ` ${words}`));
  return el("section", { class: "timeline" },
    el("div", { class: "film-head" }, el("h3", {}, "Timeline"), voices.length ? el("p", { class: "legend" }, key) : null),
    el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, head), el("tbody", {}, lines, paid, shows))));
}

function amount(value) {
  return String(Number(value.toFixed(2))).replace("-", "−");
}

function stepMark(label) {
  if (!label) return null;
  const [glyph, words] = STEP_WORDS[label.label];
  const reward = label.reward === undefined ? "" : `, reward ${amount(label.reward)}`;
  const flag = label.flagged ? " (stands in: the reply held no label)" : "";
  return el("span", { class: `mark ${label.label} ${label.flagged ? "flagged" : ""}`, role: "img", "aria-label": words, title: `${words}${reward}${flag}${label.reason ? `\n${label.reason}` : ""}` }, glyph);
}

function criteriaAt(criteria, n) {
  const found = criteria.map((criterion, i) => [criterion, i + 1]).filter(([criterion]) => criterion.step === n);
  return found.length ? el("span", { class: "points", title: found.map(([c, i]) => `${i}. ${c.text}: ${MET[c.met][1]}`).join("\n") }, found.map(([, i]) => i).join(", ")) : null;
}

// The step labels at their step, with rewards and full reasons.
function stepOpinions(shown, index) {
  const lines = stepVoices(shown).flatMap((voice) => voice.labels.filter((label) => label.index === index).map((label) => [voice, label]));
  if (!lines.length) return null;
  return el("ul", { class: "bare step-labels" }, lines.map(([voice, label]) => el("li", {},
    stepMark(label), ` ${STEP_WORDS[label.label][1]} `,
    el("small", {}, voice.name, label.reward === undefined ? null : `, reward ${amount(label.reward)}`),
    label.flagged ? el("small", {}, ": stands in, the reply held no label") : null,
    label.reason ? el("div", { class: "plain" }, cited(label.reason, shown, ofStep(voice.citations ?? [], index))) : null)));
}

// The citations in the reason of one step: a judge of steps was shown this one and the state after it.
function ofStep(citations, index) {
  return citations.filter((one) => one.status === "no_such_step" || isWrong(one) === ![index, index + 1].includes(one.step));
}

// Descriptions of this state by judges that grade frames.
function frameGrades(shown, index) {
  const lines = shown.verdicts.flatMap((verdict, i) => (verdict?.findings?.frames ?? [])
    .filter((graded) => graded.states.includes(index))
    .map((graded) => el("li", {}, el("small", {}, `${overview.judges[i]}: `), graded.scores.length ? `${graded.scores.join(", ")} of 5` : "no grade",
      graded.description ? el("div", { class: "plain" }, graded.description) : null)));
  return lines.length ? folded("Grades of this frame", false, el("ul", { class: "bare step-labels" }, lines)) : null;
}
