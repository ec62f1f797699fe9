// The captions tab: one caption at a time, with unsaved drafts. Text from files or models is inserted as text only.

if (byId("captions")) {
  const { drafts, saves, store } = decisions("captions");
  const part = (name) => byId(`caption-${name}`);
  const words = { accepted: "Accepted", mended: "Edited", rejected: "Rejected" };
  const tones = { accepted: "success", mended: "not_sure", rejected: "failure" };
  let all; // the state of the session
  let card;
  let version; // of the saved decision that the next one replaces
  let shown = ""; // the saved text, as the text field returns it

  const tell = (text, mild = true) => {
    part("alert").hidden = !text;
    part("alert").textContent = text ?? "";
    part("alert").classList.toggle("mild", mild);
  };
  const work = (act) => alone(act, tell);

  // A draft has a choice only if saving it failed.
  function keepDraft(choice = drafts.get(card.index)?.choice) {
    const text = part("text").value;
    if (choice || text.trim() !== shown.trim()) drafts.set(card.index, { text, choice, version });
    else drafts.delete(card.index);
    store();
  }

  async function open(index) {
    const next = await ask(`api/captions/${index}`);
    const left = card && card.index !== index && drafts.has(card.index) ? card.index + 1 : null;
    draw(next);
    if (left) tell(`Caption ${left} is not saved: its changes are on this page only. "${drafts.size} not saved" goes back to it.`);
  }

  function draw(next) {
    card = next;
    const draft = drafts.get(card.index);
    version = draft?.version ?? card.version;
    tell(null);
    part("about").textContent = `Caption ${card.index + 1} of ${all.choices.length}`;
    part("image").textContent = card.image;
    const warnings = [card.truncated && "The caption was cut by the limit of tokens.", card.problem && `There is no caption (${card.problem}): write one, or reject.`];
    part("warning").textContent = warnings.filter(Boolean).join(" ");
    part("warning").hidden = !part("warning").textContent;
    put(card.text);
    if (draft) part("text").value = draft.text;
    part("text").disabled = false; // what was typed before this would be overwritten
    part("text").scrollTop = 0;
    part("picture").hidden = true; // until it is there: nobody decides about another one
    part("empty").hidden = true;
    part("picture").src = `captions/${card.index}`;
    drawState();
  }

  function put(text) {
    part("text").value = text;
    shown = part("text").value;
  }

  function drawState() {
    keepDraft();
    const draft = drafts.get(card.index);
    const changed = part("text").value.trim() !== card.caption.replace(/\r\n?/g, "\n").trim();
    part("state").className = `pill ${draft ? "unsaved" : (tones[card.decided] ?? "")}`;
    part("state").textContent = draft ? `Not saved yet${draft.choice ? `: ${draft.choice}` : ""}` : card.decided ? `${words[card.decided]}, saved` : "";
    part("accept").firstChild.textContent = changed ? "Accept edited " : "Accept ";
    const done = all.choices.filter(Boolean).length;
    const total = all.choices.length;
    part("count").textContent = String(total);
    part("counts").textContent = `${done} done, ${total - done} left`;
    part("bar").value = done / total;
    // Isolated: right-to-left marks in names do not affect neighbouring text.
    part("people").replaceChildren(el("bdi", {}, all.annotator), ", of captions by ", el("bdi", {}, all.captioner));
    part("undo").disabled = !saves.length;
    part("unsaved").hidden = !drafts.size;
    part("unsaved").textContent = `${drafts.size} not saved`;
  }

  const decide = (choice) => work(async () => {
    const caption = part("text").value;
    let change;
    try {
      part("state").textContent = "Saving …";
      change = await ask(`api/captions/${card.index}`, { choice, caption, version });
    } catch (error) {
      keepDraft(choice);
      if (error.status === 409) take(await ask(`api/captions/${card.index}`));
      drawState();
      throw new Error(`Not saved. ${error.message} Your decision is still here: ${choice} it again.`);
    }
    saves.push(change.card.version);
    drafts.delete(card.index);
    take(change.card);
    if (part("text").value !== caption) {
      shown = caption;
      drawState();
      tell("Saved without your later changes: accept it again to save them.");
      return;
    }
    put(card.text);
    keepDraft();
    if (change.next !== null) { await open(change.next); return; }
    draw(card);
    tell(`Every caption has a decision${drafts.size ? `, but ${drafts.size} changed and not saved yet` : ""}. End prill view with Ctrl-C, and run prill caption again: its rows follow them.`);
  });

  function take(changed) {
    card = changed;
    version = card.version;
    all.choices[card.index] = card.decided;
  }

  const takeBack = () => work(async () => {
    if (!saves.length) { tell("Nothing to undo: only decisions of this page since its command started can be undone."); return; }
    let change;
    try {
      change = await ask("api/captions/undo", { version: saves.at(-1) });
    } catch (error) {
      if (error.status === 409) saves.pop();
      drawState();
      throw new Error(`Not undone: ${error.message}`);
    }
    saves.pop();
    if (!change) {
      all = await ask("api/captions");
      await open(card.index);
      tell("It was undone before.");
      return;
    }
    const waiting = drafts.get(change.card.index); // text typed since then is kept
    const text = waiting?.text ?? change.undone;
    take(change.card);
    if (text != null) drafts.set(card.index, { ...waiting, text, version });
    draw(card);
    tell("Undone.");
  });

  const goOn = (by) => work(async () => {
    const index = card.index + by;
    if (index >= 0 && index < all.choices.length) await open(index);
  });

  const toDraft = () => work(async () => {
    const places = [...drafts.keys()].sort((a, b) => a - b);
    const index = places.find((place) => place > card.index) ?? places[0];
    if (index === card.index) tell("This one is not saved: accept or reject it.");
    else await open(index);
  });

  const keys = {
    a: () => decide("accept"), r: () => decide("reject"), e: () => part("text").focus(), z: takeBack,
    ArrowLeft: () => goOn(-1), ArrowRight: () => goOn(1),
  };

  document.addEventListener("keydown", (event) => {
    if (view !== "captions" || !card || document.querySelector("dialog[open]")) return;
    const typing = event.target === part("text");
    const sends = typing && event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (!sends && (typing || event.ctrlKey || event.metaKey || event.altKey)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const act = sends ? keys.a : Object.hasOwn(keys, key) ? keys[key] : null;
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    if (busy || (event.repeat && !key.startsWith("Arrow"))) return;
    if (sends) event.target.blur();
    act();
  }, true);

  part("accept").addEventListener("click", () => card && keys.a());
  part("reject").addEventListener("click", () => card && keys.r());
  part("undo").addEventListener("click", takeBack);
  part("text").addEventListener("input", () => card && drawState());
  part("unsaved").addEventListener("click", () => card && toDraft());
  part("picture").addEventListener("load", () => { part("picture").hidden = false; });
  part("picture").addEventListener("error", () => {
    part("empty").hidden = false;
    part("empty").textContent = "This screenshot is missing, or no longer the one that was captioned";
  });
  byId("show-captions").addEventListener("click", () => show("captions"));

  (async () => {
    all = await ask("api/captions");
    await open(all.at);
  })().catch((error) => tell(error.message, false));
}
