// A click on a column's title sorts the table by it; another click turns the order round. Without
// JavaScript the table is whole, in its own order.
"use strict";
(function () {
  const number = (text) => (/^(never|failed)/.test(text) ? Infinity
    : parseFloat(text.replace(/[≤,]/g, "").match(/-?\d[\d.]*(e-?\d+)?/) || "NaN"));
  function sort(table, column, up) {
    const rows = [...table.tBodies[0].rows], texts = new Map(rows.map((r) => [r, r.cells[column].textContent.trim()]));
    const filled = [...texts.values()].filter(Boolean),
      numeric = filled.every((t) => /^[^a-z]*\d|^(never|failed)/i.test(t) && !/^\d+ (ps|w)/.test(t));
    const value = (r) => (numeric ? number(texts.get(r)) : texts.get(r));
    const empty = (v) => v === "" || Number.isNaN(v);
    rows.sort((a, b) => {
      const x = value(a), y = value(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y); // what is not known comes last
      return (up ? 1 : -1) * (numeric ? x - y : x.localeCompare(y));
    });
    table.tBodies[0].append(...rows);
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    table.parentElement.tabIndex = 0; // so that the arrow keys scroll it
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      button.title = "sort";
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table, column, up);
      });
    });
  }
})();
