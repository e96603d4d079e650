// The records as they arrived, each with its time and what is new in it (`says`). Of thousands only those that are seen are in the document.

import { element } from "./page.js";

const ROW = 26;
const SEEN = 10;
const KEPT = 50000;
const SHOWN = 160;

/** The list of records in `list`, of which `detail` shows the chosen one whole. */
export class Wire {
  constructor(list, detail, count) {
    Object.assign(this, { list, detail, count, records: [], seen: 0, chosen: -1, follows: true });
    this.space = element("div", { class: "space", role: "presentation" });
    list.replaceChildren(this.space);
    list.addEventListener("scroll", () => {
      this.follows = list.scrollTop + list.clientHeight >= list.scrollHeight - ROW;
      this.draw();
    });
    list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(Number(row.dataset.at));
    });
    list.addEventListener("keydown", (event) => this.key(event));
  }

  clear() {
    Object.assign(this, { records: [], seen: 0, chosen: -1, follows: true });
    this.detail.hidden = true;
    this.list.scrollTop = 0;
    this.draw();
  }

  add(record) {
    this.seen += 1;
    if (this.records.length < KEPT) this.records.push(record);
  }

  /** Shows what is in sight. */
  draw() {
    const { list, records } = this;
    const dropped = this.seen > KEPT ? `, the first ${KEPT} kept` : "";
    const count = this.seen === 0 ? "" : `${this.seen} record${this.seen === 1 ? "" : "s"}${dropped}`;
    if (this.count.textContent !== count) this.count.textContent = count;
    list.hidden = this.seen === 0;
    this.space.style.height = `${records.length * ROW}px`;
    list.style.height = `${Math.min(SEEN, records.length) * ROW}px`;
    if (this.follows) list.scrollTop = records.length * ROW;
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 2);
    const last = Math.min(records.length, first + Math.ceil(list.clientHeight / ROW) + 5);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    this.space.replaceChildren(...rows);
    const active = this.chosen >= first && this.chosen < last;
    if (active) list.setAttribute("aria-activedescendant", `record-${this.chosen}`);
    else list.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const { text, at: time, says } = this.records[at];
    const row = element(
      "div",
      {
        class: "row",
        id: `record-${at}`,
        role: "option",
        "aria-selected": String(at === this.chosen),
        "aria-setsize": this.records.length,
        "aria-posinset": at + 1,
      },
      element("span", { class: "time" }, seconds(time)),
      element("span", { class: "says" }, says ?? ""),
      element("span", { class: "record" }, text.slice(0, SHOWN).trimEnd().replaceAll("\n", "⏎")),
    );
    row.dataset.at = at;
    row.style.transform = `translateY(${at * ROW}px)`;
    return row;
  }

  choose(at) {
    this.chosen = at;
    this.follows = false;
    const { list } = this;
    if (at * ROW < list.scrollTop) list.scrollTop = at * ROW;
    const below = (at + 1) * ROW - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
    const { text, at: time } = this.records[at];
    this.detail.hidden = false;
    this.detail.replaceChildren(
      element("p", { class: "quiet" }, `Record ${at + 1}, ${seconds(time)} after the request was sent`),
      element("pre", { tabIndex: 0, "aria-label": `Record ${at + 1}`, role: "region" }, text),
    );
    this.draw();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const end = this.records.length - 1;
    const to = {
      ArrowDown: this.chosen + 1,
      ArrowUp: this.chosen - 1,
      PageDown: this.chosen + page,
      PageUp: this.chosen - page,
      Home: 0,
      End: end,
    }[event.key];
    if (to === undefined || end < 0) return;
    event.preventDefault();
    this.choose(Math.min(end, Math.max(0, to)));
  }
}

const seconds = (ms) => `${(ms / 1000).toFixed(3)} s`;
