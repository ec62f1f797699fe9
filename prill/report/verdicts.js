// What judges and people said of one trajectory: cards side by side, and their step labels on a timeline.

// "TP", "FP", "TN", "FN", "unscored", or "" where there is nothing to compare.
function against(truth, said) {
  if (truth !== "success" && truth !== "failure") return "";
  if (said === "unscored") return "unscored";
  if (said === "") return "";
  return (said === truth ? "T" : "F") + (said === "success" ? "P" : "N");
}

const KINDS = { FP: "False positive", FN: "False negative", TP: "Agrees with the label", TN: "Agrees with the label" };

function judgesDisagree(said) {
  return said.includes("success") && said.includes("failure");
}

function disagreement(row) {
  return judgesDisagree(row.outcomes) || row.outcomes.some((said) => ["FP", "FN"].includes(against(row.truth, said)));
}

function judgeCards(shown, row) {
  if (!overview.judges.length) return null;
  const cards = (numbers) => el("div", { class: "judges" }, numbers.map((i) => judgeCard(shown, row, overview.judges[i], i)));
  const all = [...overview.judges.keys()];
  if (rival() === null) return el("section", { id: "judges" }, cards(all));
  const two = [Number(filters.judge), rival()];
  const others = all.filter((i) => !two.includes(i));
  return el("section", { id: "judges" }, cards([...new Set(two)]),
    others.length ? folded(`${others.length} more ${others.length === 1 ? "judge" : "judges"}`, false, cards(others)) : null);
}

function labelLine(shown, row) {
  if (!overview.source) return null;
  const why = { not_executable: "nobody could have done it", unsure: "not sure" };
  const several = shown.labels.length > 1;
  const lines = shown.labels.map((label) => el("li", {},
    badge(outcomeOf(label, "undecided")),
    el("span", { class: "plain" }, [label.annotator, why[label.undecided], label.note].filter(Boolean).join(": "))));
  return el("section", { class: "label-line" },
    el("h3", {}, `Label (${overview.source})`),
    several ? el("span", { title: "What counts: the first label that is decided" }, badge(row.truth)) : null,
    lines.length ? el("ul", { class: `bare ${several ? "several" : ""}` }, lines) : el("span", { class: "hint" }, "none"));
}

function judgeCard(shown, row, name, i) {
  const verdict = shown.verdicts[i];
  const kind = against(row.truth, row.outcomes[i]);
  const head = el("h3", {}, name);
  if (!verdict) return el("section", { class: "judge" }, head, el("p", { class: "hint" }, "No verdict"));
  const outcome = row.outcomes[i];
  return el("section", { class: `judge ${verdict.findings ? "wide" : ""}` }, head,
    el("div", { class: "said" },
      badge(outcome, outcome === "unscored" ? `Unscored: ${verdict.unscored}` : undefined),
      verdict.score === null ? null : el("span", { class: "score" }, `score ${verdict.score.toFixed(2)}`),
      KINDS[kind] ? el("span", { class: `kind ${kind[0] === "F" ? "differs" : ""}` }, KINDS[kind]) : null),
    verdict.reason ? el("div", { class: "plain reason" }, verdict.reason) : null,
    findingsOf(shown, verdict),
    opinionsOf(verdict),
    el("p", { class: "spent" }, spent(verdict)));
}

function spent({ usage, seconds }) {
  const tokens = usage.prompt_tokens + usage.completion_tokens;
  return [
    `${seconds < 1 ? Math.round(seconds * 1000) + " ms" : seconds.toFixed(1) + " s"}`,
    usage.calls ? `${usage.calls} ${usage.calls === 1 ? "call" : "calls"}` : null,
    tokens ? `${tokens.toLocaleString("en")} tokens` : null,
    usage.images ? `${usage.images} ${usage.images === 1 ? "image" : "images"}` : null,
    usage.usd === null ? "cost unknown" : usage.usd ? `$${usage.usd.toPrecision(2)}` : null,
  ].filter(Boolean).join(" · ");
}

const MET = { met: ["✓", "met"], not_met: ["✗", "not met"], insufficient_evidence: ["–", "not enough evidence"] };

function findingsOf(shown, verdict) {
  const found = verdict.findings;
  if (!found) return null;
  const lines = found.criteria.map((criterion) => el("li", { class: criterion.met },
    el("span", { class: "grade" }, `${MET[criterion.met][0]} ${MET[criterion.met][1]}`),
    el("span", {}, criterion.text, criterion.weight === 1 ? null : el("small", {}, ` weight ${criterion.weight}`)),
    criterion.step === null ? null : stepLink(shown, criterion.step),
    criterion.reason ? el("div", { class: "plain" }, criterion.reason) : null));
  return el("div", { class: "findings" },
    found.process === null ? null : el("p", {}, `Process: ${(100 * found.process).toFixed(0)} % of the criteria's weight is met`),
    found.not_executable ? el("p", { class: "warning" }, `Not executable: ${found.not_executable}`) : null,
    found.side_effects.length ? el("div", { class: "warning" }, "Side effects", el("ul", {}, found.side_effects.map((text) => el("li", {}, text)))) : null,
    lines.length ? folded(`${found.criteria.filter((c) => c.met === "met").length} of ${lines.length} criteria met`, true, el("ul", { class: "criteria" }, lines)) : null);
}

function stepLink(shown, index) {
  if (!shown.trajectory) return el("small", {}, ` state ${index + 1}`);
  return el("button", { type: "button", class: "jump", click: () => goToCard(index) }, stateName(shown.trajectory, index).toLowerCase());
}

function opinionsOf(verdict) {
  if (!verdict.opinions || !verdict.opinions.length) return null;
  const lines = verdict.opinions.map((opinion) => el("li", {},
    badge(outcomeOf(opinion, "unscored"), opinion.success === null ? `Abstains: ${opinion.unscored ?? "no verdict"}` : undefined),
    ` ${opinion.judge}`, opinion.score === null ? "" : ` ${opinion.score.toFixed(2)}`,
    opinion.reason ? el("div", { class: "plain" }, opinion.reason) : null));
  return folded(`Opinions of ${lines.length}`, false, el("ul", { class: "bare" }, lines));
}

// One line for each judge that labelled steps, for each judge that points at steps, and for each annotator.
function stepVoices(shown) {
  const voices = [];
  shown.verdicts.forEach((verdict, i) => {
    if (verdict && verdict.steps) voices.push({ name: overview.judges[i], labels: verdict.steps });
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
    el("button", { type: "button", class: "jump", "aria-label": `Show ${stateName(shown.trajectory, n)}`, click: () => goToCard(n) },
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

// The step labels again at their step, with the reasons in full.
function stepOpinions(shown, index) {
  const lines = stepVoices(shown).flatMap((voice) => voice.labels.filter((label) => label.index === index).map((label) => [voice, label]));
  if (!lines.length) return null;
  return el("ul", { class: "bare step-labels" }, lines.map(([voice, label]) => el("li", {},
    stepMark(label), ` ${STEP_WORDS[label.label][1]} `, el("small", {}, voice.name), label.flagged ? el("small", {}, ": stands in, the reply held no label") : null, label.reason ? el("div", { class: "plain" }, label.reason) : null)));
}
