// The view is stored in the URL, so that a link opens the same view and Back returns to the previous one.

function address() {
  if (view !== "browse") return `#${view}`;
  const words = new URLSearchParams({ t: current === null ? "" : overview.rows[current].id });
  if (at < (entry?.trajectory ? stateCount(entry.trajectory) - 1 : LAST)) words.set("step", at + 1);
  for (const [key, value] of Object.entries(filters)) {
    if (value && !(key === "judge" && value === "0")) words.set(key, value);
  }
  if (columnsInAddress()) words.set("columns", columnsInAddress());
  if (order.by) words.set("sort", `${order.falls ? "-" : ""}${order.by}`);
  return `#${words}`;
}

// Replaces the history entry: from step to step, from one trajectory to the next.
function keepAddress() {
  window.history.replaceState(null, "", address());
}

// Adds a history entry, which Back leaves again.
function addAddress() {
  if (address() !== window.location.hash) window.history.pushState(null, "", address());
}

function fromAddress() {
  const words = new URLSearchParams(window.location.hash.slice(1));
  if (!words.has("t")) {
    setView(["summary", "captions"].find((name) => words.has(name) && byId(name)) ?? HOME);
    return;
  }
  const index = overview.rows.findIndex((row) => row.id === words.get("t"));
  const sort = words.get("sort") ?? "";
  chooseColumns(words.get("columns") ?? "");
  setOrder(sort.replace(/^-/, ""), sort.startsWith("-"));
  at = words.has("step") ? Math.max(0, Number.parseInt(words.get("step"), 10) - 1 || 0) : LAST;
  if (index >= 0) current = index;
  setFilters({ judge: "0", ...Object.fromEntries(words) }, false);
  if (index >= 0 && !found.includes(index)) {
    current = index;
    setFilters({}, false);
  }
  byId("browse").dataset.pane = "detail";
  setView("browse");
}
