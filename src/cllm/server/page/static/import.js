// Import of archives that are dropped on the page or selected: pieces, progress, report, cancel.

import { isAbort, request, requestJson } from "./api.js";
import { listUrl, showList } from "./navigation.js";
import { fill, texts } from "./texts.js";
import { showError, showToast } from "./toast.js";

const IMPORTS = "/v1/imports";
const POLL_DELAY = 400;
const RETRY_DELAYS = [500, 1000, 2000, 4000];
// Their content is never an attachment of a message.
const ARCHIVES = /\.(zip|db|sqlite3?|zst|jsonl)$/i;
const ARCHIVE_TYPES = /zip|sqlite|zstd/;
let queue = Promise.resolve();

const wait = (delay) => new Promise((resolve) => setTimeout(resolve, delay));

// Upload

/** Send the file in pieces from where the server has it, and again after a lost connection. */
async function upload(file, view, signal, onProgress) {
  const path = `${IMPORTS}/${view.id}`;
  let { received, piece_bytes: size } = view;
  let failures = 0;
  while (received < file.size) {
    onProgress(received / file.size);
    try {
      const body = file.slice(received, received + size);
      const url = `${path}/pieces?offset=${received}`;
      ({ received } = await requestJson(url, { method: "POST", body, signal }));
      failures = 0;
    } catch (failure) {
      const delay = RETRY_DELAYS[failures];
      const isTemporary = failure.code === "unreachable" || failure.code === "import_conflict" || failure.status >= 500;
      if (isAbort(failure) || !isTemporary || delay === undefined) throw failure;
      failures += 1;
      await wait(delay);
      const current = await requestJson(path, { signal }).catch(() => null);
      received = current?.received ?? received;
    }
  }
}

async function follow(id, signal, onProgress) {
  for (;;) {
    const view = await requestJson(`${IMPORTS}/${id}`, { signal });
    if (view.state !== "running") return view;
    onProgress(view.conversations);
    await wait(POLL_DELAY);
  }
}

async function importFile(file) {
  const controller = new AbortController();
  const { signal } = controller;
  const panel = makePanel(file.name, () => controller.abort());
  let id = null;
  try {
    const body = { name: file.name, size: file.size };
    const view = await requestJson(IMPORTS, { method: "POST", body, signal });
    id = view.id;
    await upload(file, view, signal, panel.showUpload);
    panel.showReading(0);
    await request(`${IMPORTS}/${id}/run`, { method: "POST", signal });
    const end = await follow(id, signal, panel.showReading);
    panel.showReport(end);
  } catch (failure) {
    panel.close();
    if (isAbort(failure)) showToast(fill(texts.import_cancelled, { name: file.name }));
    else showError(failure);
  }
  if (id) await request(`${IMPORTS}/${id}`, { method: "DELETE" }).catch(() => {});
  await showList(listUrl(), { force: true }).catch(showError);
}

function importFiles(files) {
  for (const file of files) queue = queue.then(() => importFile(file));
}

// Panel

function makePanel(name, onCancel) {
  const panel = makeElement("section", "import-panel");
  panel.setAttribute("aria-label", texts.import_archive);
  const status = makeElement("p", "status");
  status.setAttribute("role", "status");
  const bar = makeElement("progress");
  bar.max = 1;
  bar.setAttribute("aria-label", fill(texts.import_uploading, { name, percent: "" }).replace(/\W+$/, ""));
  const button = makeElement("button", "cancel", texts.cancel);
  button.type = "button";
  button.addEventListener("click", onCancel);
  panel.append(status, bar, button);
  document.body.append(panel);
  const close = () => panel.remove();
  return {
    close,
    showUpload(share) {
      const percent = Math.floor(share * 100);
      status.textContent = fill(texts.import_uploading, { name, percent });
      bar.value = share;
    },
    showReading(count) {
      status.textContent = fill(texts.import_reading, { name, count });
      bar.removeAttribute("value");
    },
    showReport(view) {
      bar.remove();
      button.textContent = texts.close;
      button.className = "";
      button.removeEventListener("click", onCancel);
      button.addEventListener("click", close);
      status.textContent = fill(view.error ? texts.import_failed : texts.import_done, { name });
      status.after(...describeReport(view));
    },
  };
}

function describeReport({ error, report }) {
  const parts = [];
  if (error) parts.push(makeElement("p", "failure", error));
  if (!report) return parts;
  const numbers = { ...report.conversations, messages: report.messages.imported };
  parts.push(makeElement("p", "numbers", fill(texts.import_numbers, numbers)));
  const lines = [
    ...report.skipped_conversations.map(describeSkipped),
    ...Object.entries(report.skipped_messages).map(([reason, count]) => `${count} × ${reason}`),
    ...Object.entries(report.notes).map(([text, count]) => (count > 1 ? `${count} × ${text}` : text)),
  ];
  if (lines.length) parts.push(makeDetails(lines));
  return parts;
}

function describeSkipped({ path, id, title, reason }) {
  const name = [path, title ?? id].filter(Boolean).join(" ");
  return name ? `${name}: ${reason}` : reason;
}

function makeDetails(lines) {
  const details = makeElement("details");
  const list = makeElement("ul");
  list.append(...lines.map((line) => makeElement("li", "", line)));
  details.append(makeElement("summary", "", `${texts.import_details} (${lines.length})`), list);
  return details;
}

function makeElement(tag, name = "", text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text) element.textContent = text;
  return element;
}

// Drop

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
const isOverComposer = (event) => Boolean(document.getElementById("composer") && event.target.closest?.("#main"));

/** Whether the page imports what is dragged: archives everywhere, other files outside of the composer. */
function isForImport(event) {
  if (!isOverComposer(event)) return true;
  if (event.type === "drop") return [...event.dataTransfer.files].every((file) => ARCHIVES.test(file.name));
  return [...event.dataTransfer.items].every((item) => ARCHIVE_TYPES.test(item.type));
}

function handleDrag(event) {
  if (!hasFiles(event) || !document.getElementById("columns")) return;
  const isImport = isForImport(event);
  if (event.type === "drop" || event.type === "dragend" || (event.type === "dragleave" && !event.relatedTarget)) hideOverlay();
  else if (event.type === "dragover") isImport ? showOverlay() : hideOverlay();
  if (!isImport) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (event.type === "drop") importFiles([...event.dataTransfer.files]);
}

function showOverlay() {
  if (document.querySelector(".import-overlay")) return;
  const overlay = makeElement("div", "import-overlay");
  overlay.append(makeElement("strong", "", texts.import_drop), makeElement("span", "", texts.import_drop_hint));
  document.body.append(overlay);
}

function hideOverlay() {
  document.querySelector(".import-overlay")?.remove();
}

function selectFiles() {
  const field = document.createElement("input");
  field.type = "file";
  field.multiple = true;
  field.addEventListener("change", () => importFiles([...field.files]));
  field.click();
}

function prepare() {
  for (const button of document.querySelectorAll(".start-import")) button.hidden = false;
}

export function start() {
  // In the capture phase, before the composer takes the files as attachments.
  for (const name of ["dragover", "dragleave", "drop"]) document.addEventListener(name, handleDrag, true);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(".start-import")) selectFiles();
  });
  document.addEventListener("cllm:rows", prepare);
  document.addEventListener("cllm:document", prepare);
  prepare();
}
