// Applies the chosen theme before the first paint. A classic script, because modules run after the first paint.
"use strict";
try {
  const chosen = localStorage.getItem("tailrace.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is disabled: the system's theme applies.
}
