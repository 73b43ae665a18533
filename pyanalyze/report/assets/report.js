"use strict";
// Draws every chart from the JSON beside it. No network, no eval: expressions run in vega's interpreter, which the
// page's policy enforces. Until (and unless) a chart is drawn, its static picture stays.
(function () {
  // SVG with currentColor follows the page: light, dark and print need no redrawing.
  var ink = "currentColor";
  var config = {
    background: "transparent",
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
    aria: false,
    axis: { labelColor: ink, titleColor: ink, gridColor: ink, domainColor: ink, tickColor: ink, gridOpacity: 0.1,
            domainOpacity: 0.35, tickOpacity: 0.35, labelFontSize: 11, titleFontSize: 12, titleFontWeight: 400 },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    title: { color: ink, fontWeight: 400 },
    text: { fill: ink },
    view: { stroke: null }
  };
  function fit(spec, width) {
    if (spec.vconcat) spec.vconcat.forEach(function (view) { fit(view, width); });
    else spec.width = width;
  }
  // A phone has no room for long track labels: they are cut to 90 pixels, the tooltip has them whole.
  function narrow(part) {
    var saved = 0;
    if (!part || typeof part !== "object") return 0;
    if (part.minExtent > 90) {
      saved = part.minExtent - 90;
      part.minExtent = part.maxExtent = 90;
      part.labelLimit = 84;
    }
    Object.keys(part).forEach(function (key) {
      if (key !== "values" && key !== "datasets") saved = Math.max(saved, narrow(part[key]));
    });
    return saved;
  }
  // Names of tenants are long: legends break into as many columns as there is room for.
  function legends(part, columns) {
    if (!part || typeof part !== "object") return;
    if (part.legend && part.type !== "quantitative") part.legend.columns = columns;
    Object.keys(part).forEach(function (key) {
      if (key !== "values" && key !== "datasets") legends(part[key], columns);
    });
  }
  // What dragging and scrolling do, by keyboard: every step keeps inside of what was captured.
  function steer(box, view) {
    var zoom = Object.keys(view.getState({
      data: function () { return false; },
      signals: function (name) { return /^zoom_[a-z0-9]$/.test(name); }
    }).signals || {})[0];
    if (!zoom) return;
    var whole = view.scale("x").domain().slice();
    box.tabIndex = 0;
    box.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight + - 0");
    box.onkeydown = function (event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      var now = view.scale("x").domain(), span = now[1] - now[0], most = whole[1] - whole[0];
      var middle = (now[0] + now[1]) / 2;
      if (event.key === "ArrowLeft") middle -= span / 4;
      else if (event.key === "ArrowRight") middle += span / 4;
      else if (event.key === "+" || event.key === "=") span /= 2;
      else if (event.key === "-") span *= 2;
      else if (event.key === "0") span = most;
      else return;
      event.preventDefault();
      span = Math.min(span, most);
      var low = Math.min(Math.max(middle - span / 2, whole[0]), whole[1] - span);
      view.signal(zoom, [low, low + span]).runAsync();
    };
  }
  function draw(box) {
    // Folded away: drawn when it is opened.
    if (!box.clientWidth) return Promise.resolve();
    var spec = JSON.parse(document.getElementById("spec-" + box.dataset.chart).textContent);
    var available = box.clientWidth;
    box.dataset.width = String(available);
    var gutter = (spec.usermeta || {}).gutter || 80;
    if (available < 520) gutter -= narrow(spec);
    legends(spec, Math.max(Math.floor(available / 140), 1));
    fit(spec, Math.max(available - gutter, 120));
    var target = document.createElement("div");
    return window.vegaEmbed(target, spec, {
      ast: true, renderer: "svg", actions: false, config: config, mode: "vega-lite", defaultStyle: false,
      loader: { load: function () { return Promise.reject(new Error("this page loads nothing")); } }
    }).then(function (result) {
      if (box.view) box.view.finalize();
      box.view = result.view;
      box.replaceChildren(target);
      steer(box, result.view);
      box.dataset.drawn = "yes";
    }).catch(function (error) {
      box.dataset.drawn = "no";
      console.error("chart " + box.dataset.chart + ": " + error);
    });
  }
  var boxes = Array.prototype.slice.call(document.querySelectorAll("[data-chart]"));
  boxes.reduce(function (before, box) { return before.then(function () { return draw(box); }); }, Promise.resolve());
  boxes.forEach(function (box) {
    var fold = box.closest("details");
    if (fold) fold.addEventListener("toggle", function () {
      if (fold.open && !box.dataset.drawn) draw(box);
    });
  });
  // Nothing can be unfolded on paper.
  var unfolded = [];
  window.addEventListener("beforeprint", function () {
    unfolded = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    unfolded.forEach(function (fold) { fold.open = true; });
  });
  window.addEventListener("afterprint", function () {
    unfolded.forEach(function (fold) { fold.open = false; });
  });
  var timer = 0;
  window.addEventListener("resize", function () {
    clearTimeout(timer);
    timer = setTimeout(function () {
      boxes.forEach(function (box) {
        if (box.clientWidth && Math.abs(box.clientWidth - Number(box.dataset.width)) > 20) draw(box);
      });
    }, 200);
  });
})();
