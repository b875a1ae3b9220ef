// The conversation: earlier messages, the scroll position, variants by keys, local times.

import { requestPart } from "./api.js";
import { addShortcut } from "./keyboard.js";
import { announce, open, parseHtml } from "./navigation.js";
import { showError } from "./toast.js";
import { texts } from "./texts.js";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const main = () => document.getElementById("main");

/** Write times of messages in the time zone of the browser; those of other days with the day. */
export function showLocalTimes(root = document) {
  for (const time of root.querySelectorAll(".message time[datetime]")) {
    const date = new Date(time.dateTime);
    const isToday = date.toDateString() === new Date().toDateString();
    time.textContent = (isToday ? clock : day).format(date);
    time.title = date.toLocaleString();
  }
}

/** Load the messages before the first one, without moving those that are visible. */
async function loadEarlier(link) {
  if (link.hasAttribute("aria-busy")) return;
  link.setAttribute("aria-busy", "true");
  try {
    const { html } = await requestPart(link.href, "main");
    if (link.isConnected) insertBefore(link, parseHtml(html).querySelector("#turns"));
  } catch (failure) {
    link.removeAttribute("aria-busy");
    showError(failure);
  }
}

function insertBefore(link, turns) {
  turns.querySelector(".later")?.remove();
  const column = main();
  const next = link.nextElementSibling;
  const before = next.getBoundingClientRect().top;
  const added = [...turns.childNodes];
  link.replaceWith(...added);
  for (const node of added) if (node.nodeType === Node.ELEMENT_NODE) showLocalTimes(node);
  column.scrollTop += next.getBoundingClientRect().top - before;
  watchStart();
  announce("cllm:turns");
}

let observer;

/** Load earlier messages when their link is almost visible. */
function watchStart() {
  observer?.disconnect();
  const link = document.querySelector("#turns > .earlier");
  if (!link) return;
  observer = new IntersectionObserver(
    (entries) => entries.some((entry) => entry.isIntersecting) && loadEarlier(link),
    { root: main(), rootMargin: "600px 0px 0px" },
  );
  observer.observe(link);
}

/** Show the newest message, the one of the fragment, or the turn of the URL. */
function showPosition() {
  const [, turn] = /^\/c\/[^/]+\/t\/([^/]+)/.exec(location.pathname) ?? [];
  const number = /^#m-(\d+)$/.exec(location.hash)?.[1];
  const target = number
    ? document.getElementById(`m-${number}`)
    : turn && document.getElementById(`t-${decodeURIComponent(turn)}`);
  if (number && !target) {
    const isHere = new URLSearchParams(location.search).get("at") === number;
    if (!isHere) open(`${location.pathname.replace(/\/t\/.*/, "")}?at=${number}#m-${number}`, { push: false });
    return;
  }
  if (target) {
    scrollTo(target);
  } else if (!location.search) {
    scrollToEnd();
  }
}

/** Scroll to an element; turns that become visible get their real height, so repeat it. */
function scrollTo(target) {
  target.classList.add("target");
  const scroll = () => target.scrollIntoView({ block: "start" });
  scroll();
  requestAnimationFrame(() => requestAnimationFrame(scroll));
}

function scrollToEnd() {
  const column = main();
  const scroll = () => (column.scrollTop = column.scrollHeight);
  scroll();
  requestAnimationFrame(() => requestAnimationFrame(scroll));
}

/** Return the turn in the middle of the column, at its end the last one. */
export function findVisibleTurn() {
  const { scrollHeight, scrollTop, clientHeight } = main();
  const { top, height } = main().getBoundingClientRect();
  const turns = [...document.querySelectorAll("#turns > .turn")];
  if (scrollHeight - scrollTop - clientHeight < height / 4) return turns.at(-1);
  return turns.find((turn) => turn.getBoundingClientRect().bottom > top + height / 2) ?? turns.at(-1);
}

function stepVariant(name) {
  const focused = document.activeElement?.closest?.(".turn");
  const turns = [focused, findVisibleTurn(), ...document.querySelectorAll("#turns > .turn:has(.variants)")];
  const turn = turns.find((one) => one?.querySelector(".variants"));
  turn?.querySelector(`.variants > .${name}`)?.click();
}

function showConversation() {
  const conversation = document.querySelector(".conversation");
  if (!conversation) return;
  showLocalTimes(conversation);
  showPosition();
  watchStart();
}

export function start() {
  document.addEventListener("cllm:main", showConversation);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("#turns > .earlier");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    loadEarlier(link);
  }, { capture: true });
  addShortcut("[", texts.shortcut_variants, () => stepVariant("previous"));
  addShortcut("]", texts.shortcut_variants, () => stepVariant("next-variant"));
  showConversation();
}
