// Page text: one line for each visible thing, and the way back from a line to its element.
//
//   button "Send" #2 disabled        role, name in quotes, place among equals, state
//
// Everything up to the place is the target by which an action names the element; the whole line does as well.
window.prillPage = (() => {
  const SKIPPED = "script, style, template, #query, #reward-display, #click-canvas, #sync-task-cover, .ui-helper-hidden-accessible";
  const ROLES = ["button", "link", "checkbox", "radio", "tab", "tabpanel", "dialog", "menuitem", "option", "slider", "switch"];
  const TAGS = { A: "link", BUTTON: "button", TEXTAREA: "textbox", TR: "row", OPTION: "option", IMG: "image" };
  const INPUTS = { checkbox: "checkbox", radio: "radio", button: "button", submit: "button", reset: "button", range: "slider" };
  const CONTAINERS = ["dialog", "row", "tabpanel", "combobox", "listbox", "item"];
  const WIDTH = 160, HEIGHT = 210;
  // Places in an element, as fractions of its size, from the middle outwards.
  const STEPS = [0.5, 0.3, 0.7, 0.1, 0.9];
  const PARTS = STEPS.flatMap((x) => STEPS.map((y) => [x, y])).sort((a, b) => off(a) - off(b));
  function off([x, y]) { return Math.max(Math.abs(x - 0.5), Math.abs(y - 0.5)); }
  let elements = new Map(), showHidden = false;

  const squeeze = (text) => (text || "").replace(/\s+/g, " ").trim();
  const style = (el) => getComputedStyle(el);
  const unseen = (el) => {
    const s = style(el);
    return el.type === "hidden" || s.display === "none" || s.visibility === "hidden" || s.opacity === "0";
  };
  const passedOver = (el) => el.matches(SKIPPED) || (!showHidden && unseen(el));
  const inHidden = (el) => showHidden && !el.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const drawsImage = (el) => style(el).content.startsWith("url(");
  const pointed = (el) => style(el).cursor === "pointer";
  const clickable = (el) => pointed(el) && (el.tagName === "LI" || !pointed(el.parentElement)) && !el.querySelector("li");

  function role(el) {
    if (el === document.body) return null;
    const given = el.getAttribute("role");
    // jQuery's accordion calls every other child a tab, also the paragraph around a button.
    if (ROLES.includes(given) && (CONTAINERS.includes(given) || !el.querySelector("button, input"))) return given;
    if (el.tagName === "INPUT") return INPUTS[el.type] || "textbox";
    if (el.tagName === "SELECT") return el.multiple ? "listbox" : "combobox";
    if (TAGS[el.tagName]) return TAGS[el.tagName];
    if (el instanceof SVGGeometryElement && (el.hasAttribute("fill") || el.hasAttribute("stroke"))) return "shape";
    if (el.classList.contains("ui-slider-handle")) return "slider";
    if (drawsImage(el)) return "icon";
    if (clickable(el)) return style(el).textDecorationLine === "underline" ? "link" : "item";
    return null;
  }

  // An icon has no words, but the page's author named it: by its id or class, or by that of the part it stands in.
  const depicted = (el) => el.id || [...el.classList].find((word) => word !== "icon") || el.parentElement.classList[0] || "";

  function name(el, kind) {
    const said = el.getAttribute("aria-label") || el.getAttribute("alt");
    if (said) return squeeze(said);
    if (kind === "dialog") return squeeze(document.getElementById(el.getAttribute("aria-labelledby"))?.textContent);
    if (["row", "tabpanel"].includes(kind)) return "";
    if (kind === "icon") return depicted(el);
    if (kind === "shape") return squeeze(`${el.tagName} ${el.getAttribute("fill") || ""}`);
    if (el.labels?.length) return squeeze(el.labels[0].textContent);
    if (el.tagName === "INPUT" && kind === "button") return squeeze(el.value);
    if (["INPUT", "TEXTAREA", "SELECT"].includes(el.tagName)) return squeeze(el.placeholder || el.title);
    return squeeze(el.innerText ?? el.textContent);
  }

  function outOfView(el) {
    const rect = el.getClientRects()[0];
    if (!rect) return el.tagName !== "OPTION";
    const x = rect.left + rect.width / 2, y = rect.top + rect.height / 2;
    if (x < 0 || y < 0 || x > WIDTH || y > HEIGHT) return true;
    for (let up = el.parentElement; up && up !== document.body; up = up.parentElement) {
      if (style(up).overflowY === "visible") continue;
      const box = up.getBoundingClientRect();
      if (x < box.left || y < box.top || x > box.right || y > box.bottom) return true;
    }
    return false;
  }

  function states(el, kind) {
    const found = [];
    if (kind === "textbox") found.push("value " + JSON.stringify(el.type === "password" ? "•".repeat(el.value.length) : el.value));
    if (kind === "combobox") found.push("value " + JSON.stringify(squeeze(el.selectedOptions[0]?.text)));
    if (el.type === "checkbox" || el.type === "radio") found.push(el.checked ? "checked" : "unchecked");
    if (kind === "option" ? el.selected : el.getAttribute("aria-selected") === "true") found.push("selected");
    if (el.hasAttribute("aria-expanded")) found.push(el.getAttribute("aria-expanded") === "true" ? "expanded" : "collapsed");
    if (kind === "icon" && el.classList.contains("clicked")) found.push("on");
    if (el.disabled) found.push("disabled");
    if (el === document.activeElement) found.push("focused");
    if (inHidden(el)) found.push("hidden");
    else if (kind !== "option" && outOfView(el)) found.push("offscreen");
    return found;
  }

  function read() {
    elements = new Map();
    const counts = new Map(), lines = [];
    let words = "", speaker = null;

    function add(kind, label, el, depth, extra) {
      const base = label ? kind + " " + JSON.stringify(label) : kind;
      const place = (counts.get(base) || 0) + 1;
      counts.set(base, place);
      const target = place > 1 ? base + " #" + place : base;
      elements.set(target, el);
      const line = [target, ...extra].join(" ");
      if (!elements.has(line)) elements.set(line, el);
      lines.push("  ".repeat(depth) + line);
    }
    function flush(depth) {
      const text = squeeze(words);
      if (text) add("text", text, speaker, depth, inHidden(speaker) ? ["hidden"] : outOfView(speaker) ? ["offscreen"] : []);
      words = "";
    }
    function walk(el, depth, silent) {
      for (const node of el.childNodes) {
        if (node.nodeType === Node.TEXT_NODE) {
          if (silent || !squeeze(node.data)) { words += words && " "; continue; }
          if (!squeeze(words)) speaker = el;
          words += node.data;
        } else if (node.nodeType === Node.ELEMENT_NODE && !passedOver(node)) {
          visit(node, depth, silent);
        }
      }
    }
    function visit(el, depth, silent) {
      const kind = role(el);
      if (!kind) {
        const block = style(el).display !== "inline";
        if (block) flush(depth);
        walk(el, depth, silent || (el.tagName === "LABEL" && Boolean(el.control)));
        if (block) flush(depth);
        return;
      }
      const box = el.getBoundingClientRect();
      if (box.width < 2 && kind !== "option" && !showHidden) return;
      flush(depth);
      add(kind, name(el, kind), el, depth, states(el, kind));
      if (!CONTAINERS.includes(kind)) return;
      walk(el, depth + 1, silent || kind === "item");
      flush(depth + 1);
    }
    walk(document.body, 0, false);
    flush(0);
    return lines.join("\n");
  }

  // Reading first makes sure that the targets are those of the page as it is now.
  function find(target) {
    const wanted = squeeze(target);
    read();
    return elements.get(wanted) || prillHtml.find(wanted);
  }

  function centre(el) {
    el.scrollIntoView({ block: "nearest", inline: "nearest" });
    return spot(el);
  }
  // Where it would be clicked now; null where that is not to be seen.
  const seen = (el) => outOfView(el) ? null : spot(el);
  function spot(el) {
    const rect = el.getClientRects()[0];
    if (!rect) return null;
    const at = (x, y) => [rect.left + rect.width * x, rect.top + rect.height * y];
    // Where something lies over the middle, a person would click beside it.
    return [at(0.5, 0.5), ...PARTS.map(([x, y]) => at(x, y))].find((point) => meets(el, point)) || at(0.5, 0.5);
  }
  function meets(el, [x, y]) {
    const found = document.elementFromPoint(x, y);
    return found !== null && (el.contains(found) || found.contains(el) || [...(el.labels || [])].includes(found));
  }

  const editable = (el) => el.isContentEditable || el.tagName === "TEXTAREA" || (el.tagName === "INPUT" && !INPUTS[el.type]);

  function changed(el) {
    for (const event of ["input", "change"]) el.dispatchEvent(new Event(event, { bubbles: true }));
  }

  function set(el, value) {
    el.value = value;
    changed(el);
  }

  function select(el, value) {
    const option = [...(el.options || [])].find((o) => squeeze(o.text) === squeeze(value) || o.value === value);
    if (!option) return;
    option.selected = true;
    changed(el);
  }

  function scroll(el, down) {
    while (el && !(el.scrollHeight > el.clientHeight && ["auto", "scroll"].includes(style(el).overflowY))) el = el.parentElement;
    (el || document.scrollingElement).scrollBy(0, down ? HEIGHT / 2 : -HEIGHT / 2);
  }

  return { read, find, centre, seen, editable, set, select, scroll, unseen, squeeze, show: (also) => { showHidden = also; } };
})();
