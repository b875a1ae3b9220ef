// Turns that run: sends them, follows them, shows their text as it comes, stops them.
//
// The server's HTML replaces a turn when it ends. A stream continues while another conversation is
// open, and shows its text again when its own is.

import { showLocalTimes } from "./conversation.js";
import { announce, open, parseHtml, replaceHtml } from "./navigation.js";
import { isAbort, readEvents, request, requestPart } from "./api.js";
import { decodeEvent, findBlockEnd, mergePieces } from "./stream_decoder.js";
import { texts } from "./texts.js";

const MAX_RECONNECTS = 5;
const FIRST_DELAY = 500;
const NEAR_BOTTOM = 48;

const streams = new Set();
let isFollowing = true;

export const openConversation = () => document.getElementById("composer")?.dataset.conversation ?? "";
export const conversationPath = (id) => `/v1/conversations/${encodeURIComponent(id)}`;
const findMain = () => document.getElementById("main");
const findTurn = (id) => id && document.querySelector(`#turns > .turn[data-turn="${CSS.escape(id)}"]`);
const findStream = (turn) => [...streams].find((one) => one.turn && one.turn === turn);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Return the stream of the open conversation, if one runs. */
export function findOpenStream() {
  const conversation = openConversation();
  return [...streams].find((one) => conversation && one.conversation === conversation);
}

// Scrolling

function isAtBottom() {
  const main = findMain();
  return main.scrollHeight - main.scrollTop - main.clientHeight < NEAR_BOTTOM;
}

function showJump() {
  const jump = document.querySelector("#composer .jump");
  if (jump) jump.hidden = isFollowing || isAtBottom();
}

export function scrollToEnd() {
  isFollowing = true;
  findMain().scrollTop = findMain().scrollHeight;
  showJump();
}

/** Change the turns. The view stays at the bottom if it is there; otherwise nothing moves. */
function changeTurns(change) {
  const main = findMain();
  const isManual = !CSS.supports("overflow-anchor", "auto");
  const top = main.getBoundingClientRect().top;
  const anchor = isManual && [...document.querySelectorAll("#turns > .turn")].find((one) => one.getBoundingClientRect().bottom > top);
  const before = anchor && anchor.getBoundingClientRect().top;
  change();
  if (isFollowing) main.scrollTop = main.scrollHeight;
  else if (anchor?.isConnected) main.scrollTop += anchor.getBoundingClientRect().top - before;
  showJump();
}

// What a running turn shows

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function makeFacts(text) {
  const header = make("header");
  header.append(make("p", "facts", text));
  return header;
}

/** Text of a reply: finished blocks as the server's HTML, the rest in one text node. */
class LiveText {
  constructor(parent) {
    this.tail = document.createTextNode("");
    const last = make("div", "tail");
    last.append(this.tail);
    this.last = last;
    parent.append(last);
    this.rendered = Promise.resolve();
  }

  append(text) {
    this.tail.appendData(text);
    const end = text.includes("\n") || this.tail.data.includes("\n\n") ? findBlockEnd(this.tail.data) : 0;
    if (!end) return;
    const source = this.tail.data.slice(0, end);
    const block = make("div", "raw", source);
    this.last.before(block);
    this.tail.deleteData(0, end);
    this.rendered = this.rendered.then(() => this.render(block, source));
  }

  async render(block, source) {
    try {
      const response = await request("/render", { method: "POST", body: source });
      const html = await response.text();
      changeTurns(() => {
        block.className = "block";
        replaceHtml(block, html);
      });
    } catch {
      // The text stays as it is; the finished turn is rendered as a whole.
    }
  }
}

/** The reply of a running turn at the end of its article. */
class LiveReply {
  constructor(article, author) {
    this.element = make("article", "message live");
    this.element.dataset.role = "assistant";
    this.element.append(makeFacts(author), (this.waiting = make("p", "waiting", texts.waiting)));
    article.append(this.element);
    this.tools = new Map();
  }

  show(piece) {
    this.waiting.remove();
    if (piece.text) this.text().append(piece.text);
    else if (piece.thinking) this.thinking().appendData(piece.thinking);
    else if (piece.tool) this.showTool(piece.tool);
  }

  text() {
    if (!this.current) {
      const body = make("div", "text");
      this.element.append(body);
      this.current = new LiveText(body);
    }
    return this.current;
  }

  thinking() {
    this.thoughts ??= this.fold(texts.thinking, "thinking");
    return this.thoughts;
  }

  fold(label, name) {
    const details = make("details", name);
    const node = document.createTextNode("");
    const pre = make("pre");
    pre.append(node);
    details.append(make("summary", "", label), pre);
    this.element.append(details);
    return node;
  }

  showTool({ key, name, input }) {
    const isNew = name && this.tools.get(key)?.name !== name;
    if (isNew || !this.tools.has(key)) {
      this.tools.set(key, { name, node: this.fold(name || texts.tool, "tool") });
      this.current = null;
    }
    this.tools.get(key).node.appendData(input);
  }
}

// Streams

/** One running turn. `pieces` is everything received, so that it can be shown again. */
class TurnStream {
  constructor(conversation, { turn = null, article = null, author = "" } = {}) {
    Object.assign(this, { conversation, turn, author });
    this.pieces = [];
    this.waitingPieces = [];
    this.lastId = null;
    this.isStopped = false;
    this.controller = new AbortController();
    streams.add(this);
    if (article) this.attach(article);
    showState();
  }

  attach(article) {
    this.article = article;
    for (const old of article.querySelectorAll(".live")) old.remove();
    if (this.turn) article.dataset.turn = this.turn;
    article.dataset.state = "running";
    article.setAttribute("aria-busy", "true");
    article.querySelector(":scope > .status")?.remove();
    this.reply = new LiveReply(article, this.author);
    changeTurns(() => mergePieces(this.pieces).forEach((piece) => this.reply.show(piece)));
  }

  receive(piece) {
    this.pieces.push(piece);
    this.waitingPieces.push(piece);
    if (this.waitingPieces.length === 1) requestAnimationFrame(() => this.flush());
  }

  flush() {
    const pieces = this.waitingPieces.splice(0);
    if (!this.article?.isConnected) return;
    changeTurns(() => mergePieces(pieces).forEach((piece) => this.reply.show(piece)));
  }

  /** Read events until the end; throws the error of the turn. */
  async read(response) {
    for await (const event of readEvents(response)) {
      if (event.id) this.lastId = event.id;
      if (event.data === "[DONE]") this.isDone = true;
      for (const piece of decodeEvent(event)) {
        if (piece.error) throw Object.assign(new Error(piece.error.message), { code: piece.error.code, isFinal: true });
        this.receive(piece);
      }
    }
  }

  /** Read the events that are stored, then new ones; after a lost connection try again. */
  async follow() {
    for (let attempt = 0; ; attempt += 1) {
      const before = this.lastId;
      try {
        const headers = this.lastId ? { "Last-Event-ID": this.lastId } : {};
        const path = `${conversationPath(this.conversation)}/turns/${this.turn}/events`;
        await this.read(await request(path, { headers, signal: this.controller.signal }));
        return;
      } catch (failure) {
        const isGone = failure.isFinal || (failure.status >= 400 && failure.status < 500);
        if (isAbort(failure) || isGone) throw failure;
        if (this.lastId !== before) attempt = 0;
        if (attempt >= MAX_RECONNECTS) throw failure.status ? failure : new Error(texts.connection_lost);
        await pause(FIRST_DELAY * 2 ** attempt);
      }
    }
  }

  async stop() {
    this.isStopped = true;
    if (!this.turn) await this.findRunningTurn();
    if (this.turn) {
      await request(`${conversationPath(this.conversation)}/turns/${this.turn}/cancel`, { method: "POST" });
    }
    this.controller.abort();
  }

  /** Before the first event the response has not named the turn yet. */
  async findRunningTurn() {
    const { html } = await requestPart(`/c/${encodeURIComponent(this.conversation)}`, "main");
    const running = parseHtml(html).querySelector('.turn[data-state="running"]');
    this.turn = running?.dataset.turn ?? null;
  }

  end() {
    streams.delete(this);
    showState();
  }
}

function showState() {
  announce("cllm:streams");
}

/** Show the end of the conversation, if another part or variant is open. */
export async function openEnd() {
  const path = `/c/${encodeURIComponent(openConversation())}`;
  const isEnd = decodeURIComponent(location.pathname) === decodeURIComponent(path) && !location.search;
  if (!isEnd) await open(path);
}

/**
 * Send a request for a turn and show its reply. Returns {turn, failure}; `failure` is null after a
 * success or a stop.
 */
export async function runTurn(conversation, { body, headers, article, author }) {
  const stream = new TurnStream(conversation, { article, author });
  scrollToEnd();
  let failure = null;
  try {
    const response = await request("/v1/chat/completions", {
      method: "POST",
      body: { ...body, stream: true },
      headers: { ...headers, "X-Conversation-ID": conversation },
      signal: stream.controller.signal,
    });
    stream.turn = response.headers.get("X-Turn-ID");
    if (stream.article && stream.turn) stream.article.dataset.turn = stream.turn;
    await readOrResume(stream, response);
  } catch (error) {
    failure = stream.isStopped || isAbort(error) ? null : error;
    stream.turn ??= error.turn ?? null;
    if (stream.article && stream.turn) stream.article.dataset.turn = stream.turn;
  } finally {
    stream.end();
  }
  const isSaved = Boolean(stream.turn) && failure?.code !== "unreachable";
  if (isSaved || !failure) await showEnd(stream, failure);
  return { turn: stream.turn, failure, isSaved };
}

async function readOrResume(stream, response) {
  try {
    await stream.read(response);
    if (!stream.isDone) throw new TypeError("the stream ended early");
  } catch (error) {
    if (isAbort(error) || error.isFinal || !stream.turn) throw error;
    await pause(FIRST_DELAY);
    await stream.follow();
  }
}

/** Follow a turn that runs in another tab, client or process. */
async function followTurn(article) {
  const conversation = openConversation();
  const stream = new TurnStream(conversation, { turn: article.dataset.turn, article });
  let failure = null;
  try {
    await stream.follow();
  } catch (error) {
    // A turn without stored events: the feed reports its end.
    const isSilent = error.code === "events_not_kept";
    failure = isAbort(error) || isSilent ? null : error;
    if (isSilent) {
      stream.end();
      return;
    }
  } finally {
    stream.end();
  }
  await showEnd(stream, failure);
}

async function showEnd(stream, failure) {
  if (stream.conversation === openConversation()) {
    await refreshTurns().catch((error) => (failure ??= error));
    const article = findTurn(stream.turn) ?? stream.article;
    // The server's HTML of a failed turn has its failure.
    const isShown = article?.querySelector(":scope > .status:not(.running)");
    if (failure && article?.isConnected && !isShown) showTurnError(article, failure);
  }
  announce("cllm:changed", { id: stream.conversation });
}

/** Show an error at its turn, with a button to try again. */
export function showTurnError(article, failure, retry) {
  article.querySelector(".turn-error")?.remove();
  article.removeAttribute("aria-busy");
  const isRunning = article.dataset.state === "running";
  const box = make("div", "turn-error");
  box.setAttribute("role", "alert");
  const button = make("button", "retry", texts.try_again);
  button.type = "button";
  box.append(make("p", "", failure.message), button);
  if (retry) button.addEventListener("click", retry);
  else if (isRunning) button.addEventListener("click", () => (box.remove(), followTurn(article)));
  else button.dataset.action = "retry";
  changeTurns(() => {
    article.querySelector(".live .waiting")?.remove();
    article.append(box);
  });
}

// The turns of the open conversation

let refreshing = null;
let isStale = false;

/** Load the open conversation again and change only the turns that differ. */
function refreshTurns() {
  if (refreshing) isStale = true;
  refreshing ??= loadTurns().finally(() => {
    refreshing = null;
  });
  return refreshing;
}

async function loadTurns() {
  do {
    isStale = false;
    const conversation = openConversation();
    if (!conversation) return;
    const { html, title } = await requestPart(`/c/${encodeURIComponent(conversation)}`, "main");
    if (conversation !== openConversation()) return;
    if (title) document.title = `${title} – cllm`;
    changeTurns(() => placeTurns(parseHtml(html)));
    announce("cllm:turns");
    followRunning();
  } while (isStale);
}

/** Update title and figures; the other controls of the head may be in use. */
function showHead(loaded) {
  const [facts, title] = [".head > .facts", "#title"].map((name) => loaded.querySelector(name));
  if (facts) document.querySelector(".head > .facts")?.replaceWith(facts);
  const shown = document.getElementById("title");
  if (title && shown && !shown.childElementCount) shown.textContent = title.textContent;
}

function placeTurns(loaded) {
  const turns = document.getElementById("turns");
  showHead(loaded);
  // Older turns of a long conversation are shown: its end is not in the document.
  if (!turns || turns.querySelector(":scope > .later")) return;
  const fresh = [...loaded.querySelectorAll("#turns > .turn")];
  const known = new Set(fresh.map((one) => one.dataset.turn));
  const shown = [...turns.querySelectorAll(":scope > .turn")];
  const start = shown.findIndex((one) => known.has(one.dataset.turn));
  for (const old of shown.slice(Math.max(start, 0))) {
    const isPending = [...streams].some((one) => one.article === old && !one.turn);
    if (!known.has(old.dataset.turn) && !isPending && !old.matches(".unsent")) old.remove();
  }
  if (fresh.length) turns.querySelector(":scope > p")?.remove();
  let position = null;
  for (const article of fresh) {
    showLocalTimes(article);
    const old = findTurn(article.dataset.turn);
    const place = old ?? adoptPending(article);
    if (!place) {
      if (position) position.after(article);
      else insertFirst(turns, article);
      position = article;
    } else if (findStream(article.dataset.turn) || isSame(place, article)) position = place;
    else {
      place.replaceWith(article);
      position = article;
    }
  }
}

function insertFirst(turns, article) {
  const first = turns.querySelector(":scope > .turn");
  if (first) first.before(article);
  else turns.append(article);
}

/** Return the article of a turn that this tab has sent, if the server's article is of that turn. */
function adoptPending(article) {
  if (article.dataset.state !== "running") return null;
  const pending = [...streams].find((one) => !one.turn && one.article?.isConnected);
  if (!pending) return null;
  pending.turn = article.dataset.turn;
  pending.article.dataset.turn = pending.turn;
  return pending.article;
}

/** Whether two articles show the same: the messages of a turn that has ended never change. */
const isSame = (old, article) => describe(old) === describe(article);

function describe(article) {
  const messages = [...article.querySelectorAll(".message")].map((one) => one.dataset.message);
  const variants = article.querySelector(".variants")?.textContent.trim();
  return JSON.stringify([article.dataset.state, messages, variants]);
}

/** Follow each running turn in the document, or show its stream. */
function followRunning() {
  for (const article of document.querySelectorAll('#turns > .turn[data-state="running"][data-turn]')) {
    const stream = findStream(article.dataset.turn);
    if (!stream) followTurn(article);
    else if (stream.article !== article && !stream.article?.isConnected) stream.attach(article);
  }
  for (const stream of streams) {
    const isHere = stream.conversation === openConversation() && !stream.turn;
    if (isHere && stream.article && !stream.article.isConnected) {
      document.getElementById("turns")?.append(stream.article);
    }
  }
}

function handleFeed({ detail }) {
  if (detail.id !== openConversation() || !document.getElementById("turns")) return;
  // The stream of this tab shows the turn, and loads it at its end.
  if (findOpenStream() && detail.state === "running") return;
  refreshTurns().catch(() => {});
}

export function start() {
  document.addEventListener("scroll", (event) => {
    if (event.target !== findMain()) return;
    isFollowing = isAtBottom();
    showJump();
  }, { capture: true, passive: true });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#composer .jump")) scrollToEnd();
  });
  document.addEventListener("cllm:main", () => {
    isFollowing = isAtBottom();
    followRunning();
    showJump();
  });
  document.addEventListener("cllm:feed", handleFeed);
  followRunning();
}
