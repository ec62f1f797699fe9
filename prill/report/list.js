// The list of trajectories. Only the lines in sight exist, so that thousands scroll as lightly as ten.

const LINE = 74; // pixels, as in the style
let found = [];
let current = null; // a place in overview.rows

function refilter() {
  found = [];
  overview.rows.forEach((row, i) => { if (fits(row, i)) found.push(i); });
  const all = overview.rows.length;
  byId("found").textContent = found.length === all ? `${all.toLocaleString("en")} trajectories` : `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")}`;
  const active = activeFilters();
  byId("active").hidden = !active;
  byId("active").textContent = String(active);
  byId("clear").hidden = !active && !filters.search;
  if (!found.includes(current)) select(found.length ? found[0] : null, false);
  drawList();
  if (current !== null) reveal();
}

function drawList() {
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / LINE) - 4);
  const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / LINE) + 4);
  const space = el("div", { class: "space", role: "presentation" });
  space.style.height = `${found.length * LINE}px`;
  for (let place = first; place < last; place++) space.append(line(place));
  list.replaceChildren(space);
  if (current === null) list.removeAttribute("aria-activedescendant");
  else list.setAttribute("aria-activedescendant", `row-${current}`);
}

function line(place) {
  const index = found[place];
  const row = overview.rows[index];
  const said = row.outcomes.map((outcome, i) => {
    const kind = against(row.truth, outcome);
    const words = `${overview.judges[i]}: ${WORDS[outcome][1]}${KINDS[kind] ? `, ${KINDS[kind].toLowerCase()}` : ""}`;
    return el("span", { class: `dot ${outcome || "none"} ${kind[0] === "F" ? "differs" : ""}`, title: words, role: "img", "aria-label": words }, WORDS[outcome][0]);
  });
  const truth = overview.source ? el("span", { class: `dot truth ${row.truth || "none"}`, title: `Label: ${WORDS[row.truth][1]}`, role: "img", "aria-label": `Label: ${WORDS[row.truth][1]}` }, WORDS[row.truth][0]) : null;
  const node = el("div", {
    class: "line", role: "option", id: `row-${index}`, "data-id": row.id, "aria-selected": String(index === current),
    "aria-setsize": found.length, "aria-posinset": place + 1, click: () => { select(index); showPane("detail"); },
  },
  el("div", { class: "line-goal" }, row.goal),
  el("div", { class: `line-foot ${said.length > 6 ? "many" : ""}` }, el("span", { class: "line-id", title: row.id }, el("bdi", {}, row.id)), truth, truth && said.length ? el("span", { class: "bar", "aria-hidden": "true" }) : null, said));
  node.style.top = `${place * LINE}px`;
  return node;
}

function reveal() {
  const list = byId("list");
  const top = found.indexOf(current) * LINE;
  const far = top < list.scrollTop - LINE || top > list.scrollTop + list.clientHeight;
  if (far) list.scrollTop = top - (list.clientHeight - LINE) / 2;
  else if (top < list.scrollTop) list.scrollTop = top;
  else if (top + LINE > list.scrollTop + list.clientHeight) list.scrollTop = top + LINE - list.clientHeight;
}

function select(index, draw = true) {
  current = index;
  if (view === "browse") {
    drawDetail(index);
    if (index !== null) window.location.replace(`#t=${encodeURIComponent(overview.rows[index].id)}`);
  }
  if (draw) { reveal(); drawList(); }
}

// Moves among what was found; `wanted` says which of them count.
function move(by, wanted) {
  let place = found.indexOf(current) + by;
  while (place >= 0 && place < found.length && !wanted(overview.rows[found[place]])) place += by;
  if (place >= 0 && place < found.length) {
    select(found[place]);
    showPane("detail");
    return;
  }
  say(`No ${by > 0 ? "later" : "earlier"} ${wanted === disagreement ? "disagreement" : "trajectory"} in the list.`);
}
