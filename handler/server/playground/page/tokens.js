// Tokens coloured by how likely each was, and what else might have stood in the place of the chosen one.

import { element } from "./page.js";

const STEPS = [0.9, 0.7, 0.5, 0.3, 0.1];
// A paragraph is laid out as a whole: beyond this many tokens another one begins, at the next blank or soon.
const LONG = 250;
const LONGEST = 300;
const PER_STEP = 100;

export class Tokens {
  constructor(place, detail) {
    Object.assign(this, { place, detail, all: [], likely: false, drawn: [], chosen: -1 });
    place.addEventListener("click", (event) => this.choose(event.target.closest(".token")));
    place.addEventListener("keydown", (event) => {
      const to = { ArrowRight: this.chosen + 1, ArrowLeft: this.chosen - 1, Home: 0, End: this.drawn.length - 1 }[event.key];
      if (to === undefined || this.drawn.length === 0) return;
      event.preventDefault();
      this.choose(this.drawn[Math.min(this.drawn.length - 1, Math.max(0, to))]);
    });
  }

  clear() {
    Object.assign(this, { all: [], likely: false, drawn: [], chosen: -1 });
    this.place.replaceChildren();
    this.detail.replaceChildren();
  }

  add(token) {
    this.all.push(token);
    this.likely ||= token.logprob !== null;
  }

  /** Draws some that are not drawn yet; whether there are more. */
  draw() {
    const { drawn, place, all } = this;
    const end = Math.min(all.length, drawn.length + PER_STEP);
    while (drawn.length < end) {
      const { text, logprob } = all[drawn.length];
      const long = place.lastChild?.childElementCount ?? LONGEST;
      if (long >= LONGEST || (long >= LONG && /^\s/.test(text))) place.append(element("div"));
      const kind = logprob === null || logprob === undefined ? "" : ` p${stepOf(Math.exp(logprob))}`;
      drawn.push(element("span", { class: `token${kind}` }, text));
      place.lastChild.append(drawn.at(-1));
    }
    return drawn.length < all.length;
  }

  choose(token) {
    if (!token) return;
    this.drawn[this.chosen]?.classList.remove("chosen");
    this.chosen = this.drawn.indexOf(token);
    token.classList.add("chosen");
    token.scrollIntoView({ block: "nearest" });
    const { text, logprob, top } = this.all[this.chosen];
    const others = top.length > 0 ? top : [[text, logprob]];
    this.detail.replaceChildren(
      element("p", { class: "quiet" }, `Token ${this.chosen + 1}: `, element("code", {}, JSON.stringify(text)), logprob === null ? ", no log-probability" : `, log-probability ${logprob.toFixed(3)}`),
      ...(logprob === null ? [] : [element("ul", { class: "likely" }, ...others.map((other) => likely(other, text)))]),
    );
  }
}

/** What the colours mean. */
export const legend = () =>
  ["90 %", "70", "50", "30", "10", "less"].map((text, step) => element("span", { class: `token p${step}` }, text));

const stepOf = (probability) => {
  const step = STEPS.findIndex((least) => probability >= least);
  return step < 0 ? STEPS.length : step;
};

function likely([text, logprob], chosen) {
  const share = Math.exp(logprob ?? -Infinity);
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${Math.max(0.5, share * 100)}%`;
  return element(
    "li",
    { class: text === chosen ? "taken" : "" },
    element("code", {}, JSON.stringify(text)),
    element("span", { class: "share" }, `${(share * 100).toFixed(1)} %`),
    element("span", { class: "track" }, bar),
  );
}
