// The playground: a request is edited, sent, and its response seen as it comes.
//
//   key.js            the key, and what the server tells of the model
//   conversation.js   the request as a conversation, of the turns of turn.js
//   editor.js         the request; form.js shows it as a form, extras.js media, files, adapters and sessions in it
//   media.js          images, audio and videos in it, of which attached.js has those of a message that is being written
//   code.js           it in other languages, with literals.js
//   run.js            sends it; records.js cuts the response into records, reading.js says what is in them
//   answer.js         shows the response: said.js what it says, tokens.js its tokens in colours, wire.js its records
//   page.js           what all of these use

import { Answer } from "./answer.js";
import { Conversation } from "./conversation.js";
import { Editor } from "./editor.js";
import { addMessages, showForm } from "./form.js";
import { forgetKey, hasKey, loadSetup } from "./key.js";
import { filesIn, namesOf } from "./media.js";
import { byId, element, tabs } from "./page.js";
import { run } from "./run.js";
import { legend } from "./tokens.js";

const base = new URL(".", document.baseURI).href;

async function main() {
  let setup;
  try {
    setup = await loadSetup(base);
  } catch (error) {
    byId("lost").textContent = `The server cannot be asked: ${error.message}`;
    byId("lost").hidden = false;
    return;
  }
  showModel(setup.model);
  for (const place of document.querySelectorAll(".legend .steps")) place.append(...legend());
  const answer = new Answer();
  const editor = new Editor(setup.model, base, (again) => showRequest(editor, setup.requests, again));
  const show = tabs(byId("edits"), () => editor.showCode());
  offer(setup.requests, editor);
  show("tab-form");
  const line = lineOf(editor, answer);
  connect(editor, line);
  begin(setup.requests, editor, line, answer);
}

/** Shows the conversation, if the model has one, or else the request. */
function begin(requests, editor, line, answer) {
  const entry = requests.find(({ starts }) => starts.length > 0);
  let conversation = null;
  const show = tabs(byId("sides"), (id) => {
    if (id === "tab-conversation") conversation?.resume();
    // What came while it was not seen.
    else answer.ask();
  });
  byId("sides").hidden = !entry;
  show(entry ? "tab-conversation" : "tab-request");
  if (!entry) return;
  conversation = new Conversation(editor, entry, line, answer);
  line.onTurn = () => conversation.show();
}

function showModel(model) {
  document.title = `${model.name} · Playground`;
  byId("model").textContent = model.name;
  const facts = [
    `${model.context.toLocaleString("en")} tokens of context`,
    model.engine,
    model.reasoning ? `reasoning: ${model.reasoning}` : null,
    model.tools ? `tools: ${model.tools}` : null,
    namesOf(Object.keys(model.media).filter((kind) => model.media[kind] > 0)) || null,
    model.lora ? `${model.adapters.length} adapters` : null,
  ];
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  byId("forget").hidden = !hasKey();
  byId("forget").addEventListener("click", forgetKey);
}

function offer(requests, editor) {
  const select = byId("dialect");
  const groups = new Map();
  for (const [at, { dialect, title, path }] of requests.entries()) {
    if (!groups.has(dialect)) groups.set(dialect, element("optgroup", { label: dialect }));
    groups.get(dialect).append(element("option", { value: at }, `${title} · ${path}`));
  }
  select.replaceChildren(...groups.values());
  select.addEventListener("change", () => editor.choose(requests[Number(select.value)]));
  editor.choose(requests[Number(select.value)]);
}

function showRequest(editor, requests, again) {
  const { entry, path, attributes } = editor.sent;
  byId("dialect").value = requests.indexOf(entry);
  const box = byId("streamed");
  const always = entry.stream_path !== "" && entry.stream_path === entry.path;
  const never = !entry.stream && entry.stream_path === "";
  box.checked = editor.streamed;
  box.disabled = always || never || (entry.stream !== null && editor.body === null);
  byId("path").textContent = `POST ${path}${entry.query ? `?${entry.query}` : ""}`;
  byId("endpoint").textContent = attributes ? `on an endpoint: /invocations with ${attributes}` : "on an endpoint: /invocations";
  byId("nothing").textContent = `Nothing has been sent yet. ${entry.file ? "Choose a file, and press Send." : "The example is ready: press Send."}`;
  const words = [...new Set(filesIn(editor.text).map(({ word }) => word))].join(", ");
  const stands = editor.file ? "the file of the form (multipart/form-data) that is sent" : "in its place a file's data is sent, in base64";
  byId("json-files").textContent = words && `${words}: ${stands}.`;
  if (again) showForm(byId("form"), editor);
  if (byId("tab-code").getAttribute("aria-selected") === "true") editor.showCode();
}

/**
 * What sends the request, one at a time: `send` for a turn of the conversation, or null; `count` is how many it has sent,
 * `asked` which messages the last one had, as JSON. `onTurn` is called when one begins and when it ends.
 */
function lineOf(editor, answer) {
  let stop = null;
  return {
    count: 0,
    asked: "",
    onTurn: () => {},
    get busy() {
      return stop !== null;
    },
    stop: () => stop?.abort(),
    async send(turn) {
      if (stop !== null) return;
      stop = new AbortController();
      this.count += 1;
      this.asked = JSON.stringify(editor.body?.messages) ?? "";
      swap(true);
      this.onTurn();
      byId("continue").hidden = true;
      const begun = performance.now();
      answer.begin(editor.streamed, turn);
      const told = {
        onOpen: (head) => answer.open(head),
        onRecord: (record) => answer.record(record),
        signal: stop.signal,
      };
      let how = "done";
      try {
        await run(await editor.request(), told);
      } catch (error) {
        how = stop.signal.aborted ? "stopped" : error.message;
      }
      const text = await answer.end(how, performance.now() - begun);
      stop = null;
      swap(false);
      this.onTurn();
      byId("continue").hidden = text === "" || !Array.isArray(editor.body?.messages);
      byId("continue").onclick = () => {
        byId("continue").hidden = true;
        byId("tab-form").click();
        addMessages(editor, [{ role: "assistant", content: text }, { role: "user", content: "" }]);
      };
    },
  };
}

function connect(editor, line) {
  byId("streamed").addEventListener("change", () => editor.setStreamed(byId("streamed").checked));
  byId("request").addEventListener("submit", (event) => {
    event.preventDefault();
    line.send(null);
  });
  for (const id of ["stop", "halt"]) byId(id).addEventListener("click", line.stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      byId(byId("talk").hidden ? "request" : "composer").requestSubmit();
    }
    if (event.key === "Escape") line.stop();
  });
}

/** The buttons that send, or in their place, and in their focus, those that stop. */
function swap(busy) {
  for (const [send, stop] of [["send", "stop"], ["say", "halt"]]) {
    const [from, to] = busy ? [send, stop] : [stop, send];
    const focused = document.activeElement === byId(from);
    byId(from).hidden = true;
    byId(to).hidden = false;
    if (focused) byId(to).focus();
  }
}

main();
