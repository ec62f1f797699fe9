// A screenshot of a state with the agent's next action drawn on it, or a placeholder if there is none.

function stateCount(trajectory) {
  return trajectory.steps.length + (trajectory.final ? 1 : 0);
}

function stateAt(trajectory, index) {
  const step = trajectory.steps[index];
  return step ? step.observation : trajectory.final;
}

function stateName(trajectory, index) {
  return index < trajectory.steps.length ? `Step ${index + 1}` : "Final state";
}

function alternative(trajectory, index) {
  const step = trajectory.steps[index];
  const did = step ? `, before: ${actionWords(step.action)}` : "";
  return `Screenshot of ${stateName(trajectory, index).toLowerCase()}${did}`;
}

// Returns the image with its marks, or the placeholder.
function frame(trajectory, pictures, index) {
  const picture = pictures[index];
  const state = stateAt(trajectory, index);
  if (!picture) {
    const words = state.caption || state.text;
    return el("div", { class: "frame words" }, el("span", { class: "hint" }, words ? "No screenshot; the recorded text:" : "No screenshot"), words ? plain(words) : null);
  }
  const src = picture.src ?? ((picture.embedded ?? null) === null ? null : block(`p${picture.embedded}`));
  if (!src) return absent(picture.name);
  const step = trajectory.steps[index];
  const image = el("img", {
    loading: "lazy", decoding: "async", width: picture.width, height: picture.height, alt: alternative(trajectory, index),
  });
  const box = el("div", { class: "frame" }, image, overlay(step && step.action, picture.width, picture.height));
  image.addEventListener("error", () => box.replaceWith(absent(picture.name)));
  image.src = src;
  return box;
}

function absent(name) {
  return el("div", { class: "frame absent" }, el("span", {}, "Screenshot missing"), el("code", {}, name));
}

function where(action) {
  const show = (point) => `(${point.map((c) => c.toFixed(2)).join(", ")})`;
  if (!action.point || actionWords(action).includes(show(action.point))) return null;
  return el("span", { class: "where" }, ` ${show(action.point)}${action.end_point ? ` → ${show(action.end_point)}` : ""}`);
}
