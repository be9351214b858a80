// Sorting, filters, selection for a comparison, and their state in the fragment of the address. Texts of results
// are hostile: they are written with textContent, and never become an address, an id or a selector.
(function () {
  "use strict";
  var VERSION = "1";

  function make(name, text, attributes) {
    var element = document.createElement(name);
    if (text !== undefined && text !== null) element.textContent = text;
    for (var key in attributes || {}) element.setAttribute(key, attributes[key]);
    return element;
  }

  // The state in the fragment: #v=1&framework=pytorch&sort=score&order=descending
  function readState() {
    var state = {};
    location.hash.slice(1).split("&").forEach(function (pair) {
      var at = pair.indexOf("=");
      if (at > 0) {
        try { state[decodeURIComponent(pair.slice(0, at))] = decodeURIComponent(pair.slice(at + 1)); } catch (error) { /* not a state */ }
      }
    });
    return state;
  }
  function writeState(state) {
    var names = Object.keys(state).filter(function (name) { return state[name] && name !== "v"; }).sort();
    var text = names.map(function (name) { return encodeURIComponent(name) + "=" + encodeURIComponent(state[name]); });
    var hash = text.length ? "#v=" + VERSION + "&" + text.join("&") : "#";
    if (hash !== location.hash && (hash !== "#" || location.hash)) history.replaceState(null, "", hash);
  }

  function columnName(heading) { return heading.getAttribute("data-name") || heading.textContent.trim(); }

  function sortable(table, stateful) {
    var headings = Array.prototype.slice.call(table.tHead.rows[0].cells);
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    var original = rows.slice();
    if (rows.length < 2) return null;
    headings.forEach(function (heading) {
      var name = heading.textContent.trim();
      if (!name || heading.hasAttribute("data-plain")) return;
      heading.setAttribute("data-name", name);
      var button = make("button", name, { type: "button" });
      heading.textContent = "";
      heading.appendChild(button);
      button.addEventListener("click", function () {
        var now = heading.getAttribute("aria-sort");
        var first = heading.classList.contains("n") ? "descending" : "ascending";
        var second = first === "ascending" ? "descending" : "ascending";
        var order = now === first ? second : now === second ? "" : first;
        sort(name, order);
        if (stateful) stateful.sorted(order ? name : "", order);
      });
    });
    var sorted = false;
    function sort(name, order) {
      var index = headings.findIndex(function (one) { return columnName(one) === name; });
      headings.forEach(function (one) { one.removeAttribute("aria-sort"); });
      if (index < 0 || (order !== "ascending" && order !== "descending")) {
        if (sorted) fill(original);
        sorted = false;
        return;
      }
      sorted = true;
      headings[index].setAttribute("aria-sort", order);
      var sign = order === "ascending" ? 1 : -1;
      var numeric = headings[index].classList.contains("n");
      var keyed = original.map(function (row, position) {
        var cell = row.cells[index];
        var raw = cell.hasAttribute("data-sort") ? cell.getAttribute("data-sort") : cell.textContent.trim();
        return { row: row, position: position, key: numeric ? parseFloat(String(raw).replace(/,/g, "")) : raw };
      });
      keyed.sort(function (a, b) {
        if (numeric) {
          var missingA = isNaN(a.key), missingB = isNaN(b.key); // missing numbers stay last
          if (missingA || missingB) return missingA - missingB || a.position - b.position;
          return sign * (a.key - b.key) || a.position - b.position;
        }
        return sign * a.key.localeCompare(b.key, "en", { numeric: true }) || a.position - b.position;
      });
      fill(keyed.map(function (one) { return one.row; }));
    }
    function fill(ordered) {
      var all = document.createDocumentFragment();
      ordered.forEach(function (row) { all.appendChild(row); });
      body.appendChild(all);
    }
    return { sort: sort };
  }

  function filtered(table) {
    var state = readState();
    var headings = Array.prototype.slice.call(table.tHead.rows[0].cells);
    var rows = Array.prototype.slice.call(table.tBodies[0].rows);
    var bar = make("form", null, { "class": "filters", "aria-label": "Filters" });
    bar.addEventListener("submit", function (event) { event.preventDefault(); });
    var selects = [];
    headings.forEach(function (heading, index) {
      var name = heading.getAttribute("data-filter");
      if (!name) return;
      var texts = rows.map(function (row) { return row.cells[index].textContent.trim(); });
      var distinct = Array.from(new Set(texts)).sort(function (a, b) { return a.localeCompare(b, "en", { numeric: true }); });
      var label = make("label", name);
      var select = make("select");
      select.appendChild(make("option", "all", { value: "" }));
      distinct.forEach(function (value) { select.appendChild(new Option(value, value)); });
      label.appendChild(select);
      bar.appendChild(label);
      selects.push({ name: name, select: select, texts: texts });
      select.addEventListener("change", function () { state[name] = select.value; apply(); writeState(state); });
    });
    var reset = make("button", "Reset", { type: "button" });
    var shown = make("output", "");
    shown.setAttribute("aria-live", "polite");
    reset.addEventListener("click", function () {
      state = {};
      restore();
      writeState(state);
    });
    bar.appendChild(reset);
    var compare = selection(table, rows);
    if (compare) bar.appendChild(compare);
    bar.appendChild(shown);
    var holder = table.parentNode;
    holder.parentNode.insertBefore(bar, holder);

    function apply() {
      var active = selects.filter(function (one) { return one.select.value !== ""; });
      var count = 0;
      rows.forEach(function (row, index) {
        var visible = active.every(function (one) { return one.texts[index] === one.select.value; });
        if (row.hidden === visible) row.hidden = !visible;
        count += visible;
      });
      shown.textContent = count + " of " + rows.length + (rows.length === 1 ? " result" : " results");
    }
    var sorter = sortable(table, {
      sorted: function (name, order) { state.sort = name; state.order = order; writeState(state); }
    });
    function restore() {
      selects.forEach(function (one) {
        one.select.value = state[one.name] || "";
        if (one.select.selectedIndex < 0) one.select.value = "";
      });
      apply();
      if (sorter) sorter.sort(state.sort || "", state.order || "");
    }
    window.addEventListener("hashchange", function () { state = readState(); restore(); });
    restore();
  }

  // A box in each row, and a button that opens the comparison of the chosen results.
  function selection(table, rows) {
    if (!table.hasAttribute("data-compare")) return null;
    var button = make("button", "Compare selected", { type: "button" });
    button.disabled = true;
    var heading = make("th", "", { scope: "col", "data-plain": "" });
    heading.appendChild(make("span", "compare", { "class": "unseen" }));
    table.tHead.rows[0].insertBefore(heading, table.tHead.rows[0].cells[0]);
    var boxes = rows.map(function (row) {
      var first = row.firstChild, second = first.nextSibling, third = second.nextSibling;
      var box = make("input", null, { type: "checkbox", "aria-label": "compare " + first.textContent + " " + second.textContent + " " + third.textContent });
      var cell = make("td");
      if (!row.classList.contains("gone")) cell.appendChild(box);
      row.insertBefore(cell, row.firstChild);
      return box;
    });
    table.addEventListener("change", function () { button.disabled = chosen().length < 2; });
    function chosen() {
      return rows.filter(function (row, index) { return boxes[index].checked; }).map(function (row) { return row.getAttribute("data-digest"); });
    }
    button.addEventListener("click", function () {
      var digests = chosen().filter(function (one) { return /^[0-9a-f]{64}$/.test(one); });
      location.href = "compare.html#v=" + VERSION + "&results=" + digests.join(",");
    });
    return button;
  }

  // ---- comparison ---------------------------------------------------------------------------------------
  // The statistics of suite/compare/ratio.py, which states the sources: the repeats are the samples.
  function mean(values) { return values.reduce(function (sum, one) { return sum + one; }, 0) / values.length; }
  // The square of the standard error of the mean.
  function square(values) {
    var middle = mean(values);
    return values.reduce(function (sum, one) { return sum + (one - middle) * (one - middle); }, 0) / (values.length - 1) / values.length;
  }
  function relative(values) {
    var middle = mean(values);
    return values.map(function (one) { return one / middle; });
  }
  // B over A with its interval, by the values of each repeat; null with fewer than two on a side.
  function ratioOf(a, b, paired, confidence) {
    if (Math.min(a.repeats.length, b.repeats.length) < 2) return null;
    // A throughput is all work over all time: its ratio is that of the mean times, A over B.
    function time(rate) { return 1 / rate; }
    var below = a.speed ? b.repeats.map(time) : a.repeats, above = a.speed ? a.repeats.map(time) : b.repeats;
    var one = square(relative(below)), other = square(relative(above)), all = one + other;
    var freedom = below.length + above.length - 2;
    if (paired && below.length === above.length) {
      var x = relative(below), y = relative(above);
      all = square(x.map(function (value, index) { return y[index] - value; }));
      freedom = below.length - 1;
    } else if (all > 0) {
      freedom = all * all / (one * one / (below.length - 1) + other * other / (above.length - 1));
    }
    var half = Math.min(700, studentT((1 + confidence) / 2, freedom) * Math.sqrt(all));
    var value = mean(above) / mean(below);
    return { value: value, low: value * Math.exp(-half), high: value * Math.exp(half) };
  }
  // The quantile of Student's t. With t = sqrt(freedom) tan(angle), its density is that of cos(angle)^(freedom - 1).
  function studentT(probability, freedom) {
    var wanted = (2 * probability - 1) * ofCosine(Math.PI / 2, freedom - 1);
    var low = 0, high = Math.PI / 2;
    for (var i = 0; i < 50; i++) {
      var middle = (low + high) / 2;
      if (ofCosine(middle, freedom - 1) < wanted) low = middle; else high = middle;
    }
    return Math.sqrt(freedom) * Math.tan(low);
  }
  // The integral of cos(x)^power from 0 to angle: by Simpson's rule where the integrand is smooth at 90 degrees.
  function ofCosine(angle, power) {
    if (power < 6) {
      return ((power + 2) * ofCosine(angle, power + 2) - Math.pow(Math.cos(angle), power + 1) * Math.sin(angle)) / (power + 1);
    }
    var parts = 400, sum = 1 + Math.pow(Math.cos(angle), power);
    for (var i = 1; i < parts; i++) sum += (i % 2 ? 4 : 2) * Math.pow(Math.cos(angle * i / parts), power);
    return sum * angle / parts / 3;
  }

  function comparison(place) {
    var block = document.getElementById("results");
    var data = JSON.parse(block.textContent);
    var bySha = {};
    data.results.forEach(function (one, index) { bySha[one.digest] = one; one.index = index; });
    function paired(a, b) {
      return data.paired.some(function (pair) { return pair.indexOf(a.index) >= 0 && pair.indexOf(b.index) >= 0; });
    }

    function factsOf(one) {
      var facts = {};
      for (var i = 0; i < one.facts.length; i += 2) facts[one.facts[i]] = data.values[one.facts[i + 1]];
      return facts;
    }
    // Cells after the first two have the name of their column too, for screens that show rows as cards.
    function row(cells, heads) {
      var made = make("tr");
      cells.forEach(function (text, index) {
        var attributes = !heads ? { scope: "col" } : index === 0 ? { scope: "row" } : index > 1 ? { "data-label": heads[index] } : {};
        made.appendChild(make(index === 0 || !heads ? "th" : "td", text, attributes));
      });
      return made;
    }
    function scrolled(table, name) {
      var box = make("div", null, { "class": "scroll", tabindex: "0", role: "region", "aria-label": name });
      table.insertBefore(make("caption", name), table.firstChild);
      box.appendChild(table);
      return box;
    }
    function tableOf(name, heads, rows) {
      var table = make("table", null, { "class": "cards compared" });
      var head = make("thead");
      head.appendChild(row(heads, null));
      table.appendChild(head);
      var body = make("tbody");
      rows.forEach(function (one) { body.appendChild(row(one, heads)); });
      table.appendChild(body);
      return scrolled(table, name);
    }
    function four(value) {
      return value >= 1000 ? Math.round(value).toLocaleString("en-US") : String(parseFloat(value.toPrecision(4)));
    }
    function chooser(chosen) {
      var bar = make("form", null, { "class": "filters", "aria-label": "Results to compare" });
      bar.addEventListener("submit", function (event) { event.preventDefault(); });
      var label = make("label", "add a result");
      var select = make("select");
      select.appendChild(make("option", "choose", { value: "" }));
      data.results.forEach(function (one) {
        if (chosen.indexOf(one.digest) < 0) select.appendChild(new Option(one.title.split(";")[0] + " · " + one.shown, one.digest));
      });
      label.appendChild(select);
      bar.appendChild(label);
      select.addEventListener("change", function () {
        if (select.value) writeState({ results: chosen.concat([select.value]).join(",") });
        show();
      });
      var clear = make("button", "Clear", { type: "button" });
      clear.addEventListener("click", function () { writeState({}); show(); });
      bar.appendChild(clear);
      return bar;
    }
    function show() {
      place.textContent = "";
      var asked = (readState().results || "").split(",").filter(Boolean);
      var known = asked.filter(function (one, index) { return bySha.hasOwnProperty(one) && asked.indexOf(one) === index; });
      place.appendChild(chooser(known));
      if (known.length < asked.length) place.appendChild(make("p", (asked.length - known.length) + " of the results in the address are not among those with a score.", { "class": "callout" }));
      if (known.length < 2) {
        place.appendChild(make("p", "Choose two or more results here, or tick them in the table of results.", { "class": "note" }));
        return;
      }
      var some = known.map(function (one) { return bySha[one]; });
      var letters = some.map(function (one, index) { return index < 26 ? String.fromCharCode(65 + index) : "#" + (index + 1); });
      var comparable = some.every(function (one) { return one.same.join("\n") === some[0].same.join("\n"); });
      var mixed = some.some(function (one) { return one.division !== some[0].division || one.rules !== some[0].rules; });
      if (!comparable) {
        place.appendChild(make("p", "NOT COMPARABLE: the results differ in workload, phase, mode, unit, scale, variant or scenario, so their scores have no ratio.", { "class": "callout" }));
      } else if (mixed) {
        place.appendChild(make("p", "The results are of different divisions or versions of the rules.", { "class": "callout" }));
      }
      var facts = some.map(factsOf);
      var differing = data.names.map(function (name, index) { return index; }).filter(function (index) {
        return facts.some(function (one) { return one[index] !== facts[0][index]; });
      });
      var meaning = differing.filter(function (index) { return data.names[index][0] === data.meaning; });
      if (comparable && meaning.length) {
        place.appendChild(make("p", "The results do not measure the same: they differ in " + meaning.map(function (index) { return data.names[index][1]; }).join(", ") + ".", { "class": "callout" }));
      }
      place.appendChild(make("h2", "Scores"));
      // As make compare: the intervals of several results hold together for every two of them (Bonferroni).
      var confidence = 1 - 0.05 / (some.length * (some.length - 1) / 2);
      var ratios = some.map(function (one) {
        return comparable && one !== some[0] ? ratioOf(some[0], one, paired(some[0], one), confidence) : null;
      });
      place.appendChild(tableOf("Scores; the ratio is to A", ["", "result", "score", "95 % interval", "score / A", "interval of the ratio", "repeats"], some.map(function (one, index) {
        var ratio = ratios[index];
        var shown = ratio ? ratio.value.toFixed(4) : comparable ? (one.value / some[0].value).toFixed(4) : "–";
        var ends = ratio ? ratio.low.toFixed(4) + " to " + ratio.high.toFixed(4) : "–";
        return [letters[index], one.title, one.shown, one.interval || "–", shown, ends, one.repeats.map(four).join(" · ") || "–"];
      })));
      if (ratios.some(Boolean)) {
        var pairs = letters.filter(function (letter, index) { return ratios[index] && paired(some[0], some[index]); });
        var which = "The 95 % interval of the ratio follows";
        if (some.length > 2) which = "The intervals of the ratios hold together at 95 % (" + four(100 * confidence) + " % each). They follow";
        place.appendChild(make("p", which + " from the repeats, as in make compare." +
          (pairs.length ? " The repeats of A and " + pairs.join(", ") + " ran interleaved and are paired." : "") +
          " Two results whose interval contains 1 are indistinguishable.", { "class": "note" }));
      }
      place.appendChild(make("h2", "What differs"));
      if (!differing.length) {
        place.appendChild(make("p", "No setting differs."));
        return;
      }
      place.appendChild(tableOf("Facts that differ", ["group", "fact"].concat(letters), differing.map(function (index) {
        return data.names[index].concat(facts.map(function (one) { return one[index] === undefined ? "–" : one[index]; }));
      })));
    }
    window.addEventListener("hashchange", show);
    show();
  }

  try {
    Array.prototype.forEach.call(document.querySelectorAll("table"), function (table) {
      if (!table.tHead || !table.tBodies.length) return;
      if (table.hasAttribute("data-filters")) filtered(table);
      else sortable(table, null);
    });
    var holder = document.getElementById("compare");
    if (holder) comparison(holder);
  } finally {
    document.documentElement.className = "scripted ready"; // shows the tables, whatever happened
  }
})();
