// Two runs of one task side by side: different agents, different attempts, before and after training.

const MOST_OTHERS = 30;

function othersOf(index) {
  const row = overview.rows[index];
  const others = [...overview.rows.keys()].filter((i) => i !== index && overview.rows[i].goal === row.goal && !overview.rows[i].broken);
  if (row.broken || !others.length) return null;
  const links = others.slice(0, MOST_OTHERS).map((i) => el("li", {},
    el("button", { type: "button", class: "jump", title: overview.rows[i].id, "aria-haspopup": "dialog", click: () => openBeside(index, i) }, overview.rows[i].agent ?? overview.rows[i].id),
    overview.rows[i].outcomes.map((outcome) => el("span", { class: `dot ${outcome || "none"}`, role: "img", "aria-label": WORDS[outcome][1] }, WORDS[outcome][0]))));
  return folded(`${others.length} other ${others.length === 1 ? "run" : "runs"} with this goal: side by side`, false, el("ul", { class: "bare others" }, links));
}

async function openBeside(one, other) {
  const place = byId("beside");
  const head = el("div", { class: "viewer-head" }, el("h2", {}, "Side by side"), el("button", { type: "button", click: () => place.close() }, "Close"));
  place.replaceChildren(head, el("p", { class: "hint" }, "Loading …"));
  place.showModal();
  await areThere([one, other]);
  const shown = entry;
  place.replaceChildren(head, el("div", { class: "two" }, [one, other].map((index) => printed(index))));
  for (const run of place.querySelectorAll("article")) run.addEventListener("click", besideStep, true);
  entry = shown;
}

// A link to a step shows the step of the run that it stands in.
function besideStep(event) {
  const link = event.target.closest("[data-step]");
  if (!link) return;
  event.stopPropagation();
  event.currentTarget.querySelectorAll(".card")[link.dataset.step].scrollIntoView({ block: "nearest" });
}
