// Listens to the server's feed of changed conversations and dispatches `cllm:feed` for each.
//
// A browser opens few connections to one server. A tab that is hidden for a minute closes its feed,
// and continues it with the last event ID when it is shown again.

import { isAbort, readEvents, request } from "./api.js";
import { announce } from "./navigation.js";

const FIRST_DELAY = 1000;
const MAX_DELAY = 30_000;
const HIDDEN_DELAY = 60_000;

let controller = null;
let cursor = null;
let hiddenTimer;

async function listen() {
  if (controller || !document.getElementById("columns")) return;
  controller = new AbortController();
  const { signal } = controller;
  let delay = FIRST_DELAY;
  while (!signal.aborted) {
    try {
      const headers = cursor ? { "Last-Event-ID": cursor } : {};
      const response = await request("/v1/conversations/events", { headers, signal });
      for await (const { id, event, data } of readEvents(response)) {
        cursor = id ?? cursor;
        delay = FIRST_DELAY;
        if (event === "ready") document.body.dataset.feed = "ready";
        else announce("cllm:feed", JSON.parse(data));
      }
    } catch (failure) {
      if (isAbort(failure)) return;
      // Without a valid key each attempt would fail.
      if (failure.status === 401) return close();
    }
    delete document.body.dataset.feed;
    await new Promise((resolve) => setTimeout(resolve, delay * (0.75 + Math.random() / 2)));
    delay = Math.min(delay * 2, MAX_DELAY);
  }
}

function close() {
  controller?.abort();
  controller = null;
  delete document.body.dataset.feed;
}

export function start() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(close, HIDDEN_DELAY);
    else listen();
  });
  // A document that replaces the form for a key.
  document.addEventListener("cllm:document", () => (close(), listen()));
  listen();
}
