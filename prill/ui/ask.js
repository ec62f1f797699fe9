// Requests of the pages that a command of prill serves. An error has the HTTP status as `status`.

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer, text;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(30000) });
    text = await answer.text();
  } catch {
    throw new Error("The command of this page does not answer; is it still running?");
  }
  if (answer.ok) return answer.headers.get("content-type").startsWith("application/json") ? JSON.parse(text) : text;
  let words = text.trim();
  try { words = JSON.parse(text).error ?? words; } catch { /* it is plain text */ }
  throw Object.assign(new Error(words), { status: answer.status });
}
