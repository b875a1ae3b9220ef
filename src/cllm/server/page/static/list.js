// The list column: search as you type, filters, pages loaded ahead, local days, changed rows.

import { isAbort, requestPart } from "./api.js";
import { addShortcut } from "./keyboard.js";
import { announce, listUrl, markOpenRow, open, parseHtml, recordUrl } from "./navigation.js";
import { texts } from "./texts.js";
import { showError, showToast } from "./toast.js";

const TYPING_DELAY = 120;
const SKELETON_DELAY = 150;
const SKELETON_ROWS = 8;
const CHANGE_DELAY = 250;
const ROW_HEIGHT = 64;
const DAY_HEIGHT = 32;
const AHEAD = "3000px 0px";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const fullDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const shortDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const shortFullDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

const findRows = () => document.getElementById("rows");
const findRow = (id) => findRows().querySelector(`.row[data-id="${CSS.escape(id)}"]`);
const isSearch = () => listUrl().startsWith("/search");
let controller = new AbortController();
let typingTimer;
let observer;
const changes = new Map();

// Rows

function describeDay(date) {
  const today = new Date();
  const yesterday = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (date.toDateString() === today.toDateString()) return texts.today;
  if (date.toDateString() === yesterday.toDateString()) return texts.yesterday;
  return (date.getFullYear() === today.getFullYear() ? dayOfYear : fullDay).format(date);
}

function makeHeading(label) {
  const heading = document.createElement("h2");
  heading.className = "day";
  heading.textContent = label;
  return heading;
}

/** Show local times and group the rows by local days; `lastDay` is that of the row before them. */
function localise(parent, lastDay = "") {
  for (const heading of parent.querySelectorAll(".day")) heading.remove();
  for (const row of parent.querySelectorAll(".row")) {
    const day = localiseRow(row);
    if (day === lastDay || row.classList.contains("hit")) continue;
    row.before(makeHeading(day));
    lastDay = day;
  }
  for (const page of parent.querySelectorAll(".page")) estimateHeight(page);
}

/** Set the height of a page before it is laid out, so that the scroll bar does not jump. */
function estimateHeight(page) {
  const height = page.querySelectorAll(".row").length * ROW_HEIGHT + page.querySelectorAll(".day").length * DAY_HEIGHT;
  page.style.containIntrinsicHeight = `auto ${height}px`;
}

function localiseRow(row) {
  const date = new Date(row.dataset.updated);
  const time = row.querySelector("time");
  const isThisYear = date.getFullYear() === new Date().getFullYear();
  const format = row.classList.contains("hit") ? (isThisYear ? shortDay : shortFullDay) : clock;
  time.textContent = format.format(date);
  time.title = date.toLocaleString();
  return describeDay(date);
}

function prepare() {
  const rows = findRows();
  if (!rows) return;
  localise(rows);
  watchEnd();
  showCopyButtons(rows);
  const count = rows.querySelector(".count, .empty h2");
  document.getElementById("list-status").textContent = count?.textContent ?? "";
}

// Pages

/** Load the next page before its link is visible. */
function watchEnd() {
  observer?.disconnect();
  const root = findRows();
  const next = root.querySelector(".next");
  if (!next) return;
  const load = (entries) => entries.some((entry) => entry.isIntersecting) && loadNextPage(next);
  observer = new IntersectionObserver(load, { root, rootMargin: AHEAD });
  observer.observe(next);
}

async function loadNextPage(next) {
  observer.disconnect();
  const { signal } = controller;
  try {
    const { html } = await requestPart(next.getAttribute("href"), "rows", { signal });
    if (!next.isConnected) return;
    const added = parseHtml(html);
    const days = findRows().querySelectorAll(".day");
    localise(added, days[days.length - 1]?.textContent);
    for (const count of added.querySelectorAll(".count")) count.remove();
    next.replaceWith(added);
    markOpenRow();
    watchEnd();
  } catch (failure) {
    // The link stays: a click on it tries again.
    if (!isAbort(failure)) showError(failure);
  }
}

// Search and filters

function buildUrl() {
  const url = new URL("/", location.href);
  for (const [name, value] of new FormData(document.getElementById("search"))) {
    const isDefault = !value.trim() || (name === "archive_filter" && value === "active");
    if (!isDefault) url.searchParams.set(name, value);
  }
  if (url.searchParams.has("q")) url.pathname = "/search";
  return url.pathname + url.search;
}

/**
 * Show the rows of the form's values; the main column does not change. Letters that are typed into
 * the field of a search make no new entry in the history.
 */
async function changeSelection({ isTyped = false } = {}) {
  const url = buildUrl();
  if (url === listUrl()) return;
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  const timer = setTimeout(showSkeleton, SKELETON_DELAY);
  try {
    const { html } = await requestPart(url, "rows", { signal });
    const push = !isTyped || location.pathname !== "/search";
    document.getElementById("list").dataset.url = url;
    recordUrl(url, { push });
    findRows().replaceChildren(parseHtml(html));
    findRows().scrollTop = 0;
    announce("cllm:rows");
  } catch (failure) {
    if (!isAbort(failure)) showError(failure);
  } finally {
    clearTimeout(timer);
    if (!signal.aborted) findRows().removeAttribute("aria-busy");
  }
}

function showSkeleton() {
  const rows = findRows();
  rows.setAttribute("aria-busy", "true");
  rows.replaceChildren(
    ...Array.from({ length: SKELETON_ROWS }, () => {
      const row = document.createElement("div");
      row.className = "skeleton row";
      row.append(document.createElement("i"), document.createElement("i"));
      return row;
    }),
  );
}

function handleInput(event) {
  if (event.target.form?.id !== "search") return;
  clearTimeout(typingTimer);
  const isTyped = event.target.matches("[type=search], [name=model]");
  typingTimer = setTimeout(changeSelection, isTyped ? TYPING_DELAY : 0, { isTyped });
}

function handleSubmit(event) {
  if (event.target.id !== "search") return;
  event.preventDefault();
  clearTimeout(typingTimer);
  changeSelection();
}

function handleSearchKey(event) {
  if (event.target.id !== "q") return;
  if (event.key === "ArrowDown") focusRow(findRows().querySelector(".row"));
  else if (event.key === "Escape" && !event.target.value) event.target.blur();
  else return;
  event.preventDefault();
}

// Changed conversations

function noteChange(event) {
  const id = event.detail?.id;
  if (!id || !findRows() || changes.has(id)) return;
  changes.set(id, setTimeout(() => refreshRow(id), CHANGE_DELAY));
}

async function refreshRow(id) {
  changes.delete(id);
  if (!findRows() || isSearch()) return;
  const { search } = new URL(listUrl(), location.href);
  let row = null;
  try {
    const { html } = await requestPart(`/c/${encodeURIComponent(id)}${search}`, "row");
    row = parseHtml(html).querySelector(".row");
  } catch (failure) {
    if (failure.status !== 404) return;
  }
  placeRow(id, row);
}

/** Replace the row of a conversation, or remove it. A newer row moves to its place by time. */
function placeRow(id, row) {
  const old = findRow(id);
  const hadFocus = old === document.activeElement;
  if (!row) removeRow(old);
  else if (old && old.dataset.updated >= row.dataset.updated) {
    localiseRow(row);
    old.replaceWith(row);
  } else {
    removeRow(old);
    insertRow(row);
  }
  markOpenRow();
  if (hadFocus) focusRow(row);
}

function removeRow(row) {
  if (!row) return;
  const heading = row.previousElementSibling;
  const isAlone = heading?.matches(".day") && !row.nextElementSibling?.matches(".row");
  if (isAlone) heading.remove();
  row.remove();
}

/** Insert a row before the first older one. Below the loaded rows it comes with its page. */
function insertRow(row) {
  const rows = findRows();
  const all = [...rows.querySelectorAll(".row")];
  const following = all.find(({ dataset }) => dataset.updated <= row.dataset.updated);
  if (following === all[0]) return insertFirst(row);
  if (following) following.before(row);
  else if (rows.querySelector(".next")) return;
  else all.at(-1).after(row);
  localise(rows);
}

function insertFirst(row) {
  const rows = findRows();
  rows.querySelector(".empty")?.remove();
  const day = localiseRow(row);
  const first = rows.querySelector(".day");
  if (first?.textContent === day) return first.after(row);
  let page = rows.querySelector(".page");
  if (!page) {
    page = document.createElement("div");
    page.className = "page";
    rows.prepend(page);
  }
  page.prepend(makeHeading(day), row);
}

// Keyboard

function focusRow(row) {
  if (!row) return;
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

function moveFocus(step) {
  const rows = [...findRows().querySelectorAll("a.row")];
  const current = rows.indexOf(document.activeElement.closest?.(".row"));
  const start = current >= 0 ? current : rows.findIndex((row) => row.ariaCurrent);
  focusRow(start < 0 ? rows[0] : rows[start + step]);
}

function focusSearch() {
  if (document.body.dataset.view !== "list" && matchMedia("(max-width: 699px)").matches) open(listUrl());
  const field = document.getElementById("q");
  field.focus();
  field.select();
}

// Commands of empty lists

function showCopyButtons(parent) {
  if (!navigator.clipboard) return;
  for (const button of parent.querySelectorAll(".copy-command")) button.hidden = false;
}

async function copyCommand(event) {
  const button = event.target.closest?.(".copy-command");
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  showToast(texts.copied, { seconds: 2 });
}

export function start() {
  document.addEventListener("input", handleInput);
  document.addEventListener("submit", handleSubmit);
  document.addEventListener("keydown", handleSearchKey);
  document.addEventListener("click", copyCommand);
  document.addEventListener("cllm:rows", prepare);
  document.addEventListener("cllm:changed", noteChange);
  document.addEventListener("cllm:feed", noteChange);
  addShortcut("/", texts.shortcut_search, focusSearch);
  addShortcut("j", texts.shortcut_next, () => moveFocus(1));
  addShortcut("k", texts.shortcut_previous, () => moveFocus(-1));
  addShortcut("Enter", texts.shortcut_open);
  prepare();
}
