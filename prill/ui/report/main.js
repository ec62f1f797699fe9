// Views, keyboard shortcuts, and the start of the page.

let view = "summary";
let saying = 0;

function setView(name) {
  view = name;
  for (const place of document.querySelectorAll("main")) {
    place.hidden = place.id !== name;
    byId(`show-${place.id}`).setAttribute("aria-pressed", String(place.id === name));
  }
  if (name === "browse") {
    drawDetail(current);
    reveal();
    drawList();
  }
  read(name === "browse" ? "detail" : name);
}

function show(name) {
  if (byId(`show-${name}`).hidden) return;
  if (view !== name) setView(name);
  addAddress();
}

// Scrolling keys scroll the focused element.
function read(place) {
  byId(place).focus({ preventScroll: true });
}

// On a narrow screen, the list and the trajectory are shown alternately.
function showPane(pane) {
  byId("browse").dataset.pane = pane;
  if (pane === "list") { drawList(); byId("list").focus(); }
}

function measure() {
  byId("total").textContent = overview.rows.length.toLocaleString("en");
  byId("browse").style.setProperty("--cells", overview.judges.length + (overview.source ? 1 : 0));
}

// A short message on the screen and for screen readers.
function say(text) {
  const place = byId("said") ?? document.body.appendChild(el("div", { id: "said", role: "status" }));
  place.textContent = text;
  place.classList.add("on");
  clearTimeout(saying);
  saying = setTimeout(() => place.classList.remove("on"), 1600);
}

const TURNS = { ArrowRight: 1, ArrowLeft: -1, Home: -LAST, End: LAST };
const KEYS = {
  j: () => step(1), k: () => step(-1), n: () => step(1, disagreement), p: () => step(-1, disagreement),
  s: () => show("summary"), t: () => show("browse"), w: () => byId("show-table").click(),
  "/": () => { if (view !== "browse") show("browse"); showPane("list"); byId("search").focus(); byId("search").select(); },
  "?": () => byId("help").showModal(),
};

// Coming from the summary, the previously chosen trajectory counts as the next one if it matches.
function step(by, wanted = () => true) {
  const arrives = view !== "browse";
  if (arrives) show("browse");
  if (arrives && current !== null && wanted(overview.rows[current])) showPane("detail");
  else move(by, wanted);
  read("detail");
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const viewer = byId("viewer");
  if (viewer.open) {
    if (event.key in TURNS) turn(TURNS[event.key]);
    return;
  }
  if (byId("calls").open || byId("beside").open) return;
  if (byId("help").open) {
    if (event.key === "?") byId("help").close();
    return;
  }
  const typing = event.target.closest("input[type=search], input[type=text], select, textarea");
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && typing.id === "search")) { typing.blur(); event.preventDefault(); }
    return;
  }
  if (view === "browse" && event.key in TURNS) {
    event.preventDefault();
    turn(TURNS[event.key]);
    return;
  }
  if (event.target.id === "list" && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1, () => true);
    return;
  }
  if (event.key === "Enter" && !event.target.closest("button, a, summary, label, input, textarea")) {
    event.preventDefault(); // otherwise it would press the first button of the opened view
    if (event.target.matches(".card")) go(Number(event.target.id.slice("card-".length)));
    if (view === "browse") byId("stage")?.querySelector(".enlarge")?.click();
    return;
  }
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
}

function onJump(event) {
  const pair = event.target.closest("button[data-beside]");
  if (pair) openBeside(...pair.dataset.beside.split(" ").map(Number));
  const button = event.target.closest("button[data-judge]");
  if (!button) return;
  setView("browse");
  setFilters({ ...button.dataset });
  addAddress();
}

byId("show-summary").addEventListener("click", () => show("summary"));
byId("show-browse").addEventListener("click", () => { show("browse"); showPane("list"); });
byId("show-help").addEventListener("click", () => byId("help").showModal());
byId("summary").addEventListener("click", onJump);
byId("list").addEventListener("scroll", () => requestAnimationFrame(drawList));
for (const id of ["viewer", "calls", "beside"]) byId(id).addEventListener("click", (event) => { if (event.target === byId(id)) byId(id).close(); });
byId("viewer").addEventListener("close", () => goToCard(at));
window.addEventListener("resize", drawList);
window.addEventListener("hashchange", fromAddress);
// Trajectories follow this script in the page: one that is not parsed yet is drawn once all are.
document.addEventListener("DOMContentLoaded", () => { if (view === "browse") drawDetail(current); drawExample(); });
document.addEventListener("keydown", onKey);
measure();
drawFilters();
drawColumns();
refilter();
fromAddress();
