"use strict";
// Everything a person sees comes in as text and goes out as text: no HTML is ever made of it.
const payload = JSON.parse(document.getElementById("payload").textContent);
const $ = (id) => document.getElementById(id);
const key = "icda-ask-" + payload.id;
const fresh = () => ({ names: payload.names, answers: payload.answers, place: 0, view: "look" });
let questions = payload.questions;
let state = restored() || fresh();

function restored() {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    if (!kept || !Array.isArray(kept.names)) return null;
    if (Array.isArray(kept.questions)) questions = kept.questions;
    return { ...fresh(), ...kept, answers: { ...payload.answers, ...kept.answers } };
  } catch { return null; }
}

function keep() {
  try {
    const more = questions === payload.questions ? {} : { questions };
    localStorage.setItem(key, JSON.stringify({ ...state, ...more }));
  } catch { /* no store, as in a private window: the page still works while it is open */ }
  if (payload.token) send();
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function shown(item) {
  if (item.picture) return element("img", { src: item.picture, alt: item.sample });
  if (item.text !== undefined) return element("div", { className: "words", textContent: item.text });
  if (item.cells) {
    const rows = item.cells.map(([name, value]) =>
      element("tr", {}, element("th", { textContent: name }), element("td", { textContent: value })));
    return element("table", {}, element("tbody", {}, ...rows));
  }
  return element("div", { className: "words", textContent: item.sample });
}

function strip(title, items) {
  const tiles = element("div", { className: "tiles" }, ...items.map(shown));
  return element("div", { className: "strip" }, element("h4", { textContent: title }), tiles);
}

function look() {
  $("suspicion").textContent = payload.suspicion;
  $("strips").replaceChildren(...payload.strips.map((part) => {
    const words = element("p", { className: "note", textContent: part.words });
    const both = element("div", { className: "pair" },
      strip(`${part.label}: usual`, part.usual), strip(`${part.label}: taken for ${part.taken_for}`, part.suspected));
    return element("div", {}, both, words);
  }));
  $("names").value = state.same ? "" : state.names.join(", ");
  $("names").focus();
}

function start(event) {
  event.preventDefault();
  const names = [...new Set($("names").value.split(",").map((name) => name.trim()).filter(Boolean))];
  if (names.length < 2 || names.length > 9) {
    $("naming-note").textContent = "Two to nine names, such as: photo, sketch.";
    return;
  }
  // Renamed values keep their answers, by their place in the list.
  for (const answer of Object.values(state.answers)) {
    const old = state.names.indexOf(answer.group);
    if (old >= 0 && names[old]) answer.group = names[old];
  }
  state = { ...state, names, same: false };
  go("answer");
}

function current() { return questions[state.place]; }

function answer() {
  if (state.place >= questions.length) return go("done");
  const asked = current(), known = state.answers[asked.sample] || {};
  $("bar").max = questions.length;
  $("bar").value = state.place;
  $("place").textContent = `${state.place + 1} of ${questions.length}`;
  const facts = element("p", { className: "note", textContent: `Label: ${asked.label}. Asked because: ${asked.reason}.` });
  $("answer-title").textContent = state.same ? "2. Answer: is the label right?" : "2. Answer: which is it?";
  $("card").replaceChildren(shown(asked), facts);
  $("values").replaceChildren(...state.names.map((name, number) => element("button", {
    type: "button", className: "button" + (known.group === name ? " chosen" : ""), onclick: () => give(name),
  }, element("kbd", { textContent: String(number + 1) }), ` ${state.same ? "Next" : name}`)));
  $("label").value = known.label || "";
}

function give(group) {
  const label = $("label").value.trim();
  if (label && !payload.classes.includes(label)) {
    $("label").setCustomValidity(`There is no class ${label}.`);
    $("label").reportValidity();
    return;
  }
  state.answers[current().sample] = { group, label: label === current().label ? "" : label };
  state.place += 1;
  document.activeElement.blur();
  go("answer");
}

function undo() {
  if (state.place > 0) { state.place -= 1; go("answer"); }
}

function done() {
  const given = Object.values(state.answers).filter((one) => one.group).length;
  const wrong = Object.values(state.answers).filter((one) => one.label).length;
  const corrected = wrong ? `, ${wrong} labels corrected` : "";
  $("told").textContent = `${given} answers${corrected}. ${payload.token ? "They are saved." : ""}`;
  $("save").hidden = Boolean(payload.token);
  $("more").hidden = !payload.token;
  $("command").textContent = payload.command;
}

function same() {
  // Labels that may be wrong are still looked at, one after the other.
  for (const asked of questions) if (!asked.check) state.answers[asked.sample] = { group: "same", label: "" };
  const first = questions.findIndex((asked) => asked.check);
  state = { ...state, same: true, names: ["same"], place: first < 0 ? questions.length : first };
  go("answer");
}

function go(view) {
  state.view = view;
  for (const name of ["look", "answer", "done"]) $(name).hidden = name !== view;
  ({ look, answer, done })[view]();
  if (state.view === view) keep();
}

function cell(text) {
  const safe = /^\s*[=+\-@]/.test(text) ? `'${text}` : text; // no formula for a spreadsheet; icda knows the apostrophe
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function table() {
  const rows = Object.entries(state.answers).map(([sample, one]) => [sample, one.group || "", one.label || ""]);
  return [["sample", "group", "label"], ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function save() {
  const href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
  element("a", { href, download: "answers.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

async function ask(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "X-Token": payload.token }, body });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

let sending = Promise.resolve();
function send() {
  sending = sending.then(() => ask("answers", table())).catch((error) => {
    $("told").textContent = `Not saved: ${error.message}. Is icda ask still running?`;
    $("save").hidden = false;
  });
}

async function more() {
  $("told").textContent = "Choosing the next samples from your answers ...";
  try {
    await sending;
    const found = await ask("next", JSON.stringify(questions.map((asked) => asked.sample)));
    if (found.enough || !found.questions.length) {
      $("told").textContent = found.told;
      return;
    }
    questions = [...questions, ...found.questions];
    go("answer");
  } catch (error) { $("told").textContent = `That failed: ${error.message}`; }
}

$("naming").onsubmit = start;
$("same").onclick = same;
$("skip").onclick = () => give("");
$("undo").onclick = undo;
$("rename").onclick = () => go("look");
$("save").onclick = save;
$("more").onclick = more;
$("back").onclick = () => { state.place = Math.max(questions.length - 1, 0); go("answer"); };
$("forget").onclick = () => { questions = payload.questions; state = { ...fresh(), answers: {} }; go("look"); };
$("label").oninput = () => $("label").setCustomValidity("");
$("classes").append(...payload.classes.map((name) => element("option", { value: name })));
document.addEventListener("keydown", (event) => {
  if (state.view !== "answer" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("label")) { if (event.key === "Enter") $("label").blur(); return; }
  const number = Number(event.key);
  if (number >= 1 && number <= state.names.length) give(state.names[number - 1]);
  else if (event.key === " ") give("");
  else if (event.key === "Backspace") undo();
  else return;
  event.preventDefault();
});
go(state.names.length < 2 && !state.same ? "look" : state.view);
