// Keeps the parts of a page that change up to date while something runs: every event, or every so many milliseconds where
// the page says `data-every`, asks for the page again and takes over its parts. Without this script the page reloads itself.
"use strict";
(() => {
  const box = document.querySelector("[data-events], [data-every]");
  if (!box) return;

  const pauseMs = 500;
  let asking = false;
  let missed = false;
  let timer;

  const again = () => location.reload();

  // What an element is known by in the page before and after.
  const named = (element) => element.getAttribute("href") || element.getAttribute("value") || element.id || element.textContent;

  const takeOver = (page) => {
    const parts = [...document.querySelectorAll("[data-part]")];
    const found = parts.map((part) => page.getElementById(part.id));
    if (found.some((part) => !part) || parts.length !== page.querySelectorAll("[data-part]").length) return again();
    parts.forEach((part, index) => {
      // Who has zoomed into a chart keeps that.
      if (part.querySelector(".zoomed") || part.innerHTML === found[index].innerHTML) return;
      // What was scrolled to the side stays there, what was ticked is, and who stands on a link or a box keeps it.
      const places = [...part.querySelectorAll(".picture, .scroll")].map((inner) => inner.scrollLeft);
      const ticked = new Set([...part.querySelectorAll("input:checked")].map(named));
      const stood = part.contains(document.activeElement) ? named(document.activeElement) : null;
      part.innerHTML = found[index].innerHTML;
      part.querySelectorAll(".picture, .scroll").forEach((inner, place) => { inner.scrollLeft = places[place] || 0; });
      part.querySelectorAll("input[type=checkbox]").forEach((input) => { input.checked = ticked.has(named(input)); });
      if (stood) [...part.querySelectorAll("a, input, button")].find((other) => named(other) === stood)?.focus();
    });
  };

  const show = async () => {
    if (asking) { missed = true; return; }
    asking = true;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (response.ok) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        takeOver(page);
        if (!page.querySelector("[data-events], [data-every]")) clearInterval(timer);
      }
    } catch {
      // The next event, or the end of the stream, tries again.
    }
    setTimeout(() => { asking = false; if (missed) { missed = false; show(); } }, pauseMs);
  };

  if (box.dataset.every) { timer = setInterval(show, Number(box.dataset.every)); return; }

  const events = new EventSource(box.dataset.events);
  box.dataset.steps.split(" ").forEach((kind) => events.addEventListener(kind, show));
  box.dataset.ends.split(" ").forEach((kind) => events.addEventListener(kind, () => { events.close(); again(); }));
  events.addEventListener("error", () => { if (events.readyState === EventSource.CLOSED) setTimeout(again, 3000); });
})();
