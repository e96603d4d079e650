// The playground: a request is edited, sent, and its response seen as it comes.
//
//   key.js       the key, and what the server tells of the model
//   editor.js    the request; form.js shows it as a form, extras.js images, adapters and sessions in it
//   code.js      it in other languages, with literals.js
//   run.js       sends it; records.js cuts the response into records, reading.js says what is in them
//   answer.js    shows the response; tokens.js its tokens in colours, wire.js its records as they came
//   page.js      what all of these use

import { Answer } from "./answer.js";
import { Editor } from "./editor.js";
import { addMessages, showForm } from "./form.js";
import { forgetKey, hasKey, loadSetup } from "./key.js";
import { byId, element, tabs } from "./page.js";
import { run } from "./run.js";

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
  byId("work").hidden = false;
  const answer = new Answer();
  const editor = new Editor(setup.model, base, (again) => showRequest(editor, again));
  const show = tabs(byId("edits"), () => editor.showCode());
  offer(setup.requests, editor);
  show("tab-form");
  connect(editor, answer);
}

function showModel(model) {
  document.title = `${model.name} · Playground`;
  byId("model").textContent = model.name;
  const facts = [
    `${model.context.toLocaleString("en")} tokens of context`,
    model.engine,
    model.reasoning ? `reasoning: ${model.reasoning}` : null,
    model.tools ? `tools: ${model.tools}` : null,
    model.images > 0 ? "images" : null,
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

function showRequest(editor, again) {
  const { entry, path, attributes } = editor.sent;
  const box = byId("streamed");
  const always = entry.stream_path !== "" && entry.stream_path === entry.path;
  const never = !entry.stream && entry.stream_path === "";
  box.checked = editor.streamed;
  box.disabled = always || never || (entry.stream !== null && editor.body === null);
  byId("path").textContent = `POST ${path}${entry.query ? `?${entry.query}` : ""}`;
  byId("endpoint").textContent = attributes ? `on an endpoint: /invocations with ${attributes}` : "on an endpoint: /invocations";
  if (again) showForm(byId("form"), editor);
  if (byId("tab-code").getAttribute("aria-selected") === "true") editor.showCode();
}

function connect(editor, answer) {
  let stop = null;
  byId("streamed").addEventListener("change", () => editor.setStreamed(byId("streamed").checked));
  const send = async () => {
    if (stop !== null) return;
    stop = new AbortController();
    swap("send", "stop");
    byId("continue").hidden = true;
    const begun = performance.now();
    answer.begin(editor.streamed);
    const told = {
      onOpen: (head) => answer.open(head),
      onRecord: (record) => answer.record(record),
      signal: stop.signal,
    };
    let how = "done";
    try {
      await run(editor.request, told);
    } catch (error) {
      how = stop.signal.aborted ? "stopped" : error.message;
    }
    const text = await answer.end(how, performance.now() - begun);
    stop = null;
    swap("stop", "send");
    byId("continue").hidden = text === "" || !Array.isArray(editor.body?.messages);
    byId("continue").onclick = () => {
      byId("continue").hidden = true;
      byId("tab-form").click();
      addMessages(editor, [{ role: "assistant", content: text }, { role: "user", content: "" }]);
    };
  };
  byId("request").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => stop?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
    if (event.key === "Escape") stop?.abort();
  });
}

/** One button in another's place, and in its focus. */
function swap(from, to) {
  const focused = document.activeElement === byId(from);
  byId(from).hidden = true;
  byId(to).hidden = false;
  if (focused) byId(to).focus();
}

main();
