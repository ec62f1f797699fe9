// The print view: the summary and all trajectories that match the filters, with nothing collapsed or truncated.

const MAX_PRINTED = 500; // trajectories; browsers take too long to lay out more

function drawPrint() {
  for (const one of byId("summary").querySelectorAll("details:not([open])")) Object.assign(one, { open: true }).dataset.closed = "";
  const shown = entry;
  const rest = found.length - MAX_PRINTED;
  byId("printed").replaceChildren(...found.slice(0, MAX_PRINTED).map(printed),
    rest > 0 ? el("p", { class: "notice" }, `${rest.toLocaleString("en")} more trajectories are not printed: filter the list to choose which are.`) : "");
  entry = shown;
}

function printed(index) {
  entry = readDetail(index); // steps and attempts are drawn from this one
  const row = overview.rows[index];
  const trajectory = entry?.trajectory;
  const node = el("article", {},
    el("h2", {}, trajectory ? trajectory.task.goal : row.goal),
    facts(row, index),
    row.broken ? el("p", { class: "notice" }, row.broken) : null,
    trajectory?.error ? el("p", { class: "notice" }, `The environment failed: ${trajectory.error}`) : null,
    entry || row.broken ? null : el("p", { class: "notice" }, "Not loaded: press Ctrl p on the page to print, which loads it first."),
    entry ? [attemptsOf(index), labelLine(entry, row), judgeCards(entry, row), answer(entry)] : null,
    trajectory ? [film(), timeline(entry), earlier(trajectory)] : null);
  for (const one of node.querySelectorAll("[id]")) one.removeAttribute("id");
  for (const one of node.querySelectorAll("details:not(.optional)")) one.open = true;
  for (const one of node.querySelectorAll("img")) Object.assign(one, { loading: "eager", decoding: "sync" });
  return node;
}

addEventListener("beforeprint", drawPrint);
addEventListener("afterprint", () => {
  byId("printed").replaceChildren();
  for (const one of byId("summary").querySelectorAll("[data-closed]")) { one.open = false; delete one.dataset.closed; }
});
