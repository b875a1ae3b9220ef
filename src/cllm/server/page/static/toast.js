// Short messages at the bottom of the page, in a live region: notices, errors, undo.

import { isAbort } from "./api.js";
import { texts } from "./texts.js";

/**
 * Show a text for some seconds, with a button for `onAction` if `action` is its label.
 * `onClose` runs when the toast ends without the action. Returns a function that closes it.
 */
export function showToast(text, { action, onAction, onClose, seconds = 8, kind = "" } = {}) {
  const toast = document.createElement("div");
  toast.className = `toast ${kind}`.trim();
  const message = document.createElement("span");
  message.textContent = text;
  toast.append(message);
  let isOpen = true;
  const close = (callback) => {
    if (!isOpen) return;
    isOpen = false;
    clearTimeout(timer);
    toast.remove();
    callback?.();
  };
  if (action) toast.append(makeButton(action, "action", () => close(onAction)));
  const dismiss = makeButton("×", "dismiss", () => close(onClose));
  dismiss.setAttribute("aria-label", texts.close);
  toast.append(dismiss);
  const timer = setTimeout(() => close(onClose), seconds * 1000);
  document.getElementById("messages").append(toast);
  return () => close(onClose);
}

export function showError(failure) {
  if (isAbort(failure)) return;
  showToast(failure.message, { kind: "error", seconds: 12 });
}

function makeButton(label, name, onClick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = name;
  button.textContent = label;
  button.addEventListener("click", onClick);
  return button;
}

export function start() {}
