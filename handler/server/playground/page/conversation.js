// A conversation: the same chat completion that the request's view shows, as turns.
//
// The request has the messages as they were sent last; the answer to them joins them with the next message. What was
// changed or sent in the request's view is taken over when the conversation is seen again.

import { Attached } from "./attached.js";
import { filesIn } from "./media.js";
import { byId, element } from "./page.js";
import { othersOf, textOf, Turn, turnOf } from "./turn.js";

const MOST_MESSAGES = 200;
const TOKENS_A_CHARACTER = 1 / 3;
const NEAR_PX = 120;

export class Conversation {
  /** `entry`: the request that it is; `line`: what sends it (main.js); `answer`: what has come (answer.js). */
  constructor(editor, entry, line, answer) {
    Object.assign(this, { editor, entry, line, answer, editing: false, follows: true });
    const before = () => (this.replaces ? this.sent.slice(0, -1) : this.sent);
    this.attached = new Attached(editor, entry, (parts) => [...before(), messageOf("", parts)]);
    this.logprobs = entry.switches.find(({ set }) => "logprobs" in set).set;
    byId("starts").append(...entry.starts.map(([first]) => this.chip(first)));
    this.connect();
    this.begin();
    byId("message").focus();
  }

  connect() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    byId("message").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.edited();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation();
      this.submit();
    });
    byId("system").addEventListener("input", () => this.write());
    byId("colours").addEventListener("change", () => {
      this.editor.turn(this.logprobs, byId("colours").checked);
      this.colour();
    });
    byId("again").addEventListener("click", () => this.answerAgain());
    byId("edit").addEventListener("click", () => this.edit());
    byId("cancel").addEventListener("click", () => this.edited());
    byId("anew").addEventListener("click", () => {
      this.line.stop();
      this.begin();
      byId("message").focus();
    });
    byId("as-request").addEventListener("click", () => byId("tab-request").click());
    // Who looks back scrolls up. That the end is out of sight does not say so: the page may just have grown.
    let last = 0;
    const seen = () => {
      const up = scrollY < last;
      last = scrollY;
      this.follows = innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR_PX || (this.follows && !up);
    };
    addEventListener("scroll", seen, { passive: true });
  }

  /** Empty, or with these messages and an answer to them. */
  begin(messages = [], last = null) {
    Object.assign(this, { messages: [], turns: [], last, left: 0 });
    byId("turns").replaceChildren();
    for (const message of messages) this.push(message, turnOf(message));
    if (last) byId("turns").append(last.element);
    this.edited();
    this.write();
  }

  push(message, turn) {
    this.messages.push(message);
    this.turns.push(turn);
    byId("turns").append(turn.element);
  }

  async submit() {
    const { fault } = this.attached;
    await this.attached.reading;
    // What was still being read cannot be attached: nothing is sent without it before that is seen.
    if (this.attached.fault !== fault && this.attached.fault !== "") return;
    const field = byId("message");
    if (this.line.busy || (field.value.trim() === "" && this.attached.parts.length === 0)) return;
    const text = field.value;
    field.value = "";
    this.say(text);
  }

  /** Whether the next message takes the place of the last one. One without an answer goes: in most templates the roles take turns. */
  get replaces() {
    return this.editing || this.last?.said.text === "";
  }

  /** Sends a message, with what is attached. */
  say(text) {
    const message = messageOf(text, this.attached.take());
    if (this.replaces) this.takeBack();
    if (this.last) this.push({ role: "assistant", content: this.last.said.text }, this.last);
    this.last = null;
    this.edited();
    this.fit(message);
    this.push(message, turnOf(message));
    this.answerAgain();
  }

  /** Sends the messages, for an answer in place of the last one. */
  answerAgain() {
    this.last?.element.remove();
    this.last = new Turn(() => this.follow());
    byId("turns").append(this.last.element);
    this.follows = true;
    this.write();
    this.colour();
    this.line.send(this.last);
    this.known.sent = this.line.count;
  }

  /** Takes the last message of the user away, with its answer. */
  takeBack() {
    this.messages.pop();
    this.turns.pop().element.remove();
    this.last?.element.remove();
    this.last = null;
  }

  /** Leaves out the oldest messages where all with this one, and an answer, are more than the model can read. */
  fit(message) {
    const { editor, line, answer } = this;
    // What the last request and its answer were counted as tells how many tokens a character is, or if there were files,
    // each of these.
    const counted = line.asked.length > 0 && answer.prompt > 0;
    const files = filesIn(line.asked).length;
    const tokens = answer.prompt + answer.generated;
    const characters = line.asked.length + answer.said.text.length;
    const each = counted && files === 0 ? tokens / characters : TOKENS_A_CHARACTER;
    const eachFile = counted && files > 0 ? Math.max(0, tokens - characters * each) / files : 0;
    const room = editor.model.context - (editor.body.max_tokens ?? 0);
    const tokensOf = (text) => text.length * each + filesIn(text).length * eachFile;
    const over = () => this.messages.length >= MOST_MESSAGES || tokensOf(JSON.stringify([...this.sent, message])) > room;
    while (this.messages.length > 0 && over()) {
      do {
        this.messages.shift();
        this.turns.shift().element.remove();
        this.left += 1;
      } while (this.messages.length > 0 && this.messages[0].role !== "user");
    }
  }

  /** The messages as they are sent. */
  get sent() {
    const content = byId("system").value;
    return [...(content.trim() ? [{ role: "system", content }] : []), ...this.messages];
  }

  /** Puts them into the request; before anything is said, the example's. */
  write() {
    const messages = this.messages.length > 0 ? this.sent : [...this.sent, ...this.entry.body.messages];
    this.editor.change((body) => (body.messages = messages), true);
    this.known = { messages: JSON.stringify(messages), sent: this.line.count };
    byId("system-gist").textContent = byId("system").value.trim() ? "yours" : "the model's own";
  }

  /** The conversation is seen again: takes over what the request's view has made of it. */
  resume() {
    const { editor, entry, line, answer, known } = this;
    const chats = Array.isArray(editor.body?.messages) && editor.body.messages.every((one) => typeof one?.role === "string");
    if (editor.entry !== entry || editor.body === null) editor.choose(entry);
    byId("colours").checked = editor.has(this.logprobs);
    if (!chats) this.write();
    const messages = [...editor.body.messages];
    const text = JSON.stringify(messages);
    if (text !== known.messages || (line.count !== known.sent && line.asked === text)) {
      byId("system").value = messages[0]?.role === "system" ? textOf(messages.shift().content) : "";
      this.adopt(messages, line.asked === text && answer.said.text !== "" ? answer.said.all : null);
    }
    this.colour();
  }

  /** Goes on from these messages; `said` is the answer to them. What has none yet is still to be sent. */
  adopt(messages, said) {
    let draft = "";
    if (said === null && messages.at(-1)?.role === "user") draft = messages.pop().content;
    if (said === null && messages.at(-1)?.role === "assistant") said = { ...NOTHING, texts: [[0, textOf(messages.pop().content)]] };
    const last = said && new Turn(() => this.follow());
    last?.said.take(said);
    last?.paint();
    // It may be still on its way.
    if (this.line.busy) this.answer.turn = last;
    this.begin(messages, last);
    const example = this.messages.length === 0 && draft === this.entry.body.messages[0].content;
    this.draft(example ? "" : draft);
  }

  /** Puts a message's content where the next one is written. */
  draft(content) {
    byId("message").value = textOf(content);
    this.attached.put(othersOf(content));
  }

  edit() {
    this.editing = true;
    this.draft(this.messages.at(-1).content);
    byId("message").focus();
    this.show();
  }

  edited() {
    if (this.editing) this.draft("");
    this.editing = false;
    this.show();
  }

  /** Shows the tokens' probabilities, or not. */
  colour() {
    const on = byId("colours").checked;
    for (const turn of [...this.turns, this.last]) turn?.colour?.(on);
    byId("legend").hidden = !on;
    this.show();
  }

  /** What can be done now. */
  show() {
    const { messages, last, left, line, editing } = this;
    const begun = messages.length > 0;
    byId("begin").hidden = begun;
    byId("after").hidden = !begun || line.busy;
    byId("again").textContent = last?.said.text ? "Regenerate" : "Try again";
    byId("cancel").hidden = !editing;
    byId("left").hidden = left === 0;
    byId("left").textContent = `The oldest ${left} messages are left out: the model reads ${this.editor.model.context.toLocaleString("en")} tokens.`;
    const users = messages.filter(({ role }) => role === "user").map(({ content }) => content);
    const start = this.entry.starts.find((texts) => texts.length > users.length && users.every((text, at) => text === texts[at]));
    byId("next").replaceChildren(...(begun && start && last?.said.text ? [this.chip(start[users.length])] : []));
    this.follow();
  }

  chip(text) {
    const button = element("button", { type: "button", class: "chip" }, text);
    button.addEventListener("click", () => {
      byId("message").focus();
      this.say(text);
    });
    return button;
  }

  follow() {
    if (this.follows && !byId("talk").hidden && this.messages.length > 0) scrollTo(0, document.documentElement.scrollHeight);
  }
}

/** Of the user, with these parts beside the text. */
function messageOf(text, parts) {
  const said = text.trim() === "" ? [] : [{ type: "text", text }];
  return { role: "user", content: parts.length === 0 ? text : [...said, ...parts] };
}

const NOTHING = { texts: [], reasoning: [], calls: [], tokens: [] };
