// Rename, archive, restore, delete, export: the menu of a conversation and its shortcuts.

import { readKey, request, requestJson } from "./api.js";
import { addShortcut } from "./keyboard.js";
import { announce, listUrl, open, reloadMain } from "./navigation.js";
import { fill, texts } from "./texts.js";
import { showError, showToast } from "./toast.js";

const UNDO_SECONDS = 8;
const MAX_TITLE = 200;

const findConversation = () => document.querySelector("#main .conversation[data-conversation]");
const pathOf = (id) => `/v1/conversations/${encodeURIComponent(id)}`;

/** The open conversation, or that of the focused row: ID, title, and whether it is archived. */
function findTarget() {
  const row = document.activeElement?.closest?.(".row[data-id]");
  const view = findConversation();
  if (row && row.dataset.id !== view?.dataset.conversation) return describeRow(row);
  if (!view) return null;
  const isArchived = view.querySelector(".menu")?.hasAttribute("data-archived");
  return { id: view.dataset.conversation, title: readTitle(), isArchived };
}

function describeRow(row) {
  const filter = new URL(listUrl(), location.href).searchParams.get("archive_filter");
  const title = row.querySelector(".title")?.textContent.trim();
  return { id: row.dataset.id, title, isArchived: filter === "all" ? undefined : filter === "archived", row };
}

const readTitle = () => document.getElementById("title")?.textContent.trim() ?? "";
const isOpen = (id) => findConversation()?.dataset.conversation === id;

// Archive

async function toggleArchive(target = findTarget()) {
  if (!target) return;
  try {
    let { isArchived } = target;
    isArchived ??= Boolean((await requestJson(`${pathOf(target.id)}?limit=1`)).archived_at);
    await (isArchived ? restore(target) : archive(target));
  } catch (failure) {
    showError(failure);
  }
}

async function archive(target) {
  const next = target.row?.nextElementSibling?.closest(".row") ?? target.row?.previousElementSibling?.closest(".row");
  await setArchived(target.id, true);
  next?.focus();
  showToast(fill(texts.archived_toast, { title: target.title }), {
    action: texts.undo,
    onAction: () => setArchived(target.id, false).catch(showError),
    seconds: UNDO_SECONDS,
  });
}

async function restore(target) {
  await setArchived(target.id, false);
  showToast(fill(texts.restored_toast, { title: target.title }));
}

async function setArchived(id, archived) {
  await request(pathOf(id), { method: "PATCH", body: { archived } });
  announce("cllm:changed", { id });
  if (isOpen(id)) await reloadMain();
}

// Delete

function askToDelete() {
  const target = findTarget();
  const dialog = document.createElement("dialog");
  dialog.className = "question";
  const text = document.createElement("p");
  text.id = "question";
  text.textContent = fill(texts.delete_question, { title: target.title });
  dialog.setAttribute("aria-labelledby", text.id);
  const form = document.createElement("form");
  form.method = "dialog";
  form.append(makeButton(texts.cancel, ""), makeButton(texts.delete_submit, "delete", "danger"));
  dialog.append(text, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "delete") deletePermanently(target).catch(showError);
  });
  document.body.append(dialog);
  dialog.showModal();
}

async function deletePermanently({ id, title }) {
  await request(`${pathOf(id)}?permanent=true`, { method: "DELETE" });
  announce("cllm:changed", { id });
  showToast(fill(texts.deleted_toast, { title }));
  await open(listUrl());
}

function makeButton(label, value, name = "") {
  const button = document.createElement("button");
  button.value = value;
  button.className = name;
  button.textContent = label;
  return button;
}

// Rename

function startRename() {
  const heading = document.getElementById("title");
  const view = findConversation();
  if (!heading || !view || document.querySelector(".rename")) return;
  const form = document.createElement("form");
  form.className = "rename";
  const field = document.createElement("input");
  field.value = readTitle();
  field.maxLength = MAX_TITLE;
  field.dir = "auto";
  field.setAttribute("aria-label", texts.rename_label);
  form.append(field);
  heading.hidden = true;
  heading.after(form);
  field.select();
  let isDone = false;
  const finish = () => {
    isDone = true;
    form.remove();
    heading.hidden = false;
  };
  const save = async () => {
    if (isDone) return;
    const title = field.value.trim();
    const before = readTitle();
    finish();
    if (title && title !== before) await rename(view.dataset.conversation, heading, title).catch(showError);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save().then(focusMenu);
  });
  field.addEventListener("blur", save);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    finish();
    focusMenu();
  });
}

/** Show the new title at once, and the old one again if the server refuses it. */
async function rename(id, heading, title) {
  const before = heading.textContent;
  heading.textContent = title;
  try {
    const changed = await requestJson(pathOf(id), { method: "PATCH", body: { title } });
    heading.textContent = changed.title;
    if (isOpen(id)) document.title = `${changed.title} – cllm`;
    announce("cllm:changed", { id });
  } catch (failure) {
    heading.textContent = before;
    throw failure;
  }
}

const focusMenu = () => document.querySelector("#main [data-organise=rename]")?.focus();

// Export and link

/** Download with the key of the tab, so that errors are shown and not saved as a file. */
async function download(link) {
  const response = await request(link.getAttribute("href"));
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "") ?? [];
  const url = URL.createObjectURL(await response.blob());
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name ?? "conversation";
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function copyLink() {
  const id = findConversation().dataset.conversation;
  await navigator.clipboard.writeText(new URL(`/c/${encodeURIComponent(id)}`, location.href).href);
  showToast(texts.link_copied, { seconds: 2 });
}

// The menu

const ACTIONS = {
  rename: startRename,
  archive: () => toggleArchive(),
  restore: () => toggleArchive(),
  delete: askToDelete,
  "copy-link": copyLink,
  export: download,
};

async function handleClick(event) {
  const control = event.target.closest?.("[data-organise]");
  const menu = document.querySelector(".menu[open]");
  if (menu && !event.target.closest?.(".menu summary")) menu.open = false;
  if (!control) return;
  if (control.matches("a") && !readKey() && (event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  try {
    await ACTIONS[control.dataset.organise](control);
  } catch (failure) {
    showError(failure);
  }
}

function handleKey(event) {
  const menu = event.target.closest?.(".menu[open]");
  if (!menu) return;
  if (event.key === "Escape") {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") moveFocus(menu, event.key === "ArrowDown" ? 1 : -1);
  else return;
  event.preventDefault();
}

function moveFocus(menu, step) {
  const items = [...menu.querySelectorAll("li > :not([hidden])")];
  const index = items.indexOf(document.activeElement) + step;
  items[(index + items.length) % items.length]?.focus();
}

/** Open the list of actions to the side that has room. */
function chooseSide(event) {
  const list = event.target.matches?.(".menu[open]") && event.target.querySelector("ul");
  if (!list) return;
  event.target.classList.remove("to-right");
  const { left } = list.getBoundingClientRect();
  event.target.classList.toggle("to-right", left < document.getElementById("main").getBoundingClientRect().left);
}

/** Show the controls that need scripts. */
function prepare() {
  for (const control of document.querySelectorAll("#main [data-organise][hidden]")) {
    control.hidden = control.dataset.organise === "copy-link" && !navigator.clipboard;
  }
}

export function start() {
  document.addEventListener("click", handleClick);
  document.addEventListener("keydown", handleKey);
  document.addEventListener("toggle", chooseSide, true);
  document.addEventListener("cllm:main", prepare);
  addShortcut("a", texts.shortcut_archive, () => toggleArchive());
  addShortcut("Delete", texts.shortcut_archive, () => toggleArchive());
  addShortcut("F2", texts.shortcut_rename, startRename);
  prepare();
}
