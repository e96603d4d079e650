// What an answer says: its text, reasoning and calls, and its tokens. The response has one, and each turn of a conversation.

import { element } from "./page.js";
import { Tokens } from "./tokens.js";

const SHOWN_AS_JSON = 50;
const LONG_LIST = 8;
const LONG_TEXT = 1500;

export class Said {
  /** The elements where each goes: {folded, text, called, tokens, detail}. */
  constructor(places) {
    this.places = places;
    this.tokens = new Tokens(places.tokens, places.detail);
    this.clear();
  }

  clear() {
    Object.assign(this, { blocks: new Map(), calls: new Map(), fresh: new Set(), reasoning: null, text: "", shown: 0 });
    this.tokens.clear();
    for (const name of ["folded", "text", "called"]) this.places[name].replaceChildren();
  }

  /** Takes what reading.js found in a record; `paint` shows it. */
  take(found) {
    for (const [index, piece] of found.texts) {
      this.block(index).fresh += piece;
      if (index === 0) this.text += piece;
    }
    for (const [, piece] of found.reasoning) this.reason(piece);
    for (const call of found.calls) this.call(call);
    for (const token of found.tokens) this.tokens.add(token);
    if (found.shown !== undefined && this.shown < SHOWN_AS_JSON) {
      this.shown += 1;
      const json = { class: "json", tabIndex: 0, role: "region", "aria-label": "JSON" };
      this.places.text.append(element("pre", json, brief(found.shown)));
    }
  }

  paint() {
    for (const part of this.fresh) append(part);
    this.fresh.clear();
  }

  /** All that it has said, as if in one record. */
  get all() {
    const whole = ({ body, fresh }) => body.textContent + fresh;
    return {
      texts: [...this.blocks].map(([index, block]) => [index, whole(block)]),
      reasoning: this.reasoning === null ? [] : [[0, whole(this.reasoning)]],
      calls: [...this.calls].map(([key, call]) => ({ key, id: call.id, name: call.title.textContent, text: whole(call) })),
      tokens: this.tokens.all,
    };
  }

  /** Whether the tokens are all that there is, and have colours: nothing is folded. */
  get coloured() {
    return this.tokens.likely && this.calls.size === 0 && this.reasoning === null;
  }

  block(index) {
    if (!this.blocks.has(index)) {
      const body = element("div", { class: "said" }, element("div"));
      if (index > 0) this.places.text.append(element("h4", {}, `Choice ${index + 1}`));
      this.places.text.append(body);
      this.blocks.set(index, { body, fresh: "", shown: 0 });
    }
    const block = this.blocks.get(index);
    this.fresh.add(block);
    return block;
  }

  reason(piece) {
    if (this.reasoning === null) {
      const body = element("div", { class: "said" }, element("div"));
      this.places.folded.append(element("details", { class: "fold" }, element("summary", {}, "Reasoning"), body));
      this.reasoning = { body, fresh: "", shown: 0, begun: false };
    }
    const folded = this.reasoning;
    // Models begin it with empty lines.
    folded.fresh += folded.begun ? piece : piece.trimStart();
    folded.begun ||= folded.fresh !== "";
    this.fresh.add(folded);
  }

  call({ key, id, name, text }) {
    if (!this.calls.has(key)) {
      const body = element("pre", { tabIndex: 0, role: "region", "aria-label": "Arguments" });
      const title = element("code", {}, name);
      const summary = element("summary", {}, "Tool call ", title, id ? element("span", { class: "quiet" }, ` ${id}`) : null);
      this.places.called.append(element("details", { class: "fold" }, summary, body));
      this.calls.set(key, { body, title, id, fresh: "", shown: 0 });
    }
    const call = this.calls.get(key);
    if (name && !call.title.textContent) call.title.textContent = name;
    call.fresh += text;
    this.fresh.add(call);
  }
}

/** Shows what is new of a text, in further paragraphs where it is long: each is laid out as a whole. */
function append(part) {
  const { body, fresh } = part;
  part.fresh = "";
  const cut = fresh.indexOf("\n") + 1;
  if (body.tagName === "PRE" || cut === 0 || part.shown < LONG_TEXT) {
    part.shown += fresh.length;
    (body.lastElementChild ?? body).append(fresh);
    return;
  }
  body.lastElementChild.append(fresh.slice(0, cut));
  body.append(element("div"));
  Object.assign(part, { shown: 0, fresh: fresh.slice(cut) });
  append(part);
}

/** JSON with long lists of numbers cut short, as vectors are. */
const brief = (value) =>
  JSON.stringify(
    value,
    (_, inner) =>
      Array.isArray(inner) && inner.length > LONG_LIST && inner.every((one) => typeof one === "number")
        ? [...inner.slice(0, 4), `… ${inner.length} numbers in all`]
        : inner,
    2,
  );
