// Opens URLs of the page without loading the document again: history, columns, focus.
//
// The only module that parses HTML. The server escapes all text in it, and the policy of the
// document lets no other module do it (require-trusted-types-for).

import { isAbort, requestPart } from "./api.js";
import { showError } from "./toast.js";
import { texts } from "./texts.js";

const SKELETON_DELAY = 150;
const PATHS = /^\/(?:|search|usage|c\/.+)$/;
const trusted = globalThis.trustedTypes?.createPolicy("cllm", { createHTML: (html) => html });
const trust = (html) => trusted?.createHTML(html) ?? html;
let controller = new AbortController();
let shownPath = location.pathname + location.search;

/** Return the nodes of HTML from the server. Scripts in it do not run. */
export function parseHtml(html) {
  const template = document.createElement("template");
  template.innerHTML = trust(html);
  return document.importNode(template.content, true);
}

export function replaceHtml(element, html) {
  element.replaceChildren(parseHtml(html));
}

/** Show another document of the server in place of this one; the modules stay loaded. */
export function replaceDocument(html) {
  const loaded = new DOMParser().parseFromString(trust(html), "text/html");
  document.title = loaded.title;
  document.body.replaceWith(document.adoptNode(loaded.body));
  announce("cllm:document");
  announce("cllm:rows");
  announce("cllm:main", { url: location.href });
}

export function announce(name, detail) {
  document.dispatchEvent(new CustomEvent(name, { detail }));
}

export const listUrl = () => document.getElementById("list").dataset.url ?? "/";
const isListPath = (url) => url.pathname === "/" || url.pathname === "/search";

/** Open a URL of the page: its main and inspector columns, and for `/` and `/search` the list. */
export async function open(url, { push = true } = {}) {
  const target = new URL(url, location.href);
  const list = isListPath(target) ? target.pathname + target.search : listUrl();
  if (push) history.pushState({ list }, "", target);
  await show(target, list);
}

/** Change the URL without loading anything. */
export function recordUrl(url, { push = false } = {}) {
  const list = isListPath(new URL(url, location.href)) ? url : listUrl();
  history[push ? "pushState" : "replaceState"]({ list }, "", url);
}

export async function reloadMain() {
  await showMain(new URL(location.href), {});
}

/** Load the inspector of the open conversation, at a turn. */
export async function reloadInspector(turn) {
  const [, conversation] = /^\/c\/([^/]+)/.exec(location.pathname) ?? [];
  if (!conversation) return;
  const path = turn ? `/c/${conversation}/t/${turn}` : `/c/${conversation}`;
  await loadInspector(path, controller.signal);
}

/** Load the list column, unless it shows this URL already. */
export async function showList(url, { force = false, signal } = {}) {
  if (url === listUrl() && !force) return;
  const list = document.getElementById("list");
  const { html } = await requestPart(url, "list", { signal });
  replaceHtml(list, html);
  list.dataset.url = url;
  list.scrollTop = 0;
  announce("cllm:rows");
}

async function show(url, list) {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  try {
    await Promise.all([showList(list, { signal }), showMain(url, { signal, isNew: true })]);
  } catch (failure) {
    if (!isAbort(failure)) showError(failure);
  }
}

function setView(url) {
  const name = url.pathname === "/usage" ? "usage" : "list";
  document.body.dataset.view = url.pathname.startsWith("/c/") ? "conversation" : name;
  markOpenRow(url);
}

async function showMain(url, { signal, isNew = false }) {
  const main = document.getElementById("main");
  const path = url.pathname + url.search;
  const isConversation = path.startsWith("/c/");
  shownPath = path;
  setView(url);
  const timer = isNew && setTimeout(() => showSkeleton(main), SKELETON_DELAY);
  try {
    const inspector = isConversation ? loadInspector(path, signal) : clearInspector();
    // It is awaited below. If both fail, the error of the main column is reported.
    inspector?.catch(() => {});
    const { html, title } = await requestPart(path, "main", { signal });
    clearTimeout(timer);
    replaceHtml(main, html);
    if (title) document.title = `${title} – cllm`;
    if (isNew) {
      main.scrollTop = 0;
      main.focus({ preventScroll: true });
      scrollToTarget();
    }
    announce("cllm:main", { url: url.href });
    await inspector;
  } catch (failure) {
    if (!isAbort(failure) && isNew) showFailure(main, failure);
    throw failure;
  } finally {
    clearTimeout(timer);
    if (!signal?.aborted) main.removeAttribute("aria-busy");
  }
}

async function loadInspector(path, signal) {
  const { html } = await requestPart(path, "inspector", { signal });
  replaceHtml(document.getElementById("inspector"), html);
  announce("cllm:inspector", { path });
}

function clearInspector() {
  document.getElementById("inspector").replaceChildren();
}

function showSkeleton(main) {
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(document.getElementById("skeleton").content.cloneNode(true));
}

function showFailure(main, failure) {
  const text = document.createElement("p");
  text.className = "failure";
  text.textContent = failure.message;
  const back = document.createElement("a");
  back.href = "/";
  back.textContent = texts.back_to_list;
  main.replaceChildren(text, back);
}

/** Scroll to the element that the fragment of the URL names, which the browser does only at load. */
function scrollToTarget() {
  const name = decodeURIComponent(location.hash.slice(1));
  const element = name && document.getElementById(name);
  if (!element) return;
  element.scrollIntoView({ block: "start" });
  element.classList.add("target");
}

export function markOpenRow(url = location) {
  const [, conversation] = /^\/c\/([^/]+)/.exec(url.pathname) ?? [];
  const id = conversation && decodeURIComponent(conversation);
  for (const row of document.querySelectorAll(".row[aria-current]")) row.removeAttribute("aria-current");
  if (id) document.querySelector(`.row[data-id="${CSS.escape(id)}"]`)?.setAttribute("aria-current", "page");
}

function followLink(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.hasAttribute("target") || link.hasAttribute("download")) return;
  // The links of the tree are SVG elements, whose properties are not texts.
  const target = new URL(link.getAttribute("href"), location.href);
  if (target.origin !== location.origin) return;
  if (!PATHS.test(target.pathname) || !document.getElementById("columns")) return;
  const isHere = target.pathname === location.pathname && target.search === location.search;
  if (isHere && target.hash) return;
  event.preventDefault();
  open(link.classList.contains("back") ? listUrl() : target, { push: !isHere });
}

/** Show the entry of the history; a column that has not changed stays. */
function travel(event) {
  const url = new URL(location.href);
  const path = url.pathname + url.search;
  const list = event.state?.list ?? (isListPath(url) ? path : listUrl());
  if (path !== shownPath) return show(url, list);
  setView(url);
  scrollToTarget();
  return showList(list).catch(showError);
}

export function start() {
  history.scrollRestoration = "manual";
  document.addEventListener("click", followLink);
  document.addEventListener("cllm:rows", () => markOpenRow());
  window.addEventListener("popstate", travel);
  // The browser makes the entry of a link to a fragment.
  window.addEventListener("hashchange", () => history.state ?? history.replaceState({ list: listUrl() }, ""));
  document.addEventListener("cllm:document", restore);
  restore();
}

/** Apply what the document does not have: the list of the history entry, the open row, the target. */
function restore() {
  if (!document.getElementById("columns")) return;
  const list = history.state?.list;
  if (list && list !== listUrl()) showList(list).catch(showError);
  else history.replaceState({ list: listUrl() }, "");
  markOpenRow();
  if (location.hash) scrollToTarget();
}
