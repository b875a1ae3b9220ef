// Copies code blocks and messages.

import { requestJson } from "./api.js";
import { showError } from "./toast.js";
import { texts } from "./texts.js";

const SHOWN_FOR = 1500;

/** Copy a text. Without a secure context (plain HTTP from another machine) use a selection. */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Return the text of a message as it was written, not as it is rendered. */
async function readMessage(message) {
  const conversation = message.closest("[data-conversation]").dataset.conversation;
  const path = `/v1/conversations/${encodeURIComponent(conversation)}/messages/${encodeURIComponent(message.dataset.message)}`;
  const { content, parts = [] } = await requestJson(path);
  if (typeof content === "string") return content;
  return parts.filter((part) => part.kind === "text").map((part) => part.text).join("\n\n");
}

async function copy(button) {
  const code = button.closest("figure.code")?.querySelector("code");
  const message = button.closest("article.message");
  try {
    await copyText(code ? code.textContent : await readMessage(message));
  } catch (failure) {
    showError(failure);
    return;
  }
  const label = button.textContent;
  if (label === texts.copied) return;
  button.textContent = texts.copied;
  setTimeout(() => (button.textContent = label), SHOWN_FOR);
}

export function start() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-action=copy-code], [data-action=copy]");
    if (button) copy(button);
  });
}
