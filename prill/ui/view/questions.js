// Questions of the judge `ask` that a person answers: a control for each field of an answer. The server reads the answers as it
// reads a judge's.

let questions = []; // {text, fields: [{name, control, choices, required, nullable}]}

const isBlank = (part) => part === undefined || part === null || (typeof part === "string" && !part.trim());
const partText = (part) => (isBlank(part) ? "" : typeof part === "string" ? part.trim() : JSON.stringify(part));
const partOf = (value, { name }) => (!name ? value : value && Object.hasOwn(value, name) ? value[name] : undefined);
const isObject = ({ fields }) => fields.some(({ name }) => name) || !fields.length;

// Whether a question has an answer: null is one, too, and says that the answer cannot be told.
const isAnswered = (question, value) => value === null
  || (value !== undefined && question.fields.every((field) => !field.required || !isBlank(partOf(value, field))));

const openQuestions = (answers) => questions.filter((question, i) => !isAnswered(question, answers[i]));

// A label's answers by the number of the question: a text could be "__proto__".
const answersOf = (mine) => Object.fromEntries(questions.flatMap(({ text }, i) => (mine && Object.hasOwn(mine.answers, text) ? [[i, mine.answers[text]]] : [])));

// The same for an answer as typed and as stored.
const answersText = (answers) => questions.map((question, i) => {
  const value = answers[i];
  return value === undefined ? 0 : value === null ? null : question.fields.map((field) => partText(partOf(value, field)));
});

// The complete answers, as the server reads them.
function sentAnswers(answers) {
  return Object.fromEntries(questions.flatMap((question, i) => {
    const value = answers[i];
    if (!isAnswered(question, value)) return [];
    if (value === null || !isObject(question)) return [[question.text, value]];
    const parts = question.fields.map((field) => [field.name, sentPart(field, partOf(value, field))]);
    return [[question.text, Object.fromEntries(parts.filter(([, part]) => part !== undefined))]];
  }));
}

function sentPart({ control, nullable }, part) {
  if (isBlank(part)) return nullable ? null : undefined;
  if (control !== "json" || typeof part !== "string") return part;
  try {
    return JSON.parse(part);
  } catch {
    return part; // the server says what it expects
  }
}

// ---- the controls

const fieldId = (i, j) => `answer-${i}-${j}`;

function questionPanel() {
  return questions.map((question, i) => el("section", { class: "question", role: "group", "aria-labelledby": `question-${i}` },
    el("h3", { id: `question-${i}`, dir: "auto" }, question.text),
    question.fields.map((field, j) => answerField(i, field, j)),
    el("button", { type: "button", class: "unsure unknown", id: `unknown-${i}`, click: () => setAnswer(i, answerOf(i) === null ? undefined : null) }, el("span", {}, "Cannot tell"), el("kbd", {}, "0"))));
}

function answerField(i, field, j) {
  const id = fieldId(i, j);
  const named = field.name ? { "aria-label": field.name } : { "aria-labelledby": `question-${i}` };
  const title = field.name ? el("span", { class: "field-name", dir: "auto" }, field.name, field.required ? null : el("small", {}, " optional")) : null;
  if (field.control === "choice") {
    return el("div", { class: "answer-field" }, title, el("div", { id, class: "buttons", role: "group", ...named },
      field.choices.map(([value, text], k) => el("button", { type: "button", id: `${id}-${k}`, click: () => setPart(i, field, partOf(answerOf(i), field) === value ? undefined : value) }, el("span", { dir: "auto" }, text), k < 9 ? el("kbd", {}, String(k + 1)) : null))));
  }
  const typed = { id, ...(field.name ? {} : named), maxlength: "20000", autocomplete: "off", input: () => setPart(i, field, place.value.trim() ? place.value : undefined, false), change: () => saveAtOnce() };
  const place = field.control === "json" ? el("textarea", { ...typed, rows: "2", placeholder: "JSON" })
    : el("input", { ...typed, type: "text", dir: "auto", inputmode: field.control === "number" ? "decimal" : null, placeholder: field.control === "number" ? "Number" : null });
  return el(field.name ? "label" : "div", { class: "answer-field" }, title, place);
}

const answerOf = (i) => draftOf(currentId()).form.answers[i];

function setAnswer(i, value, draws = true) {
  change((form) => {
    if (value === undefined) delete form.answers[i];
    else form.answers[i] = value;
  }, draws);
}

function setPart(i, field, part, draws = true) {
  if (!isReady()) return;
  if (!field.name) { setAnswer(i, part, draws); return; }
  const parts = { ...answerOf(i), [field.name]: part };
  setAnswer(i, Object.values(parts).every(isBlank) ? undefined : parts, draws);
}

function showAnswers(form) {
  questions.forEach((question, i) => {
    const value = form.answers[i];
    byId(`unknown-${i}`).setAttribute("aria-pressed", String(value === null));
    question.fields.forEach((field, j) => {
      const place = byId(fieldId(i, j));
      const part = partOf(value, field);
      if (field.control === "choice") [...place.children].forEach((button, k) => button.setAttribute("aria-pressed", String(field.choices[k][0] === part)));
      else if (partText(place.value) !== partText(part)) place.value = partText(part);
    });
  });
}

// ---- keys: q goes from field to field; in a field with choices, 1 to 9 choose, and 0 is "cannot tell"

const answerFields = () => questions.flatMap((question, i) => question.fields.map((field, j) => ({ question, i, field, place: byId(fieldId(i, j)) })));
const focusedField = () => answerFields().find(({ place }) => place?.contains(document.activeElement));
const focusedQuestion = () => questions.findIndex((_, i) => byId(`unknown-${i}`)?.closest(".question").contains(document.activeElement));

function focusField({ field, place }) {
  (field.control === "choice" ? place.querySelector("[aria-pressed=true]") ?? place.firstChild : place).focus();
}

// To the first field of an open question, or from a field to the next one.
function nextField() {
  const all = answerFields();
  const now = focusedField();
  const at = now ? all.findIndex(({ place }) => place === now.place) : -1;
  const open = all.find(({ question, i, field }) => !isAnswered(question, answerOf(i)) && isBlank(partOf(answerOf(i), field)));
  const next = now ? all[(at + 1) % all.length] : open ?? all[0];
  if (next) focusField(next);
}

// What a digit does in the question that has the focus; null: it does nothing there.
function digitAct(key) {
  const i = focusedQuestion();
  if (i < 0 || !/^\d$/.test(key)) return null;
  if (key === "0") return () => { byId(`unknown-${i}`).click(); byId(`unknown-${i}`).focus(); };
  const now = focusedField() ?? answerFields().find((one) => one.i === i);
  const button = now?.field.control === "choice" ? now.place.children[Number(key) - 1] : null;
  return () => { button?.click(); button?.focus(); };
}
