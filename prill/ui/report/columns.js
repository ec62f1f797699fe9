// The list as a table with selectable columns.

const inWords = (read) => ({ text: read, compare: (one, other) => read(one).localeCompare(read(other)) });
const inNumbers = (read) => ({ text: (row) => String(read(row)), compare: (one, other) => read(one) - read(other) });
const COLUMNS = [
  { key: "reason", title: "Reason", ...inWords((row) => (row.reasons ?? [])[Number(filters.judge)] ?? "") },
  { key: "site", title: "Site", ...inWords((row) => row.site ?? "") },
  { key: "agent", title: "Agent", ...inWords((row) => row.agent ?? "") },
  { key: "steps", title: "Steps", ...inNumbers((row) => row.steps) },
];
let chosenColumns = [];

const shownColumns = () => (byId("browse").dataset.layout === "table" ? COLUMNS.filter((column) => chosenColumns.includes(column.key)) : []);
const columnsInAddress = () => (byId("browse").dataset.layout === "table" ? chosenColumns.join(",") || "-" : "");

// The names of columns, comma-separated; empty: the list next to the trajectory.
function chooseColumns(names) {
  const place = byId("browse");
  place.dataset.layout = names ? "table" : "list";
  if (names) chosenColumns = COLUMNS.map((column) => column.key).filter((key) => names.split(",").includes(key));
  place.style.setProperty("--more", shownColumns().map((column) => ({ reason: "minmax(0, 2fr)", steps: "56px" })[column.key] ?? "minmax(0, 0.6fr)").join(" ") || "");
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
