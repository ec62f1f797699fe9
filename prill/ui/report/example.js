// The picture of the run on the first screen; its words are in the page.

function drawExample() {
  const place = byId("example");
  const shown = place && readDetail(Number(place.dataset.run));
  if (!shown) return;
  const { trajectory, pictures } = shown;
  const index = Number(place.dataset.step);
  const step = trajectory.steps[index];
  const { width, height } = pictures[index];
  const box = place.querySelector(".example-picture");
  box.style.width = `min(100%, calc(var(--stage) * ${width / height}), ${2 * width}px)`;
  box.replaceChildren(frame(trajectory, pictures, index));
  place.querySelector(".action").textContent = `${placeName(trajectory, index)}: ${step ? actionWords(step.action) : "what the agent left behind"}`;
}
