// The texts of the page, from the document (see texts.py).

export const texts = JSON.parse(document.getElementById("texts")?.textContent ?? "{}");

/** Return a text with its {names} replaced by values. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
