// Light, dark, or as the system. The browser keeps the choice.

import { redrawAll } from "./charts.js";

const THEMES = ["system", "light", "dark"];

/** Apply the theme, and let the button change it. */
export function startTheme() {
  const button = document.getElementById("theme");

  function set(theme) {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // The browser keeps no data.
    }
    redrawAll();
  }

  button.addEventListener("click", () => set(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  set(read());
}

function read() {
  try {
    const theme = localStorage.getItem("theme");
    return THEMES.includes(theme) ? theme : "system";
  } catch {
    return "system";
  }
}
