// The composer: sends messages and starts conversations.

import { addFiles, buildContent, handlePaste, hasAttachments, hasFiles, MAX_BYTES, showAttachments, takeAttachments } from "./attachments.js";
import { announce, open } from "./navigation.js";
import { request, requestJson } from "./api.js";
import { deleteDraft, readDraft, saveDraft } from "./drafts.js";
import { findOpenStream, openConversation, openEnd, runTurn, showTurnError } from "./stream.js";
import { addShortcut } from "./keyboard.js";
import { showError, showToast } from "./toast.js";
import { texts } from "./texts.js";

const DRAFT_DELAY = 300;
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

let models = null;
let draft = null;
let draftTimer;
let isStarting = false;
let shown = { conversation: null, model: null };
let emptyConversation = null;

const findForm = () => document.querySelector("form#composer");
const findField = (name) => findForm()?.elements[name];

// The form

function prepare() {
  saveNotedDraft();
  const form = findForm();
  if (!form) return;
  form.hidden = false;
  form.querySelector(".keys").textContent = isMac ? "⌘↵" : "Ctrl ↵";
  const saved = readDraft(openConversation());
  if (saved) {
    form.elements.prompt.value = saved.text;
    if (form.elements.system) form.elements.system.value = saved.system;
    if (saved.system) form.querySelector(".system")?.setAttribute("open", "");
  }
  fit(form.elements.prompt);
  restoreChoices(form);
  showButtons();
  fillModels().catch(() => {});
}

/** Attachments and model stay when the same conversation is loaded again. */
function restoreChoices(form) {
  const conversation = openConversation();
  const { model } = form.elements;
  if (shown.conversation !== conversation) {
    takeAttachments();
    shown = { conversation, model: null };
    deleteEmpty();
  } else if (shown.model) model.replaceChildren(new Option(shown.model));
  showAttachments();
}

/** Delete a conversation that this page has created and whose first message was refused. */
function deleteEmpty() {
  const id = emptyConversation;
  if (!id || id === openConversation()) return;
  emptyConversation = null;
  request(`/v1/conversations/${encodeURIComponent(id)}?permanent=true`, { method: "DELETE" })
    .then(() => announce("cllm:changed", { id }))
    .catch(() => {});
}

/** Let the field grow, in browsers without `field-sizing`. */
function fit(field) {
  if (CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

async function fillModels() {
  models ??= (await requestJson("/v1/models")).data.map(({ id }) => id);
  const select = findField("model");
  if (!select) return;
  const current = select.value;
  const names = current && !models.includes(current) ? [current, ...models] : models;
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === current)));
}

function showButtons() {
  const form = findForm();
  if (!form) return;
  const isRunning = Boolean(findOpenStream()) || isStarting;
  form.querySelector(".send").hidden = isRunning;
  form.querySelector(".stop").hidden = !isRunning;
  form.querySelector(".stop").disabled = isStarting;
}

function noteInput(event) {
  if (event.target.form?.id !== "composer" || event.target.tagName !== "TEXTAREA") return;
  fit(event.target);
  noteDraft();
  clearTimeout(draftTimer);
  draftTimer = setTimeout(saveNotedDraft, DRAFT_DELAY);
}

/** Remember the fields with their conversation: another one may be open when they are saved. */
function noteDraft() {
  const form = findForm();
  if (!form) return;
  draft = { conversation: openConversation(), text: form.elements.prompt.value, system: form.elements.system?.value };
}

function saveNotedDraft() {
  clearTimeout(draftTimer);
  if (draft) saveDraft(draft.conversation, draft);
  draft = null;
}

function saveFields() {
  noteDraft();
  saveNotedDraft();
}

// Sending

/** The model that the composer shows, as the fields of a request. */
export function chooseModel() {
  return {
    body: { model: findField("model")?.value || findForm()?.dataset.model || "" },
    headers: { "X-CLLM-Switch-Model": "true" },
  };
}

function readMessages(form) {
  const text = form.elements.prompt.value.trim();
  const system = form.elements.system?.value.trim();
  const content = buildContent(text, takeAttachments());
  const messages = [{ role: "user", content }];
  if (system) messages.unshift({ role: "system", content: system });
  return messages;
}

async function submit() {
  const form = findForm();
  if (!form || isStarting) return;
  if (findOpenStream()) return showToast(texts.turn_is_running);
  const isEmpty = !form.elements.prompt.value.trim() && !hasAttachments();
  if (isEmpty) return form.elements.prompt.focus();
  if (form.elements.prompt.value.length > MAX_BYTES) return showToast(texts.message_too_large, { kind: "error" });
  saveFields();
  const messages = readMessages(form);
  form.elements.prompt.value = "";
  fit(form.elements.prompt);
  await sendMessages(messages, { from: openConversation() });
}

/** Send messages in the open conversation, or start one. `from`: whose draft they were. */
export async function sendMessages(messages, { from = null } = {}) {
  const { body, headers } = chooseModel();
  isStarting = true;
  showButtons();
  try {
    if (openConversation()) await openEnd();
    else await startConversation();
  } catch (failure) {
    restore(messages);
    return showError(failure);
  } finally {
    isStarting = false;
    showButtons();
  }
  const send = { body: { ...body, messages }, headers: { ...headers, "Idempotency-Key": crypto.randomUUID() } };
  await sendTurn(openConversation(), send, { from });
}

/** Create the conversation first: its URL is known before the first reply. */
async function startConversation() {
  const { id } = await requestJson("/v1/conversations", { method: "POST", body: {} });
  const model = findField("model")?.value;
  emptyConversation = id;
  shown = { conversation: id, model };
  await open(`/c/${encodeURIComponent(id)}`);
}

async function sendTurn(conversation, send, { from = null } = {}) {
  const user = send.body.messages.findLast(({ role }) => role === "user");
  const article = showSent(user.content);
  const { failure, isSaved } = await runTurn(conversation, { ...send, article, author: send.body.model });
  if (!failure || isSaved) {
    if (emptyConversation === conversation) emptyConversation = null;
    if (from !== null) forgetDraft(from, conversation);
    return;
  }
  article.classList.add("unsent");
  showTurnError(article, failure, () => {
    article.remove();
    sendTurn(conversation, send, { from });
  });
}

/** The draft of a sent message; one that was written meanwhile stays. */
function forgetDraft(from, conversation) {
  if (openConversation() === conversation && findField("prompt")?.value) saveFields();
  else deleteDraft(conversation);
  if (from !== conversation) deleteDraft(from);
}

function restore(messages) {
  const form = findForm();
  if (!form) return;
  const { content } = messages.at(-1);
  if (typeof content === "string") form.elements.prompt.value = content;
}

/** Show a message that is being sent, at the end of the turns. */
function showSent(content) {
  const article = document.createElement("article");
  article.className = "turn sent";
  article.dataset.state = "running";
  const message = document.createElement("article");
  message.className = "message";
  message.dataset.role = "user";
  const header = document.createElement("header");
  const speaker = document.createElement("span");
  speaker.className = "speaker";
  speaker.textContent = texts.speaker_user;
  header.append(speaker);
  message.append(header);
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : content;
  for (const part of parts) message.append(part.image_url ? makeImage(part.image_url.url) : makeText(part.text));
  article.append(message);
  let turns = document.getElementById("turns");
  if (!turns) {
    turns = document.createElement("div");
    turns.id = "turns";
    findForm().before(turns);
  }
  turns.querySelector(":scope > p")?.remove();
  turns.append(article);
  return article;
}

function makeText(text) {
  const element = document.createElement("div");
  element.className = "text raw";
  element.textContent = text;
  return element;
}

function makeImage(url) {
  const image = document.createElement("img");
  image.src = url;
  image.alt = texts.attached_image;
  return image;
}

async function stop() {
  try {
    await findOpenStream()?.stop();
  } catch (failure) {
    showError(failure);
  }
}

// New conversations

/** Show the composer of a new conversation, or that of the open one. */
async function compose() {
  if (openConversation() || !findForm()) await open("/");
  document.body.dataset.view = "new";
  findField("prompt")?.focus();
}

function handleKey(event) {
  if (event.target.form?.id !== "composer") return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
    event.preventDefault();
    submit();
  } else if (event.key === "Escape") event.target.blur();
}

function handleClick(event) {
  if (event.target.closest?.("#composer .stop")) {
    // "Stop" takes the place of "Send", and gets the second click of a double click on it.
    if (event.detail < 2) stop();
  } else if (event.target.closest?.("#composer .attach")) findField("files").click();
  else if (event.target.closest?.(".compose")) {
    event.preventDefault();
    compose();
  }
}

function handleDrag(event) {
  const box = findForm()?.querySelector(".box");
  if (!box || !hasFiles(event.dataTransfer) || !event.target.closest?.("#main")) return;
  event.preventDefault();
  box.classList.toggle("drop", event.type === "dragover");
  if (event.type === "drop") addFiles(event.dataTransfer.files);
}

export function start() {
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "composer") return;
    event.preventDefault();
    submit();
  });
  document.addEventListener("input", noteInput);
  document.addEventListener("change", (event) => {
    if (event.target !== findField("files")) return;
    addFiles([...event.target.files]);
    event.target.value = "";
  });
  document.addEventListener("change", (event) => {
    if (event.target === findField("model")) shown.model = event.target.value;
  });
  document.addEventListener("keydown", handleKey);
  document.addEventListener("click", handleClick);
  document.addEventListener("paste", (event) => {
    if (event.target.form?.id === "composer" && handlePaste(event)) event.preventDefault();
  });
  for (const name of ["dragover", "dragleave", "drop"]) document.addEventListener(name, handleDrag);
  document.addEventListener("cllm:main", prepare);
  document.addEventListener("cllm:streams", showButtons);
  window.addEventListener("pagehide", saveFields);
  addShortcut("c", texts.shortcut_compose, compose);
  prepare();
}
