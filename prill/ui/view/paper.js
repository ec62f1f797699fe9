// Ctrl p reads all that is printed first, as printing does not wait for a server.

async function printAll(event) {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "p" || printing) return;
  event.preventDefault();
  printing = true;
  say("Loading the trajectories to print …");
  try {
    await areThere(found.slice(0, MAX_PRINTED));
    if (!blind) await showSummary();
    drawPrint();
    await Promise.allSettled([...byId("printed").querySelectorAll("img")].map((image) => image.decode()));
    window.print();
  } catch (error) {
    say(error.message);
  } finally {
    printing = false;
  }
}

window.addEventListener("keydown", printAll);
