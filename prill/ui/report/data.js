// Where the page has its trajectories from: blocks of itself.

const HOME = "summary"; // the view that the page opens with

// A block that a browser may still be reading: null until it is there.
function block(id) {
  const node = document.getElementById(id);
  return node ? node.textContent : null;
}

// The list of trajectories and what all of them share; the page's script stands behind it.
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

// What was asked and answered is packed in the page, and unpacked when it is wanted.
async function readCalls(index, judge) {
  const bytes = Uint8Array.from(atob(block(`c${index}-${judge}`)), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

// Whether a trajectory has all words of the search, in its goal or its id.
function hasWords(index, words) {
  texts ??= overview.rows.map((row) => `${row.goal} ${row.id}`.toLowerCase());
  return words.split(/\s+/).every((word) => texts[index].includes(word));
}

// Nobody labels here.
const labelBar = () => null;
const stepChoice = () => null;
