"use strict";
// The page is complete without this script: it adds sorting, filtering, values on pointing, and the theme switch.
(() => {
  const all = (selector, base = document) => [...base.querySelectorAll(selector)];
  const make = (tag, properties, parent) => {
    const node = Object.assign(document.createElement(tag), properties);
    if (parent) parent.append(node);
    return node;
  };

  // ---- theme: the system's until the reader chooses -------------------------------------------------------------
  function startTheme() {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const root = document.documentElement;
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const show = () => button.setAttribute("aria-pressed", String(isDark()));
    try { // a page opened from a file may not be allowed to remember
      const kept = localStorage.getItem("icda-theme");
      if (kept === "dark" || kept === "light") root.dataset.theme = kept;
    } catch { /* then it starts as the system's each time */ }
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try { localStorage.setItem("icda-theme", root.dataset.theme); } catch { /* see above */ }
      show();
    });
    system.addEventListener("change", show);
    button.hidden = false;
    show();
  }

  // ---- tip: the value under the pointer or the keyboard's cursor -------------------------------------------------
  const tip = make("div", { id: "tip", hidden: true }, document.body);
  tip.setAttribute("aria-hidden", "true"); // what it says is spoken through `live`
  const live = make("div", { className: "unseen" }, document.body);
  live.setAttribute("role", "status");

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(Math.max(x + 14, 6), innerWidth - width - 6);
    const above = y - height - 12;
    tip.style.left = `${Math.max(left, 6)}px`;
    tip.style.top = `${above > 6 ? above : y + 18}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  function speakAt(node, text) {
    node.scrollIntoView({ block: "nearest", inline: "nearest" });
    const box = node.getBoundingClientRect();
    showTip(text, box.left + box.width / 2, box.top);
    live.textContent = text.replaceAll("\n", ", ");
  }

  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  /** Make a plot a stop of the keyboard; `move(rows, columns)` walks its values. */
  function walkable(plot, move, leave) {
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${plot.dataset.label}. Arrow keys read the values.`);
    plot.addEventListener("keydown", (event) => {
      if (event.target !== plot || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in STEPS) { event.preventDefault(); move(...STEPS[event.key]); }
    });
    plot.addEventListener("blur", () => { leave(); hideTip(); });
  }

  function startPlots() {
    document.addEventListener("pointerover", (event) => {
      const node = event.target.closest?.("[data-tip]");
      if (node) showTip(node.dataset.tip, event.clientX, event.clientY);
      else if (!event.target.closest?.(".square")) hideTip();
    });
    document.addEventListener("pointermove", (event) => {
      const node = event.target.closest?.("[data-tip]");
      if (node) showTip(node.dataset.tip, event.clientX, event.clientY);
    });
    document.addEventListener("pointerleave", hideTip);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    for (const plot of all(".plot:not(.square)")) {
      let current = null;
      const leave = () => { current?.classList.remove("current"); };
      walkable(plot, (rows, columns) => {
        const nodes = all("[data-tip]:not(.filtered)", plot);
        if (!nodes.length) return;
        const step = rows * Number(plot.dataset.columns ?? 1) + columns;
        const next = current ? nodes.indexOf(current) + step : 0;
        if (next < 0 || next >= nodes.length) return;
        leave();
        current = nodes[next];
        current.classList.add("current");
        speakAt(current, current.dataset.tip);
      }, leave);
    }
  }

  // ---- a square of pixels: many classes --------------------------------------------------------------------------
  function startSquares() {
    for (const square of all(".square")) {
      const data = square.dataset;
      const [cells, totals, names] = [data.cells, data.totals, data.names].map((text) => JSON.parse(text));
      const cursor = make("div", { className: "cursor", hidden: true }, square);
      let place = null;
      const words = ([row, column]) => {
        const value = cells[row][column];
        const share = `${((100 * value) / (totals[row] || 1)).toFixed(1)} %`;
        const known = { row: names[row], column: names[column], value: value.toLocaleString("en"), share };
        return data.tipPattern.replace(/\{(\w+)\}/g, (_, name) => known[name]);
      };
      const mark = () => {
        const size = 100 / names.length;
        Object.assign(cursor.style, { left: `${place[1] * size}%`, top: `${place[0] * size}%`, width: `${size}%`, height: `${size}%` });
        cursor.hidden = false;
      };
      const leave = () => { cursor.hidden = true; hideTip(); };
      square.addEventListener("pointermove", (event) => {
        const box = square.getBoundingClientRect();
        const index = (part, whole) => Math.min(Math.max(Math.floor((part / whole) * names.length), 0), names.length - 1);
        place = [index(event.clientY - box.top, box.height), index(event.clientX - box.left, box.width)];
        mark();
        showTip(words(place), event.clientX, event.clientY);
      });
      square.addEventListener("pointerleave", leave);
      walkable(square, (rows, columns) => {
        const inside = (number) => Math.min(Math.max(number, 0), names.length - 1);
        place = place ? [inside(place[0] + rows), inside(place[1] + columns)] : [0, 0];
        mark();
        speakAt(cursor, words(place));
      }, leave);
    }
  }

  /** Bands over the row and the column of the chosen class. */
  function bandSquares(token) {
    for (const square of all(".square")) {
      all(".band", square).forEach((node) => node.remove());
      const index = token ? square.dataset.tokens.split(" ").indexOf(token) : -1;
      if (index < 0) continue;
      const size = 100 / square.dataset.tokens.split(" ").length;
      const [row, column] = [0, 1].map(() => make("div", { className: "band" }, square));
      Object.assign(row.style, { left: 0, width: "100%", top: `${index * size}%`, height: `${size}%` });
      Object.assign(column.style, { top: 0, height: "100%", left: `${index * size}%`, width: `${size}%` });
    }
  }

  // ---- tables: sorted by the column whose heading is pressed ------------------------------------------------------
  const figure = (text) => Number.parseFloat(text.replaceAll(",", "").replaceAll("−", "-"));

  function sortTable(table, column, heading) {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const words = heading.classList.contains("name");
    const rows = all("tbody tr", table).map((row) => {
      const text = row.cells[column].textContent.trim();
      return { row, text, number: words ? 0 : figure(text) };
    });
    const sign = ascending ? 1 : -1;
    rows.sort((a, b) => {
      if (words) return sign * a.text.localeCompare(b.text, "en", { numeric: true });
      const missing = Number.isNaN(a.number) - Number.isNaN(b.number); // what was not measured stays at the end
      return missing || (Number.isNaN(a.number) ? 0 : sign * (a.number - b.number));
    });
    table.tBodies[0].append(...rows.map((entry) => entry.row));
  }

  function startTables() {
    for (const table of all("table[data-sortable]")) {
      if (table.closest(".confusion")) continue; // a square keeps the order of its columns
      if (table.tBodies[0].rows.length < 2) continue;
      all("thead th", table).forEach((heading, column) => {
        const told = all("tbody tr", table).some((row) => row.cells[column]?.textContent.trim());
        if (!told || heading.querySelector(".unseen")) return;
        const button = make("button", { type: "button", className: "sort" });
        button.append(...heading.childNodes);
        heading.append(button);
        button.addEventListener("click", () => sortTable(table, column, heading));
      });
    }
    for (const chooser of all(".chooser")) {
      const table = chooser.parentElement.querySelector("table");
      chooser.addEventListener("change", (event) => {
        const column = Number(event.target.dataset.column);
        all("tr", table).forEach((row) => row.cells[column].classList.toggle("gone", !event.target.checked));
      });
      chooser.hidden = false;
    }
  }

  // ---- filters: one class, one group, everywhere -------------------------------------------------------------------
  const chosen = { class: "", group: "" };
  const fits = (node) => Object.entries(chosen).every(
    ([kind, token]) => !token || !node.dataset[kind] || node.dataset[kind].split(" ").includes(token));

  /** The histogram of the chosen class, on a scale of its own. */
  function redraw(plot) {
    const rows = JSON.parse(plot.dataset.rows);
    const index = chosen.class ? plot.dataset.tokens.split(" ").indexOf(chosen.class) : -1;
    const counts = index < 0 ? rows[0].map((_, bin) => rows.reduce((sum, row) => sum + row[bin], 0)) : rows[index];
    const [most, total] = [Math.max(...counts), counts.reduce((sum, count) => sum + count, 0) || 1];
    const power = 10 ** Math.floor(Math.log10(most || 1));
    const top = [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= most) * power;
    const [floor, ceiling] = [Number(plot.dataset.floor), Number(plot.dataset.ceiling)];
    all(".column", plot).forEach((bar, bin) => {
      const height = (counts[bin] / top) * (floor - ceiling);
      bar.setAttribute("height", height.toFixed(2));
      bar.setAttribute("y", (floor - height).toFixed(2));
      const share = ((100 * counts[bin]) / total).toFixed(1);
      const band = bar.nextElementSibling;
      band.dataset.tip = `${band.dataset.span}\n${counts[bin].toLocaleString("en")} samples, ${share} %`;
    });
    all(".scale", plot).forEach((text, step) => { text.textContent = ((step / 2) * top).toLocaleString("en"); });
  }

  function applyFilters() {
    const active = Boolean(chosen.class || chosen.group);
    const nodes = all("[data-class], [data-group]").filter((node) => node.tagName !== "circle");
    for (const node of all("[data-class], [data-group]")) node.classList.toggle("filtered", !fits(node));
    for (const node of all("[data-pair]")) {
      node.classList.toggle("dim", Boolean(chosen.class) && !node.dataset.pair.split(" ").includes(chosen.class));
    }
    for (const holder of all(".cards, .rows, tbody")) {
      const own = [...holder.children];
      const empty = own.length > 0 && own.every((node) => node.classList.contains("filtered"));
      (holder.tagName === "TBODY" ? holder.closest(".scroll") : holder)?.classList.toggle("empty", empty);
    }
    for (const details of all("details:not(.run)")) {
      if (active && nodes.some((node) => details.contains(node) && fits(node))) details.open = true;
    }
    all("[data-rows]").forEach(redraw);
    bandSquares(chosen.class);
    document.getElementById("clear").disabled = !active;
    const left = nodes.filter(fits).length;
    document.getElementById("filtered").textContent = active ? `${left} of ${nodes.length} rows and pictures shown` : "";
  }

  function startFilters() {
    const box = document.getElementById("filters");
    if (!box) return;
    const choosers = all("select", box);
    for (const chooser of choosers) {
      chooser.value = ""; // a browser may restore what was chosen before a reload
      chooser.addEventListener("change", () => { chosen[chooser.dataset.kind] = chooser.value; applyFilters(); });
    }
    document.getElementById("clear").addEventListener("click", () => {
      choosers.forEach((chooser) => { chooser.value = ""; chosen[chooser.dataset.kind] = ""; });
      applyFilters();
      choosers[0].focus();
    });
    box.hidden = false;
  }

  // ---- finding one's way, and paper ------------------------------------------------------------------------------
  function openTarget() {
    let node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const target = node;
    for (; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target?.scrollIntoView();
  }

  function startContents() {
    const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    links.forEach((_, place) => { const part = document.getElementById(place); if (part) watcher.observe(part); });
    addEventListener("hashchange", openTarget);
    if (location.hash) openTarget();
  }

  function startPrinting() {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = all("details:not([open])");
      opened.forEach((details) => { details.open = true; });
    });
    addEventListener("afterprint", () => { opened.forEach((details) => { details.open = false; }); });
  }

  startTheme();
  startPlots();
  startSquares();
  startTables();
  startFilters();
  startContents();
  startPrinting();
})();
