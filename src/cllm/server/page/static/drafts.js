// Unsent texts, one per conversation, in localStorage.
//
// With an API key they are in sessionStorage, as the key is: other keys of this browser do not see them.

import { readKey } from "./api.js";

const PREFIX = "cllm-draft:";
const MAX_DRAFTS = 50;
const MAX_LENGTH = 1_000_000;

let isForgotten = false;

const findStorage = () => (readKey() ? sessionStorage : localStorage);
const keyOf = (conversation) => PREFIX + (conversation || "new");

/** Return the draft {text, system}, or null. */
export function readDraft(conversation) {
  try {
    return JSON.parse(findStorage().getItem(keyOf(conversation)));
  } catch {
    return null;
  }
}

/** Save a draft; one without text is deleted. */
export function saveDraft(conversation, { text = "", system = "" }) {
  if (isForgotten) return;
  try {
    const storage = findStorage();
    if (!text && !system) storage.removeItem(keyOf(conversation));
    else if (text.length + system.length <= MAX_LENGTH) {
      storage.setItem(keyOf(conversation), JSON.stringify({ text, system, time: Date.now() }));
      deleteOldest(storage);
    }
  } catch {
    // The storage is full or disabled: the text stays in the field.
  }
}

export const deleteDraft = (conversation) => saveDraft(conversation, {});

/** Delete the drafts of this tab, and save none until the document is loaded again. */
export function forgetDrafts() {
  isForgotten = true;
  for (const key of listKeys(sessionStorage)) sessionStorage.removeItem(key);
}

const listKeys = (storage) => Object.keys(storage).filter((key) => key.startsWith(PREFIX));

function deleteOldest(storage) {
  const keys = listKeys(storage);
  if (keys.length <= MAX_DRAFTS) return;
  const timeOf = (key) => JSON.parse(storage.getItem(key))?.time ?? 0;
  keys.sort((one, other) => timeOf(other) - timeOf(one));
  for (const key of keys.slice(MAX_DRAFTS)) storage.removeItem(key);
}
