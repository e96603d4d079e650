// The response, shown as it comes: what it says, its figures, errors and records; in a turn of the conversation too, if it is one's.

import { byId, duration, element, inFrames, tabs } from "./page.js";
import { read } from "./reading.js";
import { contentOf } from "./records.js";
import { Said } from "./said.js";
import { Wire } from "./wire.js";

const PER_STEP = 20;
const GIST = 40;

export class Answer {
  constructor() {
    this.wire = new Wire(byId("wire"), byId("record"), byId("wire-count"));
    const [folded, text, called, tokens, detail] = ["folded", "text", "called", "tokens", "token"].map(byId);
    this.said = new Said({ folded, text, called, tokens, detail });
    this.turn = null;
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
      pending: [], next: 0, head: null, first: null, last: null, speaking: 0, prompt: null, generated: null,
      finish: null, error: null, body: "", ended: null,
    }); // prettier-ignore
  }

  /** A request is sent, which is that of a turn or null. */
  begin(streamed, turn) {
    this.reset();
    Object.assign(this, { streamed, turn, chosen: false });
    this.said.clear();
    this.wire.clear();
    byId("head").replaceChildren();
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
    const drawing = !byId("tokens-view").hidden && !byId("work").hidden && this.said.tokens.draw();
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
    this.said.take(found);
    this.turn?.said.take(found);
    if (found.texts.length + found.reasoning.length + found.calls.length + found.tokens.length > 0) {
      this.first ??= at;
      this.last = at;
      this.speaking += 1;
    }
    this.prompt = found.prompt ?? this.prompt;
    this.generated = found.generated ?? this.generated;
    this.finish = found.finish ?? this.finish;
  }

  paint() {
    this.said.paint();
    this.wire.draw();
    this.figures();
    if (this.said.tokens.all.length > 0 && byId("tab-tokens").hidden) {
      byId("tab-tokens").hidden = false;
      if (this.said.coloured && !this.chosen) this.show("tab-tokens");
    }
    this.turn?.paint();
    const left = this.pending.length > this.next;
    if (this.ended && !left) this.finishUp();
    return left;
  }

  figures() {
    const { first, last, generated, speaking, streamed } = this;
    const listed = this.said.tokens.all.length;
    const count = generated ?? (listed || speaking);
    const about = generated === null && listed === 0 && count > 0 ? "≈ " : "";
    const spent = streamed ? last - first : last;
    const rate = streamed ? (count - 1) / spent : count / spent;
    const figures = {
      first: streamed && first !== null ? duration(first) : "–",
      rate: count > 1 && spent > 0 ? `${about}${(1000 * rate).toFixed(1)}` : "–",
      tokens: count > 0 ? `${about}${count}` : "–",
      prompt: this.prompt === null ? "–" : `${this.prompt}`,
      total: this.ended ? duration(this.ended.at) : "–",
    };
    for (const [name, text] of Object.entries(figures)) put(byId(`figure-${name}`), text);
    this.turn?.figures(figures);
  }

  finishUp() {
    const { how, at, shown } = this.ended;
    const failed = this.head !== null && this.head.status !== 200;
    if (how === "stopped") this.tell(`Stopped after ${duration(at)}`, "");
    else if (how !== "done") this.fail("No response", how);
    else if (failed) this.fail(statusOf(this.head), this.error ?? "");
    else if (this.error !== null) this.fail("An error in the stream", this.error);
    else this.tell(`Done in ${duration(at)}${this.finish ? `, ended by ${this.finish}` : ""}`, "");
    shown(this.said.text);
    this.ended.shown = () => {};
  }

  fail(title, message) {
    this.turn?.fail(title, message, this.body);
    byId("failure-title").textContent = title;
    byId("failure-message").textContent = message;
    byId("failure-body").textContent = this.body;
    byId("failure-body").hidden = this.body === "";
    byId("failure").hidden = false;
    this.tell(`Failed: ${title}`, "bad");
    if (this.speaking > 0) return;
    byId("figures").hidden = true;
    if (this.head !== null) this.show("tab-head");
  }

  tell(text, kind) {
    for (const id of ["status", "told"]) {
      put(byId(id), text);
      byId(id).className = `status ${kind}`;
    }
  }
}

/** What is new in a record, in a few characters. */
function gist({ texts, reasoning, calls, tokens, finish, error }) {
  if (error !== null) return "error";
  const said = [...texts, ...reasoning].map(([, piece]) => piece).join("") || calls.map((call) => call.name + call.text).join("");
  const text = said || tokens.map((token) => token.text).join("");
  return text ? JSON.stringify(text.slice(0, GIST)).slice(1, -1) : finish ? `(${finish})` : "";
}

const statusOf = ({ status, reason }) => `HTTP ${status} ${reason}`.trim();

function put(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** On narrow screens the response is below what is seen. */
function inSight(place) {
  if (place.getBoundingClientRect().top < innerHeight - 80) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  place.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
}
