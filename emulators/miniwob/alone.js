// Keeps episodes apart: those before, in the same browser profile, and those beside, in the same browser.
(() => {
  if (location.protocol !== "about:") {
    localStorage.clear();
    sessionStorage.clear();
    window.name = "";
  }

  // The browser's clipboard is one for all its pages, so episodes played side by side would paste each other's words.
  let kept = "";

  function selected() {
    const field = document.activeElement;
    if (typeof field?.selectionStart === "number") return field.value.slice(field.selectionStart, field.selectionEnd);
    return String(getSelection());
  }
  for (const kind of ["copy", "cut"]) addEventListener(kind, () => { kept = selected() || kept; }, true);
  addEventListener("paste", (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    if (kept) document.execCommand("insertText", false, kept);
  }, true);
})();
