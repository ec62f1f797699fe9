// The list as a table with selectable columns.

const inWords = (read) => ({ text: read, compare: (one, other) => read(one).localeCompare(read(other)) });
const inNumbers = (read) => ({ text: (row) => String(read(row)), compare: (one, other) => read(one) - read(other) });
const COLUMNS = [
  { key: "reason", title: "Reason", ...inWords((row) => (row.reasons ?? [])[Number(filters.judge)] ?? "") },
  { key: "site", title: "Site", ...inWords((row) => row.site ?? "") },
  { key: "agent", title: "Agent", ...inWords((row) => row.agent ?? "") },
  { key: "steps", title: "Steps", ...inNumbers((row) => row.steps) },
  { key: "cost", title: "Cost", text: (row) => costWords(costOf(row)), compare: (one, other) => compareCosts(costOf(one), costOf(other)), isUnknown: (row) => costOf(row) === null },
];
const WIDTHS = { reason: "minmax(0, 2fr)", steps: "56px", cost: "76px" };
let chosenColumns = [];

// What the chosen judge's verdict on a run cost, in dollars or else in tokens; null: unknown.
function costOf(row) {
  const judge = Number(filters.judge);
  const [usd, tokens] = [row.usd[judge] ?? null, row.tokens[judge] ?? null];
  return usd === null && tokens === null ? null : { usd, tokens };
}

function costWords(cost) {
  if (cost === null) return "—";
  if (cost.usd === null) return `${cost.tokens.toLocaleString("en")} tokens`;
  return `$${cost.usd >= 0.1 || cost.usd === 0 ? cost.usd.toFixed(2) : cost.usd.toPrecision(2)}`;
}

// Dollars come after tokens, which have no price.
function compareCosts(one, other) {
  if (one === null || other === null) return 0;
  return (one.usd !== null) - (other.usd !== null) || (one.usd ?? one.tokens) - (other.usd ?? other.tokens);
}

const shownColumns = () => (byId("browse").dataset.layout === "table" ? COLUMNS.filter((column) => chosenColumns.includes(column.key)) : []);
const columnsInAddress = () => (byId("browse").dataset.layout === "table" ? chosenColumns.join(",") || "-" : "");

// The names of columns, comma-separated; empty: the list next to the trajectory.
function chooseColumns(names) {
  const place = byId("browse");
  place.dataset.layout = names ? "table" : "list";
  if (names) chosenColumns = COLUMNS.map((column) => column.key).filter((key) => names.split(",").includes(key));
  place.style.setProperty("--more", shownColumns().map((column) => WIDTHS[column.key] ?? "minmax(0, 0.6fr)").join(" ") || "");
  byId("show-table").setAttribute("aria-pressed", String(Boolean(names)));
  byId("columns").hidden = !names;
  for (const box of byId("columns").querySelectorAll("input")) box.checked = chosenColumns.includes(box.value);
}

function drawColumns() {
  const change = (key, wanted) => {
    const names = COLUMNS.map((column) => column.key).filter((one) => (one === key ? wanted : chosenColumns.includes(one)));
    chooseColumns(names.join(",") || "-");
    redrawTable();
  };
  byId("columns").append(...COLUMNS.map((column) => el("label", {},
    el("input", { type: "checkbox", value: column.key, change: (event) => change(column.key, event.target.checked) }), ` ${column.title}`)));
  byId("show-table").addEventListener("click", () => {
    chooseColumns(byId("browse").dataset.layout === "table" ? "" : (chosenColumns.join(",") || "reason,site,agent,steps"));
    redrawTable();
  });
}

function redrawTable() {
  drawHeads();
  drawList();
  reveal();
  addAddress();
}
