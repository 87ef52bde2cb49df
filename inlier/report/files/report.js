"use strict";
// The table of suspects: sorted, filtered and paged here. Every text from the data becomes a text node.
(() => {
  const PAGE = 50, PRINTED = 200, BARS = 8;
  const root = document.getElementById("suspects");
  if (!root) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = id => document.getElementById(id);
  const number = x => (x === null ? NaN : x === "inf" ? Infinity : x === "-inf" ? -Infinity : x);
  const grouped = new Intl.NumberFormat("en", {maximumFractionDigits: 9});

  const suspects = data.suspects.map((s, rank) => ({
    ...s, rank, probability: number(s.probability), loss: number(s.loss),
    numbers: s.numbers && s.numbers.map(number),
    deviations: s.deviations.map(([column, value, usual, score]) => ({column, value, usual, score: number(score)})),
  }));

  function make(tag, kind, text) {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  }
  function format(x) {
    if (Number.isNaN(x)) return "–";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    const size = Math.abs(x);
    if (size === 0 || (size >= 1e-3 && size < 1e5)) return grouped.format(Number(x.toPrecision(size >= 1000 ? 6 : 4)));
    const [digits, power] = x.toExponential(2).split("e");
    return Number(digits) + " × 10" + [...power.replace("+", "")].map(c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
  }
  const formatProbability = p => (Number.isNaN(p) ? "–" : p === 0 || p === 1 ? String(p) : p < 5e-4 ? "< 0.001" : p > 0.9995 ? "> 0.999" : p.toFixed(3));
  function bar(share) {
    const outer = make("i"), inner = make("b");
    inner.style.width = 100 * Math.min(Math.max(share || 0, 0), 1) + "%";
    outer.append(inner);
    return outer;
  }
  function thumbnail(s) {
    const image = make("img");
    image.src = "data:image/png;base64," + s.image;
    image.alt = "Image of " + s.row;
    image.loading = "lazy";
    return image;
  }
  function cell(text) {
    const span = make("span", "cell");
    span.title = text;
    // Labels like card_payment_fee break behind an underscore first.
    for (const part of text.split(/(?<=_)/)) span.append(part, make("wbr"));
    return span;
  }

  // Columns: the sort key of a cell, how it is drawn, and the direction of the first click.
  const columns = [
    {name: data.numbered, key: s => s.row, draw: opener, first: 1},
    {name: "Image", draw: s => (s.image ? thumbnail(s) : cell("")), used: s => s.image, kind: "unlabelled"},
    {name: "Given", key: s => (s.numbers ? s.numbers[0] : s.given), draw: s => cell(s.given), used: s => s.given !== "", first: 1},
    {name: "Suggested", key: s => (s.numbers ? s.numbers[1] : s.suggested), draw: s => cell(s.suggested), used: s => s.suggested !== "", first: 1},
    {name: "Inlier probability", key: s => s.probability, draw: drawProbability, first: 1},
    {name: "Loss", key: s => s.loss, draw: s => cell(format(s.loss)), first: -1, kind: "figure"},
    {name: "Largest deviation", key: s => (s.deviations.length ? s.deviations[0].score : NaN), draw: drawDeviation,
      used: s => s.deviations.length, first: -1, kind: "whole"},
    // Where nothing deviates, texts or files with a label say, the first value.
    {name: data.columns[0], key: s => s.values[0] ?? "", draw: s => cell(s.values[0] ?? ""), first: 1, kind: "whole",
      used: s => s.values[0] && !suspects.some(other => other.deviations.length)},
  ].filter(c => !c.used || suspects.some(c.used));

  function opener(s) {
    const button = make("button", "opener", s.row);
    button.type = "button";
    button.setAttribute("aria-expanded", String(state.open.has(s.rank)));
    button.setAttribute("aria-label", "Details of " + s.row);
    return button;
  }
  function drawProbability(s) {
    const span = make("span", "probability");
    span.append(make("span", "", formatProbability(s.probability)), bar(s.probability));
    return span;
  }
  function drawDeviation(s) {
    const span = make("span", "cell");
    if (s.deviations.length) {
      const d = s.deviations[0];
      span.append(d.column + ": " + d.value, make("span", "usual", "  usually " + d.usual));
      span.title = span.textContent;
    }
    return span;
  }

  const state = {column: null, direction: 1, text: "", least: 0, most: 1, page: 0, open: new Set(), size: PAGE};
  let order = suspects;

  // Labels that are all numbers sort as numbers.
  const collator = new Intl.Collator(undefined, {numeric: true, sensitivity: "base"});
  for (const c of columns.filter(c => c.key)) {
    const keys = suspects.map(c.key);
    const numeric = keys.every(k => typeof k === "number" || k === "" || (k.trim() !== "" && !Number.isNaN(Number(k))));
    if (numeric) c.number = s => { const k = c.key(s); return k === "" ? NaN : Number(k); };
  }
  function compare(c, direction) {
    return (a, b) => {
      let x, y;
      if (c.number) {
        x = c.number(a); y = c.number(b);
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a.rank - b.rank;
        return direction * ((x > y) - (x < y)) || a.rank - b.rank;
      }
      x = c.key(a); y = c.key(b);
      if (x === "" || y === "") return (x === "") - (y === "") || a.rank - b.rank;
      return direction * collator.compare(x, y) || a.rank - b.rank;
    };
  }
  function haystack(s) {
    s.text ??= [s.row, s.given, s.suggested, ...s.values.filter(v => v !== null),
      ...s.deviations.map(d => d.column + " " + d.value)].join("\n").toLowerCase();
    return s.text;
  }
  function choose() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const bounded = state.least > 0 || state.most < 1;
    order = suspects.filter(s =>
      (!bounded || (s.probability >= state.least && s.probability <= state.most)) &&
      words.every(word => haystack(s).includes(word)));
    if (state.column) order = order.slice().sort(compare(state.column, state.direction));
    state.page = 0;
    draw();
  }

  function definitions(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) {
      const pair = make("div", value.length > 80 ? "long" : "");
      pair.append(make("dt", "", name), make("dd", "", value === "" ? "–" : value));
      list.append(pair);
    }
    return list;
  }
  function part(kind, heading, ...content) {
    const block = make("div", kind);
    block.append(make("h3", "", heading), ...content);
    return block;
  }
  // What the reader decides about each suspect, for the file that `inlier fit --decisions` and `inlier fix` take.
  const decisions = new Map();
  const ACTIONS = [["keep", "Keep"], ["fix", "Fix"], ["drop", "Drop"]];
  function decide(s, action, value) {
    if (action) decisions.set(s.row, {action, given: s.given, value, file: s.values[data.columns.indexOf("file")] ?? ""});
    else decisions.delete(s.row);
    at("download").disabled = decisions.size === 0;
    at("download").textContent = "Download decisions" + (decisions.size ? " (" + grouped.format(decisions.size) + ")" : "");
  }
  function decision(s) {
    const box = make("div", "choices"), known = decisions.get(s.row);
    const value = make("input");
    value.type = "text";
    value.value = known ? known.value : s.suggested;
    value.setAttribute("aria-label", "Corrected value of " + s.row);
    const buttons = ACTIONS.map(([action, name]) => {
      const button = make("button", "", name);
      button.type = "button";
      button.setAttribute("aria-pressed", String(known !== undefined && known.action === action));
      button.addEventListener("click", () => {
        const again = button.getAttribute("aria-pressed") === "true";
        if (action === "fix" && value.value === "") { value.focus(); return; }
        buttons.forEach(other => other.setAttribute("aria-pressed", String(!again && other === button)));
        decide(s, again ? "" : action, value.value);
      });
      return button;
    });
    value.addEventListener("input", () => {
      const made = decisions.get(s.row);
      if (made && made.action === "fix") decide(s, value.value === "" ? "" : "fix", value.value);
    });
    box.append(...buttons, value);
    return box;
  }
  // Texts that a spreadsheet would evaluate get an apostrophe, as in the other files.
  const quoted = text => '"' + text.replace(/^(?=[=@\t\r\n]|[+-](?![\d.]))/, "'").replaceAll('"', '""') + '"';
  at("download").addEventListener("click", () => {
    const file = data.unit === "images" ? data.columns.indexOf("file") : -1;
    const lines = ["row,decision,given,value" + (file < 0 ? "" : ",file")];
    for (const [row, d] of [...decisions].sort((a, b) => a[0] - b[0])) {
      const cells = [row, d.action, quoted(d.given), quoted(d.action === "fix" ? d.value : "")];
      lines.push((file < 0 ? cells : [...cells, quoted(d.file)]).join(","));
    }
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], {type: "text/csv"}));
    link.download = "decisions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });

  function details(s) {
    const row = make("tr", "details"), data_cell = make("td"), panel = make("div", "panel");
    row.setAttribute("role", "row");
    data_cell.setAttribute("role", "cell");
    data_cell.colSpan = columns.length;
    if (s.image) panel.append(thumbnail(s));
    const labels = [["Given", s.given], ["Suggested", s.suggested]].filter(pair => pair[1] !== "");
    panel.append(part("labels", "Scores", definitions(
      [...labels, ["Inlier probability", formatProbability(s.probability)], ["Loss", format(s.loss)]])));
    panel.append(part("decision", "Decision", decision(s)));
    if (s.deviations.length) {
      const largest = Math.max(...s.deviations.map(d => (Number.isFinite(d.score) ? d.score : 0)), 1e-12);
      panel.append(part("unusual", "Largest deviations", ...s.deviations.slice(0, BARS).map(d => {
        const line = make("div", "deviation");
        line.append(make("span", "", d.column), bar(d.score / largest), make("em", "", format(d.score)),
          make("small", "", d.value + ", usually " + d.usual));
        return line;
      })));
    }
    const cells = data.columns.map((name, k) => [name, s.values[k]]).filter(pair => pair[1] !== null && pair[1] !== undefined);
    if (cells.length) {
      const block = part("cells", "Values", definitions(cells));
      if (data.more) block.append(make("p", "note", "… and " + grouped.format(data.more) + " more columns"));
      panel.append(block);
    }
    data_cell.append(panel);
    row.append(data_cell);
    return row;
  }

  function draw() {
    const first = state.page * state.size, page = order.slice(first, first + state.size);
    const body = document.createDocumentFragment();
    for (const s of page) {
      const row = make("tr", "suspect");
      row.setAttribute("role", "row");
      row.dataset.rank = s.rank;
      for (const c of columns) {
        const box = make("td", c.kind);
        box.setAttribute("role", "cell");
        if (c.key) box.dataset.label = c.name;
        box.append(c.draw(s));
        row.append(box);
      }
      body.append(row);
      if (state.open.has(s.rank)) {
        row.classList.add("open");
        body.append(details(s));
      }
    }
    if (!page.length) {
      const row = make("tr"), box = make("td", "empty", "Nothing matches.");
      box.colSpan = columns.length;
      row.append(box);
      body.append(row);
    }
    at("rows").replaceChildren(body);
    const last = first + page.length, all = suspects.length, n = order.length;
    const range = page.length ? grouped.format(first + 1) + "–" + grouped.format(last) + " of " : "";
    at("status").textContent = range + grouped.format(n) + " " + data.unit +
      (n < all ? ", filtered from " + grouped.format(all) : "");
    const pages = Math.max(Math.ceil(n / state.size), 1);
    at("page").textContent = "Page " + (state.page + 1) + " of " + grouped.format(pages);
    at("back").disabled = state.page === 0;
    at("next").disabled = state.page >= pages - 1;
    at("pager").hidden = pages < 2;
    for (const c of columns) {
      if (state.column === c) c.head.setAttribute("aria-sort", state.direction > 0 ? "ascending" : "descending");
      else c.head.removeAttribute("aria-sort");
    }
  }

  for (const c of columns) {
    c.head = make("th", c.kind);
    c.head.setAttribute("role", "columnheader");
    c.head.scope = "col";
    if (!c.key) {
      c.head.setAttribute("aria-label", c.name);
    } else {
      const button = make("button", "", c.name);
      button.type = "button";
      button.addEventListener("click", () => {
        state.direction = state.column === c ? -state.direction : c.first;
        state.column = c;
        choose();
      });
      c.head.append(button);
    }
    at("heads").append(c.head);
  }

  function toggle(row) {
    const rank = Number(row.dataset.rank), button = row.querySelector(".opener");
    const opening = !state.open.has(rank);
    if (opening) {
      state.open.add(rank);
      row.after(details(suspects[rank]));
    } else {
      state.open.delete(rank);
      row.nextElementSibling.remove();
    }
    row.classList.toggle("open", opening);
    button.setAttribute("aria-expanded", String(opening));
  }
  at("rows").addEventListener("click", event => {
    const row = event.target.closest("tr.suspect");
    if (row && !String(getSelection())) toggle(row);
  });
  // Arrow keys move between suspects.
  at("rows").addEventListener("keydown", event => {
    if (!event.target.matches(".opener") || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    const openers = [...at("rows").querySelectorAll(".opener")];
    const other = openers[openers.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (other) { event.preventDefault(); other.focus(); }
  });
  const bound = (id, otherwise) => {
    const x = Number.parseFloat(at(id).value);
    return Number.isNaN(x) ? otherwise : x;
  };
  function read() {
    Object.assign(state, {text: at("text").value, least: bound("least", 0), most: bound("most", 1)});
    choose();
  }
  at("controls").addEventListener("input", read);
  at("controls").addEventListener("reset", () => setTimeout(read));
  at("controls").addEventListener("submit", event => event.preventDefault());
  function turn(by) {
    state.page += by;
    draw();
    root.scrollIntoView({block: "start"});
  }
  at("back").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  // Paper has no pager: print the first suspects, as sorted and filtered.
  let before;
  addEventListener("beforeprint", () => {
    before = state.page;
    Object.assign(state, {page: 0, size: PRINTED});
    draw();
  });
  addEventListener("afterprint", () => {
    Object.assign(state, {page: before ?? 0, size: PAGE});
    draw();
  });

  root.hidden = false;
  draw();
})();
