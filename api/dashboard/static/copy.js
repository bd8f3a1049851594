// Buttons that copy a text of the page. Without a script they stay hidden. They are listened to from the document, so
// that they work in whatever htmx puts there, a page that it goes back to among it.
"use strict";
(() => {
  // Over plain HTTP browsers have no clipboard but the selection's.
  const copy = async (element) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(element.textContent);
    const selection = getSelection();
    selection.selectAllChildren(element);
    const done = document.execCommand("copy");
    selection.removeAllRanges();
    if (!done) throw new Error("the browser refused");
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    try {
      await copy(document.getElementById(button.dataset.copies));
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
})();
