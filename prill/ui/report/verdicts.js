// Verdicts on one whole trajectory: the label, and a card for each judge.

// Returns "TP", "FP", "TN", "FN", "unscored", or "" if there is nothing to compare.
function against(truth, outcome) {
  if (truth !== "success" && truth !== "failure") return "";
  if (outcome === "unscored") return "unscored";
  if (outcome === "") return "";
  return (outcome === truth ? "T" : "F") + (outcome === "success" ? "P" : "N");
}

const KINDS = { FP: "False positive", FN: "False negative", TP: "Agrees with the label", TN: "Agrees with the label" };

function judgesDisagree(outcomes) {
  return outcomes.includes("success") && outcomes.includes("failure");
}

function disagreement(row) {
  return judgesDisagree(row.outcomes) || row.outcomes.some((outcome) => ["FP", "FN"].includes(against(row.truth, outcome)));
}

const FEW = 3; // up to this many judges are shown in full; with more, long parts scroll or collapse

function judgeCards(shown, row) {
  if (!overview.judges.length || (blind && !row.mine && !shown.verdicts.some(Boolean))) return null;
  const many = overview.judges.length > FEW;
  const cards = (numbers) => el("div", { class: `judges ${many ? "many" : ""}` }, numbers.map((i) => judgeCard(shown, row, overview.judges[i], i, many)));
  const all = [...overview.judges.keys()];
  if (rival() === null) return el("section", { id: "judges" }, cards(all));
  const two = [Number(filters.judge), rival()];
  const others = all.filter((i) => !two.includes(i));
  return el("section", { id: "judges" }, cards([...new Set(two)]),
    others.length ? folded(`${others.length} more ${others.length === 1 ? "judge" : "judges"}`, false, cards(others)) : null);
}

// An answer to a question, by a judge or a person.
function answerText(value) {
  if (value === null || value === undefined) return "cannot tell";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : JSON.stringify(value);
}

const answered = (question, value) => el("span", {}, el("bdi", {}, question), " ", el("strong", {}, el("bdi", {}, answerText(value))));

function labelLine(shown, row) {
  if (!overview.source || (blind && !shown.labels.length)) return null;
  const why = { not_executable: "nobody could have done it", unsure: "not sure" };
  const several = shown.labels.length > 1;
  const lines = shown.labels.map((label) => el("li", {},
    badge(outcomeOf(label, "undecided")),
    el("span", { class: "plain" }, [label.annotator, why[label.undecided], label.side_effects ? "side effects" : null, label.note].filter(Boolean).flatMap((word, i) => [i ? ": " : null, el("bdi", {}, word)])),
    label.answers ? el("ul", { class: "criteria" }, Object.entries(label.answers).map(([question, value]) => el("li", { class: "met" }, answered(question, value)))) : null));
  return el("section", { class: "label-line" },
    el("h3", {}, `Label (${overview.source})`),
    several ? el("span", { title: "The first decided label counts" }, badge(row.truth)) : null,
    lines.length ? el("ul", { class: `bare ${several ? "several" : ""}` }, lines) : el("span", { class: "hint" }, "none"));
}

function judgeCard(shown, row, name, i, many) {
  const verdict = shown.verdicts[i];
  const kind = against(row.truth, row.outcomes[i]);
  const outcome = row.outcomes[i];
  const head = el("div", { class: "judge-head" },
    el("span", { class: "number", "aria-hidden": "true" }, String(i + 1)), el("h3", { title: name }, name),
    verdict ? badge(outcome, outcome === "unscored" ? `Unscored: ${verdict.unscored}` : undefined) : null);
  if (!verdict) return el("section", { class: "judge" }, head, el("p", { class: "hint" }, "No verdict"));
  return el("section", { class: "judge" }, head,
    el("p", { class: "spent" },
      KINDS[kind] ? el("span", { class: `kind ${kind[0] === "F" ? "differs" : ""}` }, KINDS[kind]) : null,
      verdict.score === null ? null : el("span", { class: "score" }, `score ${verdict.score.toFixed(2)}`),
      el("span", { title: spent(verdict) }, many ? spent(verdict).split(" · ")[0] : spent(verdict)),
      many && isLong(verdict.reason) ? el("button", { type: "button", class: "jump more", "aria-expanded": "false", click: unfold }, "Show more") : null),
    verdict.reason ? el("div", { class: "plain reason", tabindex: "0" }, cited(verdict.reason, shown, verdict.findings?.citations)) : null,
    findingsOf(shown, verdict, many),
    opinionsOf(shown, verdict),
    callsButton(shown, row, i));
}

// More than fits in two lines.
function isLong(reason) {
  return (reason ?? "").length > 70 || /\n/.test(reason ?? "");
}

function unfold({ currentTarget: button }) {
  const whole = button.closest(".judge").classList.toggle("whole");
  button.setAttribute("aria-expanded", String(whole));
  button.textContent = whole ? "Show less" : "Show more";
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

function findingsOf(shown, verdict, many) {
  const found = verdict.findings;
  if (!found) return null;
  const lines = found.criteria.map((criterion) => el("li", { class: criterion.met },
    el("span", { class: "grade" }, `${MET[criterion.met][0]} ${MET[criterion.met][1]}`),
    el("span", {}, criterion.text, criterion.weight === 1 ? null : el("small", {}, ` weight ${criterion.weight}`)),
    criterion.step === null ? null : stepLink(shown, criterion.step),
    criterion.reason ? el("div", { class: "plain" }, cited(criterion.reason, shown, found.citations)) : null));
  const weight = found.process === null ? "" : `${(100 * found.process).toFixed(0)} % of the weight`;
  const points = found.key_points.length ? folded(`${found.key_points.length} key points`, false, el("ol", { class: "points-of-goal" }, found.key_points.map((point) => el("li", {}, point)))) : null;
  const answers = (found.answers ?? []).map((answer) => el("li", { class: "met" },
    answered(answer.question, answer.value),
    answer.step === null ? null : stepLink(shown, answer.step),
    answer.reason ? el("div", { class: "plain" }, cited(answer.reason, shown)) : null));
  return el("div", { class: "findings" },
    citationCount(found.citations),
    points,
    answers.length ? el("ul", { class: "criteria" }, answers) : null,
    found.process === null || lines.length ? null : el("p", {}, `Process: ${weight}`),
    found.official_label === undefined ? null : el("p", {}, `By the authors' rule: ${{ true: "success", false: "failure" }[found.official_label] ?? "no label"}`),
    found.not_executable ? el("p", { class: "warning" }, `Not executable: ${found.not_executable}`) : null,
    found.side_effects.length ? el("div", { class: "warning" }, "Side effects", el("ul", {}, found.side_effects.map((text) => el("li", {}, text)))) : null,
    lines.length ? folded(`${found.criteria.filter((c) => c.met === "met").length} of ${lines.length} criteria met${weight ? `: ${weight}` : ""}`, !many, el("ul", { class: "criteria" }, lines)) : null);
}

function stepLink(shown, index) {
  if (!shown.trajectory) return el("small", {}, ` state ${index + 1}`);
  return el("button", { type: "button", class: "jump", "data-step": index, click: () => goToCard(index) }, stateName(shown.trajectory, index).toLowerCase());
}

function opinionsOf(shown, verdict) {
  if (!verdict.opinions || !verdict.opinions.length) return null;
  const lines = verdict.opinions.map((opinion) => el("li", {},
    badge(outcomeOf(opinion, "unscored"), opinion.success === null ? `Abstains: ${opinion.unscored ?? "no verdict"}` : undefined),
    ` ${opinion.judge}`, opinion.score === null ? "" : ` ${opinion.score.toFixed(2)}`,
    opinion.reason ? el("div", { class: "plain" }, cited(opinion.reason, shown)) : null));
  return folded(`Verdicts of ${lines.length} ${lines.length === 1 ? "judge" : "judges"}`, false, el("ul", { class: "bare" }, lines));
}
