// The form for the API key, which the server requires if keys are configured.

import { ApiFailure, deleteKey, readKey, request, saveKey } from "./api.js";
import { forgetDrafts } from "./drafts.js";
import { replaceDocument } from "./navigation.js";
import { texts } from "./texts.js";

function forgetKey() {
  forgetDrafts();
  deleteKey();
  location.reload();
}

/** Load the current URL with the saved key, in place of the form. */
async function loadDocument() {
  try {
    const response = await request(location.pathname + location.search);
    replaceDocument(await response.text());
  } catch (failure) {
    if (!(failure instanceof ApiFailure)) throw failure;
    if (failure.status !== 401) return showForm(failure.message);
    deleteKey();
    showForm(texts.key_wrong);
  }
}

function showForm(problem) {
  const form = document.getElementById("key");
  form.hidden = false;
  form.querySelector("[role=alert]").textContent = problem;
  form.elements.key.focus();
}

async function submitKey(event) {
  if (event.target.id !== "key") return;
  event.preventDefault();
  const field = event.target.elements.key;
  // A header takes printable ASCII only.
  if (!/^[\x21-\x7e]+$/.test(field.value.trim())) return showForm(texts.key_wrong);
  saveKey(field.value.trim());
  field.value = "";
  await loadDocument();
}

function showForgetButtons() {
  if (readKey()) for (const button of document.querySelectorAll(".forget-key")) button.hidden = false;
}

export function start() {
  document.addEventListener("submit", submitKey);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(".forget-key")) forgetKey();
  });
  document.addEventListener("cllm:document", showForgetButtons);
  if (!document.getElementById("key")) return showForgetButtons();
  if (readKey()) loadDocument();
  else showForm("");
}
