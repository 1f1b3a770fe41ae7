"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, heads, column));
  });
}

/* Sorts numbers from the largest and text from A at first; values that were not measured stay last. */
function sort(table, heads, column) {
  const numeric = heads[column].classList.contains("n");
  const now = heads[column].getAttribute("aria-sort");
  const up = now ? now === "descending" : !numeric;
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  const compare = (a, b) => (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const keyed = [...table.tBodies[0].rows].map((row) => [value(row), row]);
  keyed.sort(([a], [b]) => (a === "") - (b === "") || (up ? compare(a, b) : compare(b, a)));
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

/* A link to a folded rule opens it. */
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", unfold);
unfold();
