// Images and text files of a message: dropped, pasted or selected.

import { fill, texts } from "./texts.js";
import { showToast } from "./toast.js";

export const MAX_BYTES = 20 * 1024 * 1024;
const MAX_TEXT_BYTES = 1024 * 1024;
const MAX_PASTED = 50_000;
const IMAGES = /^image\/(png|jpeg|gif|webp)$/;

let attachments = [];

const findList = () => document.querySelector("#composer .attachments");
const refuse = (text, values) => void showToast(fill(text, values), { kind: "error", seconds: 12 });
const formatSize = (bytes) => `${(bytes / 1024 / 1024).toFixed(1)} MB`;

export const hasAttachments = () => attachments.length > 0;
export const hasFiles = (data) => [...(data?.types ?? [])].includes("Files");

/** Remove all attachments and return them. */
export function takeAttachments() {
  const taken = attachments;
  setAttachments([]);
  return taken;
}

function setAttachments(list) {
  attachments = list;
  showAttachments();
}

/** Return the content of a message: the text, or its parts if it has attachments. */
export function buildContent(text, list) {
  if (!list.length) return text;
  const parts = list.map((one) =>
    one.url ? { type: "image_url", image_url: { url: one.url } } : { type: "text", text: quoteFile(one) },
  );
  return text ? [...parts, { type: "text", text }] : parts;
}

function quoteFile({ name, text }) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  const language = /\.([a-z0-9]{1,8})$/i.exec(name)?.[1] ?? "";
  return `${name}:\n${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}

export async function addFiles(files) {
  for (const file of files) {
    const added = await readFile(file);
    if (!added) continue;
    const total = attachments.reduce((sum, one) => sum + one.size, added.size);
    if (total > MAX_BYTES) refuse(texts.attachments_too_large, { name: file.name, limit: formatSize(MAX_BYTES) });
    else setAttachments([...attachments, added]);
  }
}

async function readFile(file) {
  const { name, size, type } = file;
  const isImage = IMAGES.test(type);
  const limit = isImage ? MAX_BYTES : MAX_TEXT_BYTES;
  if (type.startsWith("image/") && !isImage && type !== "image/svg+xml") return refuse(texts.image_unsupported, { name });
  if (size > limit) return refuse(texts.file_too_large, { name, size: formatSize(size), limit: formatSize(limit) });
  try {
    if (isImage) return { name, size, url: await readUrl(file) };
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name, size, text };
  } catch {
    // Not UTF-8, or the file was removed meanwhile.
  }
  return refuse(texts.file_not_text, { name });
}

function readUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Attach pasted files, and a text that is too long for the field. Returns whether it did. */
export function handlePaste(event) {
  const { clipboardData } = event;
  if (clipboardData.files.length) {
    addFiles(clipboardData.files);
    return true;
  }
  const text = clipboardData.getData("text/plain");
  if (text.length <= MAX_PASTED) return false;
  addFiles([new File([text], texts.pasted_text, { type: "text/plain" })]);
  return true;
}

export function showAttachments() {
  const list = findList();
  if (!list) return;
  list.hidden = !attachments.length;
  list.replaceChildren(...attachments.map(makeItem));
}

function makeItem(one) {
  const item = document.createElement("li");
  if (one.url) {
    const image = document.createElement("img");
    image.src = one.url;
    image.alt = "";
    item.append(image);
  }
  const name = document.createElement("span");
  name.textContent = one.name;
  const remove = document.createElement("button");
  remove.type = "button";
  remove.textContent = "×";
  remove.ariaLabel = fill(texts.remove_attachment, { name: one.name });
  remove.addEventListener("click", () => setAttachments(attachments.filter((other) => other !== one)));
  item.append(name, remove);
  return item;
}
