"use strict";

/* A chat with the engine. The history lives in this page and nowhere else. Texts are always inserted as text. */

const RANKING_SIZE = 5;
const REMEMBERED_TURNS = 40;
const LONGEST_FEEDBACK = 4000;

const log = document.getElementById("log");
const message = document.getElementById("message");
const send = document.getElementById("send");
const welcome = document.getElementById("welcome");
const reset = document.getElementById("reset");
const keyForm = document.getElementById("key-form");
const keyField = document.getElementById("key");
const keyLabel = document.getElementById("key-label");

let turns = [];
let apiKey = "";
let busy = false;
let conversation = 0;
let retryWithKey = null;
let panels = 0;
const opened = [];

/* ---- The API ---- */

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw new ApiError(0, "The server cannot be reached. Is it still running?");
  }
  const value = await answer.json().catch(() => null);
  if (answer.ok && value !== null) return value;
  throw new ApiError(answer.status, explain(answer.status, value));
}

function explain(status, value) {
  if (status === 401) return "This waits for a valid API key.";
  if (status === 429) return "The server is busy right now. Please try again in a moment.";
  if (status === 413 || status === 422) return sentence(value?.error?.message ?? "The server could not use this.");
  if (status === 404) return "This server does not offer that.";
  if (status === 504) return "That took too long. Please try again.";
  return "Something went wrong on the server. Please try again.";
}

/* ---- Small pieces of the page ---- */

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function button(text, className, onClick) {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function addTurn(who, text) {
  const turn = element("li", `turn ${who}`);
  turn.append(element("span", "unseen", who === "mine" ? "You said:" : "Reply:"), element("p", "bubble", text));
  log.append(turn);
  return turn;
}

function show(node) {
  node.scrollIntoView({ block: "nearest" });
}

/* ---- Talking ---- */

async function say(text) {
  welcome.hidden = true;
  reset.hidden = false;
  turns.push(text);
  await ask(addTurn("mine", text));
}

async function ask(turn) {
  const asked = conversation;
  const context = turns.slice(-REMEMBERED_TURNS);
  const waiting = element("li", "turn theirs thinking");
  const dots = element("p", "bubble");
  dots.append(element("i"), element("i"), element("i"));
  waiting.append(element("span", "unseen", "Looking for a reply"), dots);
  log.append(waiting);
  show(waiting);
  setBusy(true);
  try {
    const response = await post("v1/respond", { context, k: RANKING_SIZE });
    if (asked !== conversation) return;
    showEmotion(turn, response);
    turns.push(response.text);
    waiting.remove();
    show(addReply(context, response));
  } catch (error) {
    if (asked !== conversation) return;
    waiting.remove();
    const again = () => {
      problem.remove();
      ask(turn);
    };
    const problem = addProblem(error, again);
  } finally {
    waiting.remove();
    if (asked === conversation) setBusy(false);
  }
}

function setBusy(value) {
  busy = value;
  send.disabled = value;
  log.setAttribute("aria-busy", String(value));
}

function showEmotion(turn, response) {
  const name = response.emotion;
  if (!name) return;
  const label = (response.labels ?? []).find((one) => one.kind === "emotion" && one.name === name);
  const meta = element("div", "meta");
  const chip = element("span", "chip emotion", `sounds ${name}`);
  if (label) chip.title = `${percent(label.probability)} sure`;
  meta.append(chip);
  turn.append(meta);
}

function addProblem(error, again) {
  const turn = element("li", "turn theirs");
  const text = element("p", "problem");
  text.append(element("span", "", error.message));
  text.setAttribute("role", "alert");
  if (error.status === 401) askForKey(again);
  else text.append(button("Try again", "retry", again));
  turn.append(text);
  log.append(turn);
  show(turn);
  return turn;
}

function askForKey(again) {
  retryWithKey = again;
  keyLabel.textContent = apiKey ? "That API key was not accepted." : "This server asks for an API key.";
  keyForm.hidden = false;
  keyField.focus();
}

/* ---- A reply, and what opens beneath it ---- */

function addReply(context, response) {
  const turn = addTurn("theirs", response.text);
  turn.classList.add(response.source);
  const meta = element("div", "meta");
  meta.append(element("span", "chip source", describeSource(response)));
  if (typeof response.confidence === "number") {
    meta.append(element("span", "confidence", `${percent(response.confidence)} sure`));
  }
  const actions = element("div", "actions");
  const reply = { turn, context, response, place: turns.length - 1, panel: null };
  if (response.ranking?.length) actions.append(opener("Why", "why", reply, rankingPanel));
  // A fixed message is the operator's own: there is nothing to learn from here.
  if (response.source !== "fixed") {
    actions.append(opener("Report", "report", reply, reportPanel), opener("Edit", "edit", reply, editPanel));
  }
  meta.append(actions);
  turn.append(meta);
  if (response.note) turn.append(element("p", "note", sentence(response.note)));
  return turn;
}

function describeSource(response) {
  if (response.source === "generated") return "written by a generator";
  if (response.source === "fixed") return "a fixed message";
  return response.pool ? `retrieved from ${response.pool}` : "retrieved";
}

function opener(text, name, reply, build) {
  const made = button(text, `quiet ${name}`, () => {
    const wasOpen = made.getAttribute("aria-expanded") === "true";
    closePanel(reply);
    if (!wasOpen) openPanel(reply, made, build(reply));
  });
  made.setAttribute("aria-expanded", "false");
  return made;
}

function openPanel(reply, opener, panel) {
  panel.id = `panel-${++panels}`;
  opener.setAttribute("aria-expanded", "true");
  opener.setAttribute("aria-controls", panel.id);
  reply.turn.append(panel);
  reply.turn.classList.add("open");
  reply.panel = { panel, opener };
  opened.push(reply);
  (panel.querySelector("textarea, input") ?? panel).focus();
  show(panel);
}

function closePanel(reply) {
  if (!reply.panel) return;
  reply.panel.panel.remove();
  reply.panel.opener.setAttribute("aria-expanded", "false");
  reply.panel.opener.removeAttribute("aria-controls");
  reply.turn.classList.remove("open");
  reply.panel = null;
  opened.splice(opened.indexOf(reply), 1);
}

/* Leave the panel that has the focus, else the one opened last; the focus goes back to what opened it. */
function leavePanel() {
  const reply = opened.find((one) => one.panel.panel.contains(document.activeElement)) ?? opened.at(-1);
  if (!reply) return;
  const { opener } = reply.panel;
  closePanel(reply);
  opener.focus();
}

function rankingPanel(reply) {
  const panel = element("section", "panel");
  panel.tabIndex = -1;
  panel.setAttribute("aria-label", "The ranking behind this reply");
  const { ranking, text } = reply.response;
  const title = ranking.length > 1 ? `The ${ranking.length} best candidates` : "The only candidate";
  const list = element("ol", "ranking");
  for (const place of ranking) {
    const row = element("li", place.text === text ? "place chosen" : "place");
    const bar = element("span", "bar");
    const filled = element("span");
    // Scores are cosines: what is below zero has nothing to show.
    filled.style.width = `${100 * Math.min(1, Math.max(0, place.score))}%`;
    bar.append(filled);
    bar.setAttribute("aria-hidden", "true");
    const labels = (place.labels ?? []).map((label) => label.name);
    row.append(
      element("span", "rank", `${place.rank}.`),
      element("span", "text", place.text),
      bar,
      element("span", "about", [place.score.toFixed(3), place.pool, ...labels].join(" · ")),
    );
    list.append(row);
  }
  panel.append(element("h3", "", title), list);
  return panel;
}

function reportPanel(reply) {
  const form = feedbackForm(reply, {
    title: "Report this reply",
    label: "What is wrong with it? (You may leave this empty.)",
    field: element("input"),
    action: "Report",
    className: "danger",
    body: (written) => ({ kind: "report", reason: written }),
    done: () => {
      reply.turn.classList.add("reported");
      // A generated reply has no id to be blocked by.
      settle(reply, reply.response.id ? "Reported. Thank you: it will not be said again." : "Reported. Thank you.");
    },
  });
  form.querySelector("input").maxLength = 1000;
  return form;
}

function editPanel(reply) {
  const field = element("textarea");
  field.value = reply.response.text;
  field.rows = 3;
  field.required = true;
  field.maxLength = LONGEST_FEEDBACK;
  return feedbackForm(reply, {
    title: "Edit this reply",
    label: "What should it have said?",
    field,
    action: "Save",
    className: "primary",
    body: (written) => ({ kind: "edit", edited_text: written }),
    done: (written) => {
      reply.turn.querySelector(".bubble").textContent = written;
      reply.turn.querySelector(".source").textContent = "edited by you";
      turns[reply.place] = written;
      settle(reply, "Edited. Thank you: the conversation goes on from your words.");
    },
  });
}

function feedbackForm(reply, { title, label, field, action, className, body, done }) {
  const form = element("form", "panel");
  form.setAttribute("aria-label", title);
  const caption = element("label", "", label);
  field.id = `field-${panels + 1}`;
  caption.htmlFor = field.id;
  const row = element("div", "row");
  const submit = element("button", className, action);
  submit.type = "submit";
  row.append(button("Cancel", "quiet", leavePanel), submit);
  form.append(element("h3", "", title), caption, field, row);
  const problem = element("p", "problem");
  problem.setAttribute("role", "alert");

  const submitted = async () => {
    submit.disabled = true;
    problem.remove();
    const written = field.value.trim();
    const { text, id, pool } = reply.response;
    try {
      await post("v1/feedback", { ...body(written), context: reply.context, text, candidate_id: id, pool });
      done(written);
    } catch (error) {
      problem.textContent = error.message;
      form.append(problem);
      submit.disabled = false;
      if (error.status === 401) askForKey(submitted);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit.disabled) submitted();
  });
  field.addEventListener("keydown", (event) => {
    if (isSend(event)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return form;
}

function settle(reply, words) {
  closePanel(reply);
  for (const name of ["report", "edit"]) reply.turn.querySelector(`.${name}`).remove();
  const thanks = element("p", "note", words);
  thanks.setAttribute("role", "status");
  reply.turn.append(thanks);
  show(thanks);
  message.focus();
}

/* ---- Keys and fields ---- */

function isSend(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

function fit() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight + 2}px`;
}

function startOver() {
  conversation += 1;
  turns = [];
  opened.length = 0;
  log.replaceChildren();
  welcome.hidden = false;
  reset.hidden = true;
  setBusy(false);
  message.focus();
}

document.getElementById("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (!text || busy) return;
  message.value = "";
  fit();
  say(text);
});

message.addEventListener("input", fit);
message.addEventListener("keydown", (event) => {
  if (!isSend(event)) return;
  event.preventDefault();
  document.getElementById("composer").requestSubmit();
});

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey = keyField.value.trim();
  keyField.value = "";
  keyForm.hidden = true;
  message.focus();
  const again = retryWithKey;
  retryWithKey = null;
  again?.();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (keyForm.contains(document.activeElement)) {
    keyForm.hidden = true;
    message.focus();
  } else {
    leavePanel();
  }
});

document.getElementById("starters").addEventListener("click", (event) => {
  if (event.target.matches("button") && !busy) say(event.target.textContent);
});
reset.addEventListener("click", startOver);
