// What the pages of prill annotate share: asking the server, saying what is wrong, one thing at a time, the size of pictures.

const LARGEST = 2; // small screens are drawn at most twice their size

export const $ = (id) => document.getElementById(id);

let busy = false;

export const isBusy = () => busy;

export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("prill annotate does not answer: is it still running?");
  }
  if (answer.ok) return answer.json();
  const text = await answer.text();
  try {
    throw new Error(JSON.parse(text).error);
  } catch (error) {
    throw error instanceof SyntaxError ? new Error(`${answer.status}: ${text}`) : error;
  }
}

export function say(text, mild = true) {
  $("alert").hidden = !text;
  $("alert").textContent = text ?? "";
  $("alert").classList.toggle("mild", mild);
}

// A key pressed while the next one is still coming must not decide about it unseen.
export async function alone(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    say(error.message, false);
  } finally {
    busy = false;
  }
}

export function fit() {
  const { naturalWidth: width, naturalHeight: height } = $("picture");
  if (!width || !height) return;
  const scale = Math.min(($("stage").clientWidth - 16) / width, ($("stage").clientHeight - 16) / height, LARGEST);
  $("frame").style.width = `${width * scale}px`;
  $("frame").style.height = `${height * scale}px`;
}
