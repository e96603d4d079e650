// A turn of a conversation: what its user said, or an answer, which is shown as it comes.

import { preview } from "./media.js";
import { element, inFrames } from "./page.js";
import { Said } from "./said.js";

let made = 0;

/** One that is not an answer: {element}. */
export function turnOf({ role, content }) {
  const text = textOf(content);
  const said = text === "" ? null : element("div", { class: "said" }, element("div", {}, text));
  const others = othersOf(content).map((part) => element("li", {}, preview(part)));
  return { element: element("div", { class: `turn ${role}` }, element("h3", {}, titleOf(role)), said, element("ul", { class: "media" }, ...others)) };
}

const isText = (part) => typeof part?.text === "string";

/** The text of a message, and its other parts. */
export const textOf = (content) =>
  Array.isArray(content) ? content.filter(isText).map((part) => part.text).join("\n") : String(content ?? "");
export const othersOf = (content) => (Array.isArray(content) ? content.filter((part) => !isText(part)) : []);

const titleOf = (role) => (role === "user" ? "You" : `${role.charAt(0).toUpperCase()}${role.slice(1)}`);

/** An answer. answer.js takes it for one of the places where it shows what comes. */
export class Turn {
  /** `onPaint` is called after what is new has been shown. */
  constructor(onPaint) {
    made += 1;
    const detail = element("div", { id: `likely-${made}`, "aria-live": "polite" });
    const group = { class: "said tokens", tabIndex: 0, role: "group", "aria-label": "Tokens; the arrow keys choose one", "aria-describedby": detail.id };
    const [folded, text, called] = ["folded", "text", "called"].map((name) => element("div", { class: name }));
    const tokens = element("div", group);
    this.said = new Said({ folded, text, called, tokens, detail });
    this.plain = element("div", { class: "panel" }, folded, text, called);
    this.likely = element("div", { class: "panel", hidden: true }, tokens, detail);
    this.failure = element("div", { class: "failure", hidden: true });
    this.foot = element("p", { class: "quiet foot" });
    this.element = element("div", { class: "turn assistant" }, element("h3", {}, titleOf("assistant")), this.failure, this.plain, this.likely, this.foot);
    this.colours = false;
    // Tokens are drawn where they are seen, which may be long after they came.
    this.ask = inFrames(
      () => !this.likely.hidden && this.said.tokens.draw(),
      () => {
        onPaint();
        return false;
      },
    );
  }

  /** Shows the tokens in colours, if they came with probabilities, or the text. */
  colour(on) {
    this.colours = on;
    this.likely.hidden = !(on && this.said.coloured);
    this.plain.hidden = !this.likely.hidden;
    this.ask();
  }

  paint() {
    this.said.paint();
    this.colour(this.colours);
  }

  figures({ first, rate, tokens, prompt }) {
    const all = [
      first === "–" ? "" : `first token after ${first}`,
      rate === "–" ? "" : `${rate} tokens/s`,
      tokens === "–" ? "" : `${tokens} tokens`,
      prompt === "–" ? "" : `prompt of ${prompt}`,
    ];
    const text = all.filter(Boolean).join(" · ");
    if (this.foot.textContent !== text) this.foot.textContent = text;
  }

  fail(title, message, body) {
    const sent = body === "" ? null : element("pre", { tabIndex: 0, role: "region", "aria-label": "The error as it was sent" }, body);
    this.failure.replaceChildren(element("h4", {}, title), element("p", {}, message), ...(sent ? [sent] : []));
    this.failure.hidden = false;
  }
}
