// The response: text, reasoning, calls, tokens, figures and errors, shown as they come.

import { byId, duration, element, inFrames, tabs } from "./page.js";
import { read } from "./reading.js";
import { contentOf } from "./records.js";
import { Tokens } from "./tokens.js";
import { Wire } from "./wire.js";

const PER_STEP = 20;
const SHOWN_AS_JSON = 50;
const LONG_LIST = 8;
const GIST = 40;
const LONG_TEXT = 1500;

export class Answer {
  constructor() {
    this.wire = new Wire(byId("wire"), byId("record"), byId("wire-count"));
    this.tokens = new Tokens(byId("tokens"), byId("token"));
    this.ask = inFrames(
      () => this.step(),
      () => this.paint(),
    );
    this.chosen = false;
    this.show = tabs(byId("views"), () => this.ask());
    byId("views").addEventListener("click", () => (this.chosen = true));
    this.reset();
  }

  reset() {
    Object.assign(this, {
      pending: [], next: 0, head: null, blocks: new Map(), calls: new Map(), fresh: new Set(), reasoning: null, text: "",
      first: null, last: null, said: 0, prompt: null, generated: null, finish: null, error: null, shown: 0, body: "",
      ended: null,
    }); // prettier-ignore
  }

  /** A request is sent. */
  begin(streamed) {
    this.reset();
    this.streamed = streamed;
    this.chosen = false;
    this.tokens.clear();
    this.wire.clear();
    for (const id of ["text", "folded", "called", "head"]) byId(id).replaceChildren();
    byId("nothing").hidden = true;
    byId("failure").hidden = true;
    byId("response").hidden = false;
    byId("figures").hidden = false;
    byId("tab-tokens").hidden = true;
    this.show("tab-text");
    this.tell("Sending …", "busy");
    inSight(byId("title-answer"));
    this.figures();
  }

  /** The head of the response is there. */
  open(head) {
    this.head = head;
    const rows = head.headers.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    byId("head").replaceChildren(element("p", {}, statusOf(head)), element("dl", {}, ...rows.flat()));
    if (head.status === 200) this.tell(this.streamed ? "Streaming …" : "Receiving …", "busy");
  }

  record(record) {
    this.pending.push(record);
    this.wire.add(record);
    this.ask();
  }

  /** Nothing more comes; resolves when all of it is shown. `how`: `done`, `stopped`, or the error of the connection. */
  end(how, at) {
    return new Promise((shown) => {
      this.ended = { how, at, shown };
      this.ask();
    });
  }

  step() {
    const end = Math.min(this.pending.length, this.next + PER_STEP);
    for (; this.next < end; this.next += 1) this.take(this.pending[this.next]);
    if (this.next === this.pending.length) {
      this.pending = [];
      this.next = 0;
    }
    const drawing = !byId("tokens-view").hidden && this.tokens.draw();
    return this.pending.length > 0 || drawing;
  }

  take(record) {
    const { text, at } = record;
    if (this.head.status !== 200) {
      this.body += text;
      record.says = "error";
      const said = read(contentOf(text, this.head.form).value);
      this.error = said.error ?? this.error;
      return;
    }
    const found = read(contentOf(text, this.head.form).value);
    record.says = gist(found);
    if (found.error !== null) {
      this.error = found.error;
      this.body = text;
    }
    for (const [index, piece] of found.texts) {
      this.block(index).fresh += piece;
      if (index === 0) this.text += piece;
    }
    for (const [, piece] of found.reasoning) this.reason(piece);
    for (const call of found.calls) this.call(call);
    for (const token of found.tokens) this.tokens.tokens.push(token);
    if (found.shown !== undefined && this.shown < SHOWN_AS_JSON) {
      this.shown += 1;
      byId("text").append(element("pre", { class: "json", tabIndex: 0, role: "region", "aria-label": "JSON" }, brief(found.shown)));
    }
    if (found.texts.length + found.reasoning.length + found.calls.length + found.tokens.length > 0) {
      this.first ??= at;
      this.last = at;
      this.said += 1;
    }
    this.prompt = found.prompt ?? this.prompt;
    this.generated = found.generated ?? this.generated;
    this.finish = found.finish ?? this.finish;
  }

  block(index) {
    if (!this.blocks.has(index)) {
      const body = element("div", { class: "said" }, element("div"));
      if (index > 0) byId("text").append(element("h4", {}, `Choice ${index + 1}`));
      byId("text").append(body);
      this.blocks.set(index, { body, fresh: "", shown: 0 });
    }
    const block = this.blocks.get(index);
    this.fresh.add(block);
    return block;
  }

  folded() {
    if (this.reasoning === null) {
      const body = element("div", { class: "said" }, element("div"));
      byId("folded").append(element("details", { class: "fold" }, element("summary", {}, "Reasoning"), body));
      this.reasoning = { body, fresh: "", shown: 0, begun: false };
    }
    return this.reasoning;
  }

  reason(piece) {
    const folded = this.folded();
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
      byId("called").append(element("details", { class: "fold" }, summary, body));
      this.calls.set(key, { body, title, fresh: "", shown: 0 });
    }
    const call = this.calls.get(key);
    if (name && !call.title.textContent) call.title.textContent = name;
    call.fresh += text;
    this.fresh.add(call);
  }

  paint() {
    for (const part of this.fresh) append(part);
    this.fresh.clear();
    this.wire.draw();
    this.figures();
    const coloured = this.tokens.tokens.length > 0;
    if (coloured && byId("tab-tokens").hidden) {
      byId("tab-tokens").hidden = false;
      const likely = this.tokens.tokens.some((token) => token.logprob !== null);
      // Tokens are all there is where nothing is folded.
      if (likely && !this.chosen && this.calls.size === 0 && this.reasoning === null) this.show("tab-tokens");
    }
    const left = this.pending.length > this.next;
    if (this.ended && !left) this.finishUp();
    return left;
  }

  figures() {
    const { first, last, generated, said } = this;
    const count = generated ?? (this.tokens.tokens.length || said);
    const about = generated === null && this.tokens.tokens.length === 0 && count > 0 ? "≈ " : "";
    const spent = this.streamed ? last - first : last;
    const rate = this.streamed ? (count - 1) / spent : count / spent;
    put("figure-first", this.streamed && first !== null ? duration(first) : "–");
    put("figure-rate", count > 1 && spent > 0 ? `${about}${(1000 * rate).toFixed(1)}` : "–");
    put("figure-tokens", count > 0 ? `${about}${count}` : "–");
    put("figure-prompt", this.prompt === null ? "–" : `${this.prompt}`);
    put("figure-total", this.ended ? duration(this.ended.at) : "–");
  }

  finishUp() {
    const { how, at, shown } = this.ended;
    const failed = this.head !== null && this.head.status !== 200;
    if (how === "stopped") this.tell(`Stopped after ${duration(at)}`, "");
    else if (how !== "done") this.fail("No response", how);
    else if (failed) this.fail(statusOf(this.head), this.error ?? "");
    else if (this.error !== null) this.fail("An error in the stream", this.error);
    else this.tell(`Done in ${duration(at)}${this.finish ? `, ended by ${this.finish}` : ""}`, "");
    shown(this.text);
    this.ended.shown = () => {};
  }

  fail(title, message) {
    byId("failure-title").textContent = title;
    byId("failure-message").textContent = message;
    byId("failure-body").textContent = this.body;
    byId("failure-body").hidden = this.body === "";
    byId("failure").hidden = false;
    this.tell(`Failed: ${title}`, "bad");
    if (this.said > 0) return;
    byId("figures").hidden = true;
    if (this.head !== null) this.show("tab-head");
  }

  tell(text, kind) {
    const status = byId("status");
    if (status.textContent !== text) status.textContent = text;
    status.className = kind;
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

/** What is new in a record, in a few characters. */
function gist({ texts, reasoning, calls, tokens, finish, error }) {
  if (error !== null) return "error";
  const said = [...texts, ...reasoning].map(([, piece]) => piece).join("") || calls.map((call) => call.name + call.text).join("");
  const text = said || tokens.map((token) => token.text).join("");
  return text ? JSON.stringify(text.slice(0, GIST)).slice(1, -1) : finish ? `(${finish})` : "";
}

const statusOf = ({ status, reason }) => `HTTP ${status} ${reason}`.trim();

function put(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

/** On narrow screens the response is below what is seen. */
function inSight(place) {
  if (place.getBoundingClientRect().top < innerHeight - 80) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  place.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
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
