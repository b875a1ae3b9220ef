// Requests to the server that the page comes from, with the API key of this tab.
//
// The key is sent in a header only, never in a URL or cookie.

import { texts } from "./texts.js";

const KEY = "cllm-key";

export const readKey = () => sessionStorage.getItem(KEY);
export const saveKey = (key) => sessionStorage.setItem(KEY, key);
export const deleteKey = () => sessionStorage.removeItem(KEY);

/** An error response. The message is the server's sentence; `turn` is the ID of the saved turn. */
export class ApiFailure extends Error {
  constructor(message, { code = "", status = 0, turn = null } = {}) {
    super(message);
    this.name = "ApiFailure";
    this.code = code;
    this.status = status;
    this.turn = turn;
  }
}

export const isAbort = (error) => error?.name === "AbortError";

/** Send a request; a plain object is sent as JSON. Throws ApiFailure unless the status is 2xx. */
export async function request(path, { method = "GET", body, headers, signal } = {}) {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) throw new TypeError(`not of this server: ${path}`);
  const sent = new Headers(headers);
  const key = readKey();
  if (key) sent.set("Authorization", `Bearer ${key}`);
  if (body?.constructor === Object) {
    body = JSON.stringify(body);
    sent.set("Content-Type", "application/json");
  }
  let response;
  try {
    response = await fetch(url, { method, body, headers: sent, signal, redirect: "error" });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiFailure(texts.server_unreachable, { code: "unreachable" });
  }
  if (!response.ok) throw await readFailure(response);
  return response;
}

async function readFailure(response) {
  const { status, headers } = response;
  const message = headers.get("X-Page-Error");
  if (message) return new ApiFailure(decodeURIComponent(message), { code: headers.get("X-Page-Code"), status });
  let error;
  try {
    ({ error } = await response.json());
  } catch {
    // Not the server's own error, but that of a proxy.
  }
  const sentence = error?.message ?? `${texts.server_failed} (${status})`;
  const code = error?.code ?? error?.type;
  // A busy conversation names the turn that runs, not one of this request.
  const turn = code === "conversation_busy" ? null : headers.get("X-Turn-ID");
  return new ApiFailure(sentence, { code, status, turn });
}

export async function requestJson(path, options) {
  return (await request(path, options)).json();
}

/** Return one column of a page as HTML, and the title of its document. */
export async function requestPart(url, part, options) {
  const target = new URL(url, location.href);
  target.searchParams.set("part", part);
  const response = await request(target.pathname + target.search, options);
  const title = response.headers.get("X-Page-Title");
  return { html: await response.text(), title: title && decodeURIComponent(title) };
}

/** Yield the server-sent events of a response as {id, event, data}. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value;
      // A carriage return at the end may be the first half of a line end.
      const blocks = buffer.split(/\r\n\r\n|\n\n|\r\r(?!$)/);
      buffer = blocks.pop();
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  const event = { id: null, event: "message", data: "" };
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") data.push(value);
    else if (name === "id" || name === "event") event[name] = value;
  }
  event.data = data.join("\n");
  return data.length || event.event !== "message" ? event : null;
}
