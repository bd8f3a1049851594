// Keeps the parts of a page that change up to date while something runs: every event asks for the page again and takes
// over its parts. Without this script the page reloads itself.
"use strict";
(() => {
  const box = document.querySelector("[data-events]");
  if (!box) return;

  const pauseMs = 500;
  let asking = false;
  let missed = false;

  const again = () => location.reload();

  const takeOver = (page) => {
    const parts = [...document.querySelectorAll("[data-part]")];
    const found = parts.map((part) => page.getElementById(part.id));
    if (found.some((part) => !part) || parts.length !== page.querySelectorAll("[data-part]").length) return again();
    parts.forEach((part, index) => {
      // Who has zoomed into a chart keeps that.
      if (part.querySelector(".zoomed") || part.innerHTML === found[index].innerHTML) return;
      // What was scrolled to the side stays there, and who stands on a link keeps it.
      const places = [...part.querySelectorAll(".picture")].map((inner) => inner.scrollLeft);
      const stood = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.innerHTML = found[index].innerHTML;
      part.querySelectorAll(".picture").forEach((inner, place) => { inner.scrollLeft = places[place] || 0; });
      if (stood) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === stood)?.focus();
    });
  };

  const show = async () => {
    if (asking) { missed = true; return; }
    asking = true;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (response.ok) takeOver(new DOMParser().parseFromString(await response.text(), "text/html"));
    } catch {
      // The next event, or the end of the stream, tries again.
    }
    setTimeout(() => { asking = false; if (missed) { missed = false; show(); } }, pauseMs);
  };

  const events = new EventSource(box.dataset.events);
  box.dataset.steps.split(" ").forEach((kind) => events.addEventListener(kind, show));
  box.dataset.ends.split(" ").forEach((kind) => events.addEventListener(kind, () => { events.close(); again(); }));
  events.addEventListener("error", () => { if (events.readyState === EventSource.CLOSED) setTimeout(again, 3000); });
})();
