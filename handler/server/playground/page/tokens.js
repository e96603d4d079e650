// Tokens coloured by how likely each was, and what else might have stood in the place of the chosen one.

import { element } from "./page.js";

const STEPS = [0.9, 0.7, 0.5, 0.3, 0.1];
const GROUP = 200;
const PER_FRAME = 200;

export class Tokens {
  constructor(place, detail) {
    Object.assign(this, { place, detail, tokens: [], drawn: 0, chosen: -1, group: null });
    place.addEventListener("click", (event) => this.choose(event.target.closest(".token")));
    place.addEventListener("keydown", (event) => {
      const to = { ArrowRight: this.chosen + 1, ArrowLeft: this.chosen - 1, Home: 0, End: this.drawn - 1 }[event.key];
      if (to === undefined || this.drawn === 0) return;
      event.preventDefault();
      this.choose(this.elementAt(Math.min(this.drawn - 1, Math.max(0, to))));
    });
  }

  clear() {
    Object.assign(this, { tokens: [], drawn: 0, chosen: -1, group: null });
    this.place.replaceChildren();
    this.detail.replaceChildren();
  }

  /** Draws some that are not drawn yet; whether there are more. */
  draw() {
    const end = Math.min(this.tokens.length, this.drawn + PER_FRAME);
    for (; this.drawn < end; this.drawn += 1) {
      if (this.drawn % GROUP === 0) {
        this.group = element("span");
        this.place.append(this.group);
      }
      const { text, logprob } = this.tokens[this.drawn];
      const kind = logprob === null || logprob === undefined ? "" : ` p${stepOf(Math.exp(logprob))}`;
      this.group.append(element("span", { class: `token${kind}` }, text));
    }
    return this.drawn < this.tokens.length;
  }

  elementAt(at) {
    return this.place.children[Math.floor(at / GROUP)].children[at % GROUP];
  }

  choose(token) {
    if (!token) return;
    if (this.chosen >= 0) this.elementAt(this.chosen).classList.remove("chosen");
    const group = token.parentElement;
    this.chosen = [...this.place.children].indexOf(group) * GROUP + [...group.children].indexOf(token);
    token.classList.add("chosen");
    token.scrollIntoView({ block: "nearest" });
    const { text, logprob, top } = this.tokens[this.chosen];
    const others = top.length > 0 ? top : [[text, logprob]];
    this.detail.replaceChildren(
      element("p", { class: "quiet" }, `Token ${this.chosen + 1}: `, element("code", {}, JSON.stringify(text)), logprob === null ? ", no log-probability" : `, log-probability ${logprob.toFixed(3)}`),
      ...(logprob === null ? [] : [element("ul", { class: "likely" }, ...others.map((other) => likely(other, text)))]),
    );
  }
}

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
