// Charts that can be zoomed into: the first click on "Zoom" loads Plotly from this host and puts the same figure, of the
// same size, in the picture's place. Without this script there is no button, and the picture is all there is.
"use strict";
(() => {
  const root = document.documentElement;
  const config = {
    displaylogo: false,
    showSendToCloud: false,
    doubleClick: "reset",
    // No picture to download: Plotly makes one from a data: address, which our policy forbids.
    modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };

  let loading;
  const plotly = (address) => loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(window.Plotly);
    script.onerror = () => { loading = undefined; script.remove(); failed(new Error("not loaded")); };
    document.head.append(script);
  });

  // The figure in the size of the picture, with the colours that the style sheet has now.
  const figureOf = (chart) => {
    const style = getComputedStyle(root);
    const text = chart.querySelector("script").textContent;
    const figure = JSON.parse(text, (_, value) => {
      const name = typeof value === "string" && /^var\((--[a-z0-9]+)\)$/.exec(value)?.[1];
      return name ? style.getPropertyValue(name).trim() : value;
    });
    const { layout } = figure;
    const picture = chart.querySelector(".picture");
    const share = Math.max(picture.clientWidth, parseFloat(getComputedStyle(picture.querySelector("svg")).minWidth)) / layout.width;
    layout.width *= share;
    layout.height *= share;
    for (const font of [layout.font, layout.xaxis.title.font, layout.yaxis.title.font]) font.size *= share;
    layout.font.family = getComputedStyle(document.body).fontFamily;
    for (const side in layout.margin) layout.margin[side] *= share;
    return figure;
  };

  const draw = (chart) => {
    const { data, layout } = figureOf(chart);
    return window.Plotly.react(chart.querySelector(".zoomed"), data, layout, config);
  };

  const open = async (chart, button) => {
    button.disabled = true;
    try {
      await plotly(button.dataset.plotly);
      const zoomed = document.createElement("div");
      zoomed.className = "zoomed";
      const picture = chart.querySelector(".picture");
      picture.append(zoomed);
      picture.querySelector("svg").toggleAttribute("hidden", true);
      await draw(chart);
      zoomed.on("plotly_click", ({ points }) => { if (points[0].customdata) location.href = points[0].customdata; });
      button.firstElementChild.textContent = "Close zoom";
    } catch {
      button.firstElementChild.textContent = "Zoom failed: try again";
    } finally {
      button.disabled = false;
      button.focus();
    }
  };

  const close = (chart, button) => {
    const zoomed = chart.querySelector(".zoomed");
    window.Plotly.purge(zoomed);
    zoomed.remove();
    chart.querySelector("svg").toggleAttribute("hidden", false);
    button.firstElementChild.textContent = "Zoom";
  };

  const again = () => document.querySelectorAll(".chart:has(.zoomed)").forEach(draw);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(again, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.zoom");
    const chart = button?.closest(".chart");
    if (chart) (chart.querySelector(".zoomed") ? close : open)(chart, button);
  });
  root.classList.add("scripted");
})();
