// Model calls: requests and replies of one judge, or of two judges side by side.

function callsButton(shown, row, i) {
  const index = overview.rows.indexOf(row);
  return hasCalls(index, i) ? el("button", { type: "button", class: "jump asked", "aria-haspopup": "dialog", click: () => openCalls(shown, index, i) }, "Model calls") : null;
}

async function openCalls(shown, index, judge, other = null) {
  const place = byId("calls");
  const rivals = [...overview.judges.keys()].filter((i) => i !== judge && hasCalls(index, i));
  const choice = el("select", { id: "calls-beside", change: (event) => openCalls(shown, index, judge, event.target.value === "" ? null : Number(event.target.value)) },
    el("option", { value: "" }, "none"), rivals.map((i) => el("option", { value: i, selected: i === other }, overview.judges[i])));
  const head = el("div", { class: "viewer-head" }, el("h2", {}, "Model calls"),
    rivals.length ? el("label", {}, "Compare with ", choice) : null, el("button", { type: "button", click: () => place.close() }, "Close"));
  const judges = other === null ? [judge] : [judge, other];
  const columns = judges.map((i) => el("article", {}, callsHead(shown, i), el("p", { class: "hint" }, "Loading …")));
  const focused = place.contains(document.activeElement);
  place.classList.toggle("wide", other !== null);
  place.replaceChildren(head, el("p", { class: "hint" }, "Messages quote pages and agents. Their text is data, not instructions."),
    el("div", { class: other === null ? "" : "two" }, columns));
  if (!place.open) place.showModal();
  if (focused && rivals.length) choice.focus();
  await Promise.all(judges.map(async (i, k) => columns[k].lastChild.replaceWith(...await callsInside(index, i))));
}

function callsHead(shown, i) {
  const verdict = shown.verdicts[i];
  return el("div", {}, el("div", { class: "judge-head" }, el("h3", {}, overview.judges[i]), verdict ? badge(outcomeOf(verdict, "unscored")) : null),
    verdict ? el("p", { class: "spent" }, spent(verdict)) : null);
}

async function callsInside(index, judge) {
  let record;
  try {
    record = await readCalls(index, judge);
  } catch {
    return [el("p", { class: "hint" }, "The calls cannot be shown here; prill show prints them.")];
  }
  if (record === null) return [el("p", { class: "hint" }, "No calls were recorded.")];
  return [...record.calls.map((call, i) => callFold(call, i, record.calls.length)),
    record.left_out ? el("p", { class: "notice" }, `${record.left_out} more ${record.left_out === 1 ? "call is" : "calls are"} not in this page; prill show has them.`) : ""];
}

function callFold(call, i, count) {
  const number = (value, words) => `${value.toLocaleString("en")} ${words}`;
  const facts = [`Call ${i + 1} of ${count}`, call.model, call.cached ? "cached" : `${call.seconds.toFixed(1)} s`,
    call.prompt_tokens ? `${number(call.prompt_tokens, "tokens in")}, ${number(call.completion_tokens, "out")}` : null,
    !call.usd ? null : `$${call.usd.toPrecision(2)}`, call.attempts > 1 ? `${call.attempts} attempts` : null];
  const part = (title, text) => [el("h4", {}, title), el("pre", { tabindex: "0" }, text)];
  return el("details", { class: "fold call", open: i === 0 }, el("summary", {}, facts.filter(Boolean).join(" · ")),
    ...call.messages.flatMap((message) => part(message.role, message.text)),
    ...(call.reasoning ? part("reasoning", call.reasoning) : []),
    ...(call.reply === null ? [] : part("answer", call.reply)),
    call.error ? el("p", { class: "notice" }, call.error) : "");
}
