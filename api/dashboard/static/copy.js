// Buttons that copy a text of the page. Without this script they stay hidden.
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

  document.querySelectorAll("button.copy").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await copy(document.getElementById(button.dataset.copies));
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not copied";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  });
})();
