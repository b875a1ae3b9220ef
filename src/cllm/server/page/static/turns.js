// Actions on turns: edit a message in a branch, regenerate a reply, branch, try again.

import { announce, open } from "./navigation.js";
import { requestJson } from "./api.js";
import { chooseModel, sendMessages } from "./composer.js";
import { conversationPath, findOpenStream, openConversation, openEnd, runTurn, scrollToEnd, showTurnError } from "./stream.js";
import { addShortcut } from "./keyboard.js";
import { showError, showToast } from "./toast.js";
import { texts } from "./texts.js";

const findTurns = () => [...document.querySelectorAll("#turns > .turn:not(.unsent)")];
const findMessages = (role) => [...document.querySelectorAll(`#turns .message[data-role="${role}"][data-sequence]`)];

/** Run an action, unless a turn runs; show its error. */
async function act(action, ...values) {
  if (!openConversation()) return;
  if (findOpenStream()) return showToast(texts.turn_is_running);
  try {
    await action(...values);
  } catch (failure) {
    showError(failure);
  }
}

/** Reply again to the last message; the reply before becomes a variant. */
async function regenerate() {
  await openEnd();
  const last = findTurns().at(-1);
  if (!last) return;
  const conversation = openConversation();
  const { body, headers } = chooseModel();
  const article = makeVariant(last);
  last.hidden = true;
  const { failure, isSaved } = await runTurn(conversation, {
    body: { ...body, messages: [] },
    headers,
    article,
    author: body.model,
  });
  last.hidden = false;
  if (!failure || isSaved) return;
  article.remove();
  showTurnError(last, failure);
}

/** Return a copy of the turn's question, at its place, for the new reply. */
function makeVariant(last) {
  const article = document.createElement("article");
  article.className = last.className;
  for (const message of last.querySelectorAll(':scope .message[data-role="user"]')) article.append(message.cloneNode(true));
  last.after(article);
  return article;
}

async function makeBranch(sequence) {
  const path = `${conversationPath(openConversation())}/branch`;
  const { id } = await requestJson(path, { method: "POST", body: { branch_at_sequence: sequence } });
  announce("cllm:changed", { id });
  await open(`/c/${encodeURIComponent(id)}`);
}

async function branch(message) {
  const sequence = Number((message ?? findLastMessage())?.dataset.sequence);
  if (!sequence) return;
  await makeBranch(sequence);
  showToast(texts.branched);
  scrollToEnd();
}

const findLastMessage = () => [...document.querySelectorAll("#turns .message[data-sequence]")].at(-1);

/** Show a field in place of a message of the user. */
async function edit(message) {
  const target = message ?? findMessages("user").at(-1);
  if (!target || target.querySelector(".editor")) return;
  const path = `${conversationPath(openConversation())}/messages/${target.dataset.sequence}`;
  const { content, sequence_number: sequence } = await requestJson(path);
  showEditor(target, content, sequence);
}

const isText = (part) => part.type === "text" || part.type === "input_text";

function showEditor(target, content, sequence) {
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
  const editor = document.createElement("form");
  editor.className = "editor";
  const field = document.createElement("textarea");
  field.value = parts.filter(isText).map(({ text }) => text).join("\n\n");
  field.ariaLabel = texts.edit_label;
  const buttons = document.createElement("div");
  buttons.className = "buttons";
  buttons.append(makeButton(texts.cancel, "button"), makeButton(texts.send_edited, "submit", "primary"));
  editor.append(field, buttons);
  const hidden = [...target.children];
  const close = () => {
    editor.remove();
    for (const child of hidden) child.hidden = false;
  };
  editor.addEventListener("click", (event) => {
    if (event.target.type === "button") close();
  });
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editor.requestSubmit();
  });
  editor.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    if (field.value.trim()) act(sendEdited, field.value.trim(), parts.filter((part) => !isText(part)), sequence);
  });
  for (const child of hidden) child.hidden = true;
  target.append(editor);
  field.focus();
}

function makeButton(label, type, name = "") {
  const button = document.createElement("button");
  Object.assign(button, { type, className: name, textContent: label });
  return button;
}

/** Send the edited message in a branch; the conversation stays as it is. */
async function sendEdited(text, attachments, sequence) {
  const content = attachments.length ? [...attachments, { type: "text", text }] : text;
  if (sequence > 1) await makeBranch(sequence - 1);
  else await open("/");
  await sendMessages([{ role: "user", content }]);
}

const ACTIONS = { edit, branch, regenerate: () => regenerate(), retry: () => regenerate() };

function handleClick(event) {
  const button = event.target.closest?.("#turns [data-action]");
  const action = button && ACTIONS[button.dataset.action];
  if (!action) return;
  event.preventDefault();
  act(action, button.closest(".message[data-sequence]"));
}

export function start() {
  document.addEventListener("click", handleClick);
  addShortcut("r", texts.shortcut_regenerate, () => act(regenerate));
  addShortcut("e", texts.shortcut_edit, () => act(edit));
  addShortcut("b", texts.shortcut_branch, () => act(branch));
}
