// Shared by all pages of prill: elements, and actions drawn on a screenshot. Page text is always inserted as text,
// never as markup.

const SVG = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Whether what an agent says about itself stays folded.
let claimsFolded = false;

function actionWords(action) {
  if (claimsFolded && claims(action)) return action.kind === "stop" ? "stops" : "tells the user something";
  return action.text || [action.kind, action.target, action.value && `"${action.value}"`].filter(Boolean).join(" ");
}

// The agent's statements about itself are not evidence.
function claims(action) {
  return ["answer", "stop", "message"].includes(action.kind);
}

// Marks in image pixels: a ring for a point, an arrow for a swipe, a tag for typed text.
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
  // Below the ring, or above it at the image's edge, so that it never covers the ring.
  const [x, y] = action.point ? [action.point[0] * width, action.point[1] * height] : [2 * unit, height - 11 * unit];
  const tall = 1.7 * size;
  const below = y + 6 * unit;
  const top = !action.point ? y : below + tall <= height ? below : Math.max(0, y - 6 * unit - tall);
  const left = Math.max(0, Math.min(x, width - wide));
  return svg("g", { class: "tag" },
    svg("rect", { x: left, y: top, width: wide, height: tall, rx: 0.35 * size }),
    svg("text", { x: left + 0.38 * size, y: top + 1.2 * size, "font-size": size }, text));
}
