// The page's source of trajectories: JSON blocks in the page.

const HOME = "summary"; // the initial view

// Returns a block, or null while the browser has not parsed it yet.
function block(id) {
  const node = document.getElementById(id);
  return node ? node.textContent : null;
}

// The list of trajectories and their shared data; the page's script follows it.
const overview = JSON.parse(block("overview"));
let texts = null;

function readDetail(index) {
  const text = block(`t${index}`);
  return text === null ? null : JSON.parse(text);
}

const areThere = () => Promise.resolve();

function hasCalls(index, judge) {
  return block(`c${index}-${judge}`) !== null;
}

// Model calls are compressed in the page, and decompressed on demand.
async function readCalls(index, judge) {
  const bytes = Uint8Array.from(atob(block(`c${index}-${judge}`)), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

// Whether a trajectory has all search words in its goal or its id.
function hasWords(index, words) {
  texts ??= overview.rows.map((row) => `${row.goal} ${row.id}`.toLowerCase());
  return words.split(/\s+/).every((word) => texts[index].includes(word));
}

// The report does not collect labels.
const blind = false;
const labelPanel = () => null;
const ownMark = () => null;
const stageText = () => null;
const isUnsaved = () => false;
const showForm = () => {};
