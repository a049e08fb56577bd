// Takes a page whose login has ended to the login page. It is inlined: a browser that is not logged in gets no file.
"use strict";
(() => {
  // A logout reloads nothing: the browser goes to the login page by itself.
  let isLoggingOut = false;
  document.addEventListener("submit", () => (isLoggingOut = true));

  // The server redirects a browser that is not logged in to the login page, and from there back to this page.
  const reload = () => {
    if (!isLoggingOut) location.reload();
  };

  let isChecking = false;
  const checkLogin = async () => {
    if (isChecking) return;
    isChecking = true;
    try {
      const answer = await fetch("/static/celeriac.js", { cache: "no-store", redirect: "manual" });
      if (answer.type === "opaqueredirect") reload();
    } catch {
      // The server is down. Each failed reconnect checks again.
    } finally {
      isChecking = false;
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const socket = window.socket;
    // NiceGUI has not started: its scripts may have been refused.
    if (!socket) return checkLogin();
    socket.on("disconnect", checkLogin);
    // A socket that the server rejects is inactive: the page belongs to another login, and none will be accepted.
    socket.on("connect_error", () => (socket.active ? checkLogin() : reload()));
  });
})();
