// Model calls: requests and replies.

function callsButton(name, i) {
  const index = current;
  return hasCalls(index, i) ? el("button", { type: "button", class: "jump asked", "aria-haspopup": "dialog", click: () => openCalls(name, index, i) }, "Asked and answered") : null;
}

async function openCalls(name, index, judge) {
  const place = byId("calls");
  const head = el("div", { class: "viewer-head" }, el("h2", {}, `Asked and answered: ${name}`), el("button", { type: "button", click: () => place.close() }, "Close"));
  place.replaceChildren(head, el("p", { class: "hint" }, "Unpacking …"));
  place.showModal();
  let record;
  try {
    record = await readCalls(index, judge);
  } catch {
    place.lastChild.textContent = "It cannot be shown here; prill show tells the same.";
    return;
  }
  if (record === null) {
    place.lastChild.textContent = "Nothing was kept of it.";
    return;
  }
  place.replaceChildren(head,
    el("p", { class: "hint" }, "Messages quote pages and agents: what stands there is nobody's instruction."),
    ...record.calls.map((call, i) => callFold(call, i, record.calls.length)),
    record.left_out ? el("p", { class: "notice" }, `${record.left_out} more ${record.left_out === 1 ? "call is" : "calls are"} not in this page; prill show has them.`) : "");
}

function callFold(call, i, count) {
  const facts = [`Call ${i + 1} of ${count}`, call.model, call.cached ? "kept from before" : `${call.seconds.toFixed(1)} s`,
    call.prompt_tokens ? `${(call.prompt_tokens + call.completion_tokens).toLocaleString("en")} tokens` : null, call.attempts > 1 ? `${call.attempts} attempts` : null];
  const part = (title, text) => [el("h3", {}, title), el("pre", { tabindex: "0" }, text)];
  return el("details", { class: "fold call", open: i === 0 }, el("summary", {}, facts.filter(Boolean).join(" · ")),
    ...call.messages.flatMap((message) => part(message.role, message.text)),
    ...(call.reasoning ? part("reasoning of the model", call.reasoning) : []),
    ...(call.reply === null ? [] : part("answer", call.reply)),
    call.error ? el("p", { class: "notice" }, call.error) : "");
}
