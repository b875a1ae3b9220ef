// Keyboard shortcuts of one key. `?` shows all.

import { texts } from "./texts.js";

const shortcuts = new Map();

/**
 * Call `action(event)` when the key is pressed outside of a text field. Key as in KeyboardEvent.
 * Without an action the key is only described.
 */
export function addShortcut(key, description, action) {
  shortcuts.set(key, { description, action });
}

function isTextField(element) {
  return Boolean(element?.closest?.("input, textarea, select, [contenteditable]"));
}

function handleKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTextField(event.target) || document.querySelector("dialog[open]")) return;
  const shortcut = shortcuts.get(event.key);
  if (!shortcut?.action) return;
  event.preventDefault();
  shortcut.action(event);
}

function showShortcuts() {
  const dialog = document.createElement("dialog");
  dialog.className = "shortcuts";
  const title = document.createElement("h2");
  title.id = "shortcuts-title";
  title.textContent = texts.shortcuts;
  dialog.setAttribute("aria-labelledby", title.id);
  const list = document.createElement("dl");
  for (const [key, { description }] of shortcuts) {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    const name = document.createElement("kbd");
    name.textContent = key;
    term.append(name);
    const text = document.createElement("dd");
    text.textContent = description;
    row.append(term, text);
    list.append(row);
  }
  const form = document.createElement("form");
  form.method = "dialog";
  const button = document.createElement("button");
  button.textContent = texts.close;
  form.append(button);
  dialog.append(title, list, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function start() {
  document.addEventListener("keydown", handleKey);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(".show-shortcuts")) showShortcuts();
  });
  addShortcut("?", texts.shortcut_help, showShortcuts);
}
