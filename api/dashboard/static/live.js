// Keeps the page of a running search up to date: every event asks for the page again and takes over what it says.
// Without this script the page reloads itself.
"use strict";
(() => {
  const box = document.getElementById("live");
  if (!box) return;

  const steps = ["running", "candidates", "relaxed", "incumbents", "listed"];
  const ends = ["done", "failed", "cancelled"];
  const again = () => location.reload();
  let asking = false;

  const show = async () => {
    if (asking) return;
    asking = true;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const says = page.querySelector("#live .says");
      // Only what is read is replaced, so that a button keeps the focus it has.
      if (says) {
        const shown = box.querySelectorAll("h2, p");
        const found = says.querySelectorAll("h2, p");
        if (shown.length === found.length) shown.forEach((part, index) => { part.textContent = found[index].textContent; });
        else again();
      } else if (response.ok) again();
    } catch {
      // The next event, or the end of the stream, tries again.
    } finally {
      asking = false;
    }
  };

  const events = new EventSource(box.dataset.events);
  steps.forEach((kind) => events.addEventListener(kind, show));
  ends.forEach((kind) => events.addEventListener(kind, () => { events.close(); again(); }));
  events.addEventListener("error", () => { if (events.readyState === EventSource.CLOSED) setTimeout(again, 3000); });
})();
