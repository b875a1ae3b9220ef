// Light, dark or the system's colours. Runs before the first paint.

import { texts } from "./texts.js";

const NAME = "cllm-theme";
const THEMES = ["system", "light", "dark"];

const readTheme = () => {
  const saved = localStorage.getItem(NAME);
  return THEMES.includes(saved) ? saved : "system";
};

function applyTheme() {
  const theme = readTheme();
  document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll(".change-theme")) {
    button.hidden = false;
    button.title = button.ariaLabel = `${texts.theme}: ${texts[`theme_${theme}`]}`;
  }
}

function changeTheme() {
  const next = THEMES[(THEMES.indexOf(readTheme()) + 1) % THEMES.length];
  localStorage.setItem(NAME, next);
  applyTheme();
}

applyTheme();
document.documentElement.dataset.scripts = "on";

export function start() {
  applyTheme();
  document.addEventListener("click", (event) => {
    if (event.target.closest?.(".change-theme")) changeTheme();
  });
  document.addEventListener("cllm:document", applyTheme);
  // The list column has the button.
  document.addEventListener("cllm:rows", applyTheme);
  window.addEventListener("storage", (event) => event.key === NAME && applyTheme());
}
