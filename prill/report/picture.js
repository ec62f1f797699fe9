// A picture of a state with what the agent then did drawn on it, and what an action says in words.

function actionWords(action) {
  return action.text || [action.kind, action.target, action.value && `"${action.value}"`].filter(Boolean).join(" ");
}

// What the agent says of itself is no evidence, wherever it says it.
function claims(action) {
  return ["answer", "stop", "message"].includes(action.kind);
}

// Marks in the picture's own pixels: a ring for a point, an arrow for a swipe, a tag for typed text.
function overlay(action, width, height) {
  const marks = [];
  const unit = Math.min(width, height) / 100;
  const at = (point) => [point[0] * width, point[1] * height];
  if (action && action.point) {
    const [x, y] = at(action.point);
    if (action.end_point) {
      const [u, v] = at(action.end_point);
      const angle = Math.atan2(v - y, u - x);
      const wing = (turn) => `L${u - 6 * unit * Math.cos(angle + turn)} ${v - 6 * unit * Math.sin(angle + turn)}`;
      const path = `M${x} ${y}L${u} ${v}M${u} ${v}${wing(0.5)}M${u} ${v}${wing(-0.5)}`;
      marks.push(svg("path", { d: path, class: "halo" }), svg("path", { d: path, class: "swipe" }));
      marks.push(svg("circle", { cx: x, cy: y, r: 2 * unit, class: "start" }));
    } else {
      const ring = { cx: x, cy: y, r: 4.5 * unit };
      marks.push(svg("circle", { ...ring, class: "halo" }), svg("circle", { ...ring, class: "tap" }));
    }
  }
  if (action && action.value && !claims(action)) marks.push(tag(action, width, height, unit));
  if (!marks.length) return null;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "overlay", "aria-hidden": "true", preserveAspectRatio: "none" }, marks);
}

function tag(action, width, height, unit) {
  const size = 5.5 * unit;
  const fits = Math.max(4, Math.floor((width - 4 * unit) / (size * 0.62)) - 2);
  const text = action.value.length > fits ? `${action.value.slice(0, fits - 1)}…` : action.value;
  const wide = (text.length + 1.2) * size * 0.62;
  // Below the ring, or above it where the picture ends: never over it.
  const [x, y] = action.point ? [action.point[0] * width, action.point[1] * height] : [2 * unit, height - 11 * unit];
  const tall = 1.7 * size;
  const below = y + 6 * unit;
  const top = !action.point ? y : below + tall <= height ? below : Math.max(0, y - 6 * unit - tall);
  const left = Math.max(0, Math.min(x, width - wide));
  return svg("g", { class: "tag" },
    svg("rect", { x: left, y: top, width: wide, height: tall, rx: 0.35 * size }),
    svg("text", { x: left + 0.38 * size, y: top + 1.2 * size, "font-size": size }, text));
}

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

// The picture with its marks, or what stands for it where there is none.
function frame(trajectory, pictures, index) {
  const picture = pictures[index];
  const state = stateAt(trajectory, index);
  if (!picture) {
    const words = state.caption || state.text;
    return el("div", { class: "frame words" }, el("span", { class: "hint" }, words ? "No screenshot; what was recorded:" : "No screenshot"), words ? plain(words) : null);
  }
  const src = picture.src ?? (picture.embedded === null ? null : block(`p${picture.embedded}`));
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
