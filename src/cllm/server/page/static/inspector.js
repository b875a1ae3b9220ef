// The inspector: shown or hidden with `i`, loaded for the turn that is in view, the prompt as a file.

import { request } from "./api.js";
import { findVisibleTurn } from "./conversation.js";
import { addShortcut } from "./keyboard.js";
import { reloadInspector } from "./navigation.js";
import { showError } from "./toast.js";
import { texts } from "./texts.js";

const SHOWN = "cllm-inspector";
const FOLLOW_DELAY = 300;
const isWide = () => window.matchMedia("(min-width: 1100px)").matches;
const column = () => document.getElementById("inspector");

/** Shown beside the conversation, unless it was hidden; over it only on request. */
function isShownAtFirst() {
  return isWide() && localStorage.getItem(SHOWN) !== "hidden";
}

/** Show or hide the column for the conversation that is open. */
function setShown(isShown) {
  const inspector = column();
  if (!inspector) return;
  inspector.hidden = !isShown || document.body.dataset.view !== "conversation";
  for (const button of document.querySelectorAll("[data-action=inspect]")) {
    button.hidden = false;
    button.setAttribute("aria-expanded", String(!inspector.hidden));
  }
  if (!inspector.hidden && inspector.querySelector("[data-lazy]")) load();
}

async function load() {
  const [, turn] = /\/t\/([^/]+)/.exec(location.pathname) ?? [];
  try {
    await reloadInspector(turn);
  } catch (failure) {
    showError(failure);
  }
}

async function toggle() {
  if (document.body.dataset.view !== "conversation") return;
  const isShown = column().hidden;
  if (isWide()) localStorage.setItem(SHOWN, isShown ? "shown" : "hidden");
  setShown(isShown);
  if (!isShown) return document.getElementById("main").focus({ preventScroll: true });
  const turn = findVisibleTurn()?.dataset.turn;
  if (turn && column().querySelector(".inspection")?.dataset.turn !== turn) {
    try {
      await reloadInspector(turn);
    } catch (failure) {
      showError(failure);
    }
  }
}

let timer;

/** Show the newest turn after it ends, unless the URL names another. */
function followTurns(id) {
  const open = document.querySelector("[data-conversation]")?.dataset.conversation;
  if (id !== open || column().hidden || location.pathname.includes("/t/")) return;
  clearTimeout(timer);
  timer = setTimeout(load, FOLLOW_DELAY);
}

/** Save the prompt as a file: a link cannot send a key. */
async function download(link) {
  try {
    const response = await request(link.pathname);
    const file = document.createElement("a");
    file.href = URL.createObjectURL(await response.blob());
    file.download = "prompt.json";
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), 1000);
  } catch (failure) {
    showError(failure);
  }
}

export function start() {
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-action=inspect]")) toggle();
    const link = event.target.closest?.("[data-action=download-prompt]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    download(link);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !isWide() && column() && !column().hidden) toggle();
  });
  document.addEventListener("cllm:main", () => setShown(isShownAtFirst()));
  document.addEventListener("cllm:changed", (event) => followTurns(event.detail?.id));
  document.addEventListener("cllm:inspector", () => setShown(!column().hidden));
  addShortcut("i", texts.shortcut_inspector, toggle);
  setShown(isShownAtFirst());
}
