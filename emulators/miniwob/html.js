// The page as HTML, for agents that read it so: body without scripts, styles and what MiniWoB++ adds around the task.
//
// Values, ticks and choices are written as they are now. `data-wob_ref` numbers an element for the whole episode; a target
// is that number (`[7]`, also with words behind it: `[7] button 'OK'`), the tag as printed, or an XPath. With boxes,
// `data-wob_box` is where it is: left, top, width, height in pixels.
window.prillHtml = (() => {
  const SKIPPED = "script, style, link, template, noscript, #reward-display, #click-canvas, #sync-task-cover";
  const VOID = ["area", "br", "col", "hr", "img", "input", "wbr"];
  const REF = "data-wob_ref", BOX = "data-wob_box";
  const numbers = new Map();
  let withBoxes = false;

  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const quoted = (text) => escape(text).replace(/"/g, "&quot;");
  const numberOf = (el) => numbers.get(el) ?? (numbers.set(el, numbers.size + 1), numbers.size);

  const boxOf = (el) => {
    const { left, top, width, height } = el.getBoundingClientRect();
    return [left, top, width, height].map(Math.round).join(" ");
  };

  function attributes(el) {
    const found = new Map([...el.attributes].map(({ name, value }) => [name, value]));
    const flag = (name, on) => (on ? found.set(name, "") : found.delete(name));
    if (el.tagName === "INPUT") found.set("value", el.type === "password" ? "•".repeat(el.value.length) : el.value);
    if (el.type === "checkbox" || el.type === "radio") flag("checked", el.checked);
    if (el.tagName === "OPTION") flag("selected", el.selected);
    if (el === document.activeElement && el !== document.body) flag("focused", true);
    found.set(REF, String(numberOf(el)));
    if (withBoxes) found.set(BOX, boxOf(el));
    return [...found].map(([name, value]) => (value ? ` ${name}="${quoted(value)}"` : ` ${name}`)).join("");
  }

  function write(node, hidden) {
    // Line ends between tags are how the file was written; other blanks part words.
    if (node.nodeType === Node.TEXT_NODE) {
      return /^\s*\n\s*$/.test(node.data) ? "" : escape(node.data.replace(/\s+/g, " "));
    }
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(SKIPPED) || (!hidden && prillPage.unseen(node))) return "";
    const tag = node.tagName.toLowerCase();
    const open = `<${tag}${attributes(node)}>`;
    if (VOID.includes(tag)) return open;
    const inner = tag === "textarea" ? escape(node.value) : [...node.childNodes].map((child) => write(child, hidden)).join("");
    return `${open}${inner}</${tag}>`;
  }

  function read(hidden, boxes) {
    withBoxes = boxes;
    return [...document.body.children].map((el) => write(el, hidden)).filter(Boolean).join("\n");
  }

  function find(target) {
    const number = /^\[(\d+)\](?: .*)?$/.exec(target) || /^(\d+)$/.exec(target) || new RegExp(`^<[^>]*${REF}="(\\d+)"`).exec(target);
    if (number) return [...numbers.keys()].find((el) => numbers.get(el) === Number(number[1]) && el.isConnected) || null;
    if (!/^\(*\.?\//.test(target)) return null;
    try {
      const found = document.evaluate(target, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue;
      return found instanceof Element ? found : null;
    } catch (error) {
      // What an agent writes need not be an XPath.
      if (error instanceof DOMException) return null;
      throw error;
    }
  }

  return { read, find };
})();
