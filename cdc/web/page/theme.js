// The switch between the system's theme, light and dark.
const NAMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const ORDER = ["auto", "light", "dark"];
const STORED = "tailrace.theme";

export function startTheme(button) {
  const show = () => {
    button.textContent = NAMES[current()];
  };
  button.addEventListener("click", () => {
    choose(ORDER[(ORDER.indexOf(current()) + 1) % ORDER.length]);
    show();
  });
  show();
}

function current() {
  return document.documentElement.dataset.theme ?? "auto";
}

function choose(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    if (name === "auto") localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, name);
  } catch {
    // Storage is disabled: the choice lasts until the page is closed.
  }
}
