// Keys, whether pages are light or dark, and views. What was chosen stays in this browser.
"use strict";
(() => {
  // A browser may be told to keep nothing, and then it throws.
  const recall = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  };
  const keep = (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // What was chosen holds until the page is left.
    }
  };

  const THEME = "celeriac-theme";
  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable], .q-dialog") !== null;

  const applyTheme = (chosen) => {
    if (window.Quasar && chosen !== null) window.Quasar.Dark.set(chosen === "dark");
  };
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme]")) return;
    const chosen = document.body.classList.contains("body--dark") ? "light" : "dark";
    keep(THEME, chosen);
    applyTheme(chosen);
  });
  window.addEventListener("load", () => applyTheme(recall(THEME)));

  // 1 to 5 go to the pages, / to what is searched for. Who speaks to the browser, or hits keys by chance,
  // turns them off.
  const KEYS = "celeriac-keys";
  const marks = document.body.classList;
  marks.toggle("without-keys", recall(KEYS) === "off");
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-keys]")) return;
    keep(KEYS, marks.toggle("without-keys") ? "off" : "on");
  });
  document.addEventListener("keydown", (event) => {
    if (marks.contains("without-keys")) return;
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key >= "1" && event.key <= "9") {
      document.querySelectorAll(".page-link")[Number(event.key) - 1]?.click();
    } else if (event.key === "/") {
      const search = document.querySelector("[data-search] input, input[data-search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });

  // Quasar: between a list and its choices is an element that can be focused, which a list may not have;
  // who does not see is not told then how many choices there are.
  new MutationObserver(() => {
    for (const between of document.querySelectorAll("[role=listbox] > [tabindex]:not([role])")) {
      between.removeAttribute("tabindex");
    }
  }).observe(document.body, { childList: true, subtree: true });

  // Views: filters of tasks that somebody gave a name to. The page checks what it gets.
  const VIEWS = "celeriac-views";
  const views = () => {
    try {
      const kept = JSON.parse(recall(VIEWS) ?? "[]");
      return Array.isArray(kept) ? kept.slice(0, 50) : [];
    } catch {
      return [];
    }
  };
  const others = (name) => views().filter((view) => view?.name !== name);
  const keepViews = (kept) => {
    keep(VIEWS, JSON.stringify(kept));
    return views();
  };
  window.celeriac = {
    views,
    saveView: (name, query) => keepViews([{ name, query }, ...others(name)]),
    deleteView: (name) => keepViews(others(name)),
  };
})();
