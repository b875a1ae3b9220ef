// Unsent texts, one per conversation, in localStorage.

const PREFIX = "cllm-draft:";
const MAX_DRAFTS = 50;
const MAX_LENGTH = 1_000_000;

const keyOf = (conversation) => PREFIX + (conversation || "new");

/** Return the draft {text, system}, or null. */
export function readDraft(conversation) {
  try {
    return JSON.parse(localStorage.getItem(keyOf(conversation)));
  } catch {
    return null;
  }
}

/** Save a draft; one without text is deleted. */
export function saveDraft(conversation, { text = "", system = "" }) {
  try {
    if (!text && !system) localStorage.removeItem(keyOf(conversation));
    else if (text.length + system.length <= MAX_LENGTH) {
      localStorage.setItem(keyOf(conversation), JSON.stringify({ text, system, time: Date.now() }));
      deleteOldest();
    }
  } catch {
    // The storage is full or disabled: the text stays in the field.
  }
}

export const deleteDraft = (conversation) => saveDraft(conversation, {});

function deleteOldest() {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  if (keys.length <= MAX_DRAFTS) return;
  const timeOf = (key) => JSON.parse(localStorage.getItem(key))?.time ?? 0;
  keys.sort((one, other) => timeOf(other) - timeOf(one));
  for (const key of keys.slice(MAX_DRAFTS)) localStorage.removeItem(key);
}
