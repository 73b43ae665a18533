"use strict";
// Draws every chart from the JSON beside it. No network, no eval: expressions run in vega's interpreter, which the
// page's policy enforces. Until (and unless) a chart is drawn, its static picture stays.
(function () {
  function make(kind, values) { return Object.assign(document.createElement(kind), values); }
  // SVG with currentColor follows the page: light, dark and print need no redrawing.
  var ink = "currentColor";
  var config = {
    background: "transparent",
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
    aria: false,
    axis: { labelColor: ink, titleColor: ink, gridColor: ink, domainColor: ink, tickColor: ink, gridOpacity: 0.1,
            domainOpacity: 0.35, tickOpacity: 0.35, labelFontSize: 11, labelSeparation: 6, titleFontSize: 12, titleFontWeight: 400 },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12 },
    title: { color: ink, fontWeight: 400 },
    text: { fill: ink },
    view: { stroke: null }
  };
  function fit(spec, width) {
    if (spec.vconcat) spec.vconcat.forEach(function (view) { fit(view, width); });
    else spec.width = width;
  }
  // A phone has no room for long track labels: they are cut to 100 pixels, the tooltip has them whole. Names of tenants
  // and kernels differ at their ends, so the middle goes.
  function narrow(part) {
    var saved = 0;
    if (!part || typeof part !== "object") return 0;
    if (part.minExtent > 100) {
      saved = part.minExtent - 100;
      part.minExtent = part.maxExtent = 100;
      part.labelLimit = 94;
      // A label of two lines has an expression that splits it.
      var cut = function (text) {
        return "(length(" + text + ") > 15 ? slice(" + text + ", 0, 4) + '\u2026' + slice(" + text + ", -8) : " + text + ")";
      };
      var lines = part.labelExpr;
      part.labelExpr = lines ? "[" + cut(lines + "[0]") + "," + cut(lines + "[1]") + "]" : cut("datum.label");
      if (part.titleLimit) part.titleLimit = 52;
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
  function length(ms) {
    var units = [[1e3, "s"], [1, "ms"], [1e-3, "us"]], i;
    for (i = 0; i < units.length; i += 1) {
      if (ms >= units[i][0]) return Number((ms / units[i][0]).toPrecision(4)) + " " + units[i][1];
    }
    return Math.round(ms * 1e6) + " ns";
  }
  // Digits in groups of three, as everywhere on the page.
  function grouped(count) { return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f"); }
  // Of durations with how often each occurs, shortest first.
  function quantile(sorted, count, part) {
    var rank = Math.ceil(part * (count - 1)), below = 0, i = 0;
    while (below + sorted[i][1] <= rank) { below += sorted[i][1]; i += 1; }
    return sorted[i][0];
  }
  // Kernels by tenant and name between two times, in ms: how many, and how long.
  function statistics(kernels, low, high) {
    var groups = kernels.kinds.map(function (kind) {
      return { tenant: kind[0], name: kind[1], count: 0, sum: 0, attributed: 0, each: [] };
    });
    if (kernels.step) kernels.rows.forEach(function (row) {
      var start = row[0] * kernels.step / 1e6, group = groups[row[1]], i;
      if (start + kernels.step / 1e6 <= low || start >= high) return;
      group.count += row[2];
      group.sum += row[3] / 1e6;
      group.attributed += row[4] / 1e6;
      for (i = 5; i < row.length; i += 2) group.each.push([Math.pow(2, (row[i] + 0.5) / kernels.octave) / 1e6, row[i + 1]]);
    });
    else kernels.rows.forEach(function (row) {
      var start = row[0] / 1e6, group = groups[row[3]];
      if (start + row[1] / 1e6 < low || start > high) return;
      group.count += 1;
      group.sum += row[1] / 1e6;
      group.attributed += row[2] / 1e6;
      group.each.push([row[1] / 1e6, 1]);
    });
    return groups.filter(function (group) { return group.count; })
      .sort(function (a, b) { return b.attributed - a.attributed; });
  }
  // What is shown of the timeline, or selected with Shift, in numbers.
  function measure(box, view, spec) {
    var kernels = (spec.usermeta || {}).kernels, state = box.measured, brush;
    if (!kernels) return;
    if (!state) {
      state = box.measured = { chosen: null, fold: make("details", { className: "stats" }), line: make("summary", {}),
                               table: make("div", { className: "wide" }) };
      state.fold.append(state.line, state.table);
      state.line.setAttribute("aria-live", "polite");
      box.after(state.fold);
    }
    brush = make("div", { className: "brush", hidden: true });
    box.append(brush);
    function area() { return box.querySelector("svg g.role-scope path.background").getBoundingClientRect(); }
    function show() {
      var shown = view.scale("x").domain(), range = state.chosen || shown, edge = area(), around = box.getBoundingClientRect();
      var groups = statistics(kernels, range[0], range[1]), count = 0;
      groups.forEach(function (group) { count += group.count; });
      state.line.textContent = (state.chosen ? "Selected: " : "Shown: ") + length(range[1] - range[0]) + " from " +
        length(range[0]) + ", " + grouped(count) + (count === 1 ? " kernel" : " kernels") + " by tenant and name (observed" +
        (kernels.step ? "; ends rounded to " + length(kernels.step / 1e6) + ", p50 and p99 to 3 %)" : ")") +
        (state.chosen ? "; Esc clears" : "");
      state.table.replaceChildren(table(groups));
      brush.hidden = !state.chosen;
      if (state.chosen) {
        var scale = edge.width / (shown[1] - shown[0]);
        brush.style.left = edge.left - around.left + Math.max(range[0] - shown[0], 0) * scale + "px";
        brush.style.width = Math.max((Math.min(range[1], shown[1]) - Math.max(range[0], shown[0])) * scale, 1) + "px";
        brush.style.height = around.height + "px";
      }
    }
    function table(groups) {
      var made = make("table", { className: "fit cards" }), head = made.createTHead().insertRow(), body = made.createTBody();
      var titles = ["Tenant", "Kernel", "Count", "Durations", "Attributed", "p50", "p99"];
      titles.forEach(function (title, n) {
        head.append(make("th", { textContent: title, scope: "col", className: n > 1 ? "num" : "" }));
      });
      groups.slice(0, 12).forEach(function (group) {
        var row = body.insertRow(), name = make("button", { className: "name", type: "button", textContent: group.name });
        var sorted = group.each.sort(function (a, b) { return a[0] - b[0]; });
        name.onclick = function () { find(group.name); };
        row.insertCell().textContent = group.tenant;
        row.insertCell().append(name);
        [grouped(group.count), length(group.sum), length(group.attributed), length(quantile(sorted, group.count, 0.5)),
         group.count < 20 ? "\u2013" : length(quantile(sorted, group.count, 0.99))].forEach(function (text) {
          var cell = row.insertCell();
          cell.className = "num";
          cell.textContent = text;
        });
        titles.forEach(function (title, n) { row.cells[n].dataset.label = title; });
      });
      return made;
    }
    function at(event) {
      var edge = area(), shown = view.scale("x").domain();
      var part = Math.min(Math.max((event.clientX - edge.left) / edge.width, 0), 1);
      return shown[0] + part * (shown[1] - shown[0]);
    }
    box.onpointerdown = function (event) {
      if (!event.shiftKey) return;
      event.preventDefault();
      var first = at(event);
      function move(next) {
        var last = at(next);
        state.chosen = [Math.min(first, last), Math.max(first, last)];
        show();
      }
      function up(next) {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", up);
        if (at(next) === first) state.chosen = null;
        else state.fold.open = true;
        show();
      }
      addEventListener("pointermove", move);
      addEventListener("pointerup", up);
    };
    box.addEventListener("keyup", function (event) {
      if (event.key !== "Escape") return;
      state.chosen = null;
      show();
    });
    var later = 0;
    view.addSignalListener("zoom", function () { clearTimeout(later); later = setTimeout(show, 120); });
    show();
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
    // The box around it says in words what it shows.
    target.setAttribute("aria-hidden", "true");
    return window.vegaEmbed(target, spec, {
      ast: true, renderer: "svg", actions: false, config: config, mode: "vega-lite", defaultStyle: false,
      loader: { load: function () { return Promise.reject(new Error("this page loads nothing")); } }
    }).then(function (result) {
      if (box.view) box.view.finalize();
      box.view = result.view;
      box.replaceChildren(target);
      steer(box, result.view);
      measure(box, result.view, JSON.parse(document.getElementById("spec-" + box.dataset.chart).textContent));
      box.dataset.drawn = "yes";
    }).catch(function (error) {
      box.dataset.drawn = "no";
      console.error("chart " + box.dataset.chart + ": " + error);
    });
  }
  // --- Search, sorting, copying, links into folds -------------------------------------------------------------------
  var all = Array.prototype.slice.call(document.querySelectorAll("main table")), said, field;
  function rowsOf(made) { return Array.prototype.slice.call(made.tBodies[0].rows); }
  function find(text) {
    var words = text.trim().toLowerCase(), hits = 0, tables = 0;
    if (field.value !== text) field.value = text;
    all.forEach(function (made) {
      var here = 0;
      rowsOf(made).forEach(function (row) {
        var hit = !words || row.textContent.toLowerCase().indexOf(words) >= 0;
        row.hidden = !hit;
        if (hit) here += 1;
      });
      hits += here;
      if (here) tables += 1;
      made.classList.toggle("nothing", Boolean(words) && !here);
    });
    said.textContent = words ? hits + (hits === 1 ? " row in " : " rows in ") + tables + (tables === 1 ? " table" : " tables") : "";
  }
  // The number that a cell begins with, in the base of its unit; text where there is none.
  var scales = { ns: 1, us: 1e3, ms: 1e6, s: 1e9, h: 3.6e12, days: 8.64e13, B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824,
                 TiB: 1099511627776 };
  function key(text) {
    var plain = text.replace(/[\u202f,](?=\d)/g, "").replace("\u2212", "-").replace(/^(?:at (?:most|least)|<) /, "");
    var found = /^([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)?/.exec(plain);
    return found ? Number(found[1]) * (scales[found[2]] || 1) : null;
  }
  function sort(made, column, head) {
    var up = head.getAttribute("aria-sort") === "descending", body = made.tBodies[0];
    Array.prototype.forEach.call(head.parentNode.cells, function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    rowsOf(made).map(function (row, place) {
      var text = row.cells[column].textContent.trim();
      return { row: row, place: place, number: key(text), text: text.toLowerCase() };
    }).sort(function (a, b) {
      // What is not known stays below, whichever way.
      if ((a.number === null) !== (b.number === null) && head.classList.contains("num")) return a.number === null ? 1 : -1;
      var order = a.number !== null && b.number !== null ? a.number - b.number : a.text < b.text ? -1 : a.text > b.text ? 1 : 0;
      return (up ? order : -order) || a.place - b.place;
    }).forEach(function (item) { body.append(item.row); });
  }
  function tools() {
    var nav = document.querySelector("nav"), place = make("div", { className: "tools" });
    said = make("output", {});
    field = make("input", { type: "search", placeholder: "Search tables ( / )" });
    field.setAttribute("aria-label", "Search all tables");
    field.oninput = function () { find(field.value); };
    field.onkeydown = function (event) {
      if (event.key === "Escape") { find(""); field.blur(); }
      if (event.key !== "Enter") return;
      var first = all.filter(function (made) { return !made.classList.contains("nothing"); })[0];
      if (first) { unfold(first); first.scrollIntoView({ block: "center" }); }
    };
    place.append(field, said);
    nav.prepend(place);
    document.addEventListener("keydown", function (event) {
      if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      field.focus();
    });
    all.forEach(function (made) {
      if (!made.tHead || rowsOf(made).length < 2) return;
      Array.prototype.forEach.call(made.tHead.rows[0].cells, function (head, column) {
        if (!head.textContent.trim()) return;
        var button = make("button", { type: "button", className: "sort", title: "Sort" });
        button.append.apply(button, Array.prototype.slice.call(head.childNodes));
        button.onclick = function () { sort(made, column, head); };
        head.append(button);
      });
    });
    document.querySelectorAll("main pre").forEach(function (pre) {
      var button = make("button", { type: "button", className: "copy", textContent: "Copy" });
      var around = make("div", { className: "copied" });
      pre.replaceWith(around);
      around.append(pre, button);
      button.onclick = function () { copy(pre.textContent, button, pre); };
    });
  }
  function copy(text, button, pre) {
    function done(word) {
      button.textContent = word;
      setTimeout(function () { button.textContent = "Copy"; }, 1500);
    }
    function by_hand() {
      // Without a clipboard the text is selected: the reader presses Ctrl + C.
      getSelection().selectAllChildren(pre);
      done(document.execCommand && document.execCommand("copy") ? "Copied" : "Selected");
    }
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(function () { done("Copied"); }, by_hand);
    else by_hand();
  }
  function unfold(inner) {
    for (var fold = inner.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  }
  function follow() {
    var goal = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!goal) return;
    unfold(goal);
    var evidence = goal.querySelector(":scope > details.evidence");
    if (evidence) evidence.open = true;
    goal.scrollIntoView();
  }
  tools();
  addEventListener("hashchange", follow);
  follow();
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
