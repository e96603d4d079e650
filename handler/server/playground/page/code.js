// The request as others would send it: curl, a client of Python's, boto3 for an endpoint.

import { heredoc, python, pythonArguments, shell, Source } from "./literals.js";
import { fieldsOf, filesIn } from "./media.js";

const ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes";
const SESSION = "X-Amzn-SageMaker-Session-Id";
/** Known to the client by name; others it takes in `extra_body`. */
const OPENAI = {
  "/v1/chat/completions": [
    "chat.completions",
    "messages model frequency_penalty logit_bias logprobs max_tokens max_completion_tokens n parallel_tool_calls presence_penalty reasoning_effort response_format seed stop stream stream_options temperature tool_choice tools top_logprobs top_p user",
  ],
  "/v1/completions": [
    "completions",
    "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options suffix temperature top_p user",
  ],
  "/v1/embeddings": ["embeddings", "input model dimensions encoding_format user"],
  "/v1/audio/transcriptions": [
    "audio.transcriptions",
    "file model chunking_strategy include language prompt response_format stream temperature timestamp_granularities",
  ],
  "/v1/audio/translations": ["audio.translations", "file model prompt response_format temperature"],
  "/v1/responses": [
    "responses",
    "include input instructions max_output_tokens metadata model parallel_tool_calls reasoning store stream temperature text tool_choice tools top_logprobs top_p truncation user",
  ],
};

/**
 * What is to be sent: {entry, body, text, path, attributes, streamed, session, base, key, file}. `body` is the text's JSON,
 * null where it is none, `key` whether the server needs one, `file` that of a form (media.js). Returns the source.
 */
export function curl(sent) {
  const lines = [`curl${sent.streamed ? " -N" : ""} ${shell(urlOf(sent))}`];
  if (!sent.file) lines.push("-H 'Content-Type: application/json'");
  for (const [name, value] of Object.entries(headersOf(sent))) lines.push(`-H ${shell(`${name}: ${value}`)}`);
  if (sent.key) lines.push('-H "Authorization: Bearer $LMI_API_KEY"');
  if (sent.file) lines.push(...parts(sent));
  // An argument would be too long for most systems.
  else lines.push(filesIn(sent.text).length > 0 ? `-d @- ${heredoc(sent.text)}` : `-d ${shell(sent.text)}`);
  return lines.join(" \\\n  ") + "\n";
}

/** Of a form, what curl makes it of. */
function parts(sent) {
  const { entry, file } = sent;
  // Of -F some characters mean something at the beginning of a value, or in it.
  const fields = fieldsOf(sent).map(([name, text]) => `${/^[@<]|[;"]/.test(text) ? "--form-string" : "-F"} ${shell(`${name}=${text}`)}`);
  const path = /[",;\\]/.test(file.name) ? `"${file.name.replace(/["\\]/g, "\\$&")}"` : file.name;
  return [...fields, `-F ${shell(`${entry.file}=@${path}`)}`];
}

const urlOf = ({ base, path, entry }) => `${base}${path.slice(1)}${entry.query ? `?${entry.query}` : ""}`;

/** The headers that the request needs beside its type and the key. */
export function headersOf({ entry, session }) {
  const headers = { ...entry.headers };
  if (entry.here) headers[ATTRIBUTES] = entry.here;
  if (session) headers[SESSION] = session;
  return headers;
}

export function client(sent) {
  if (sent.body === null) return "# The body is no JSON: no client would send it.\n";
  const write = CLIENTS[sent.entry.client];
  return withImports((write && write(sent)) || http(sent));
}

/** With what literals.js reads files with. */
const withImports = (source) =>
  source.includes("b64encode(Path(") ? `from base64 import b64encode\nfrom pathlib import Path\n\n${source}` : source;

const opened = (file) => new Source(`open(${python(file.name)}, "rb")`);

const CLIENTS = { openai, anthropic, azure, huggingface };
const KEY = 'os.environ["LMI_API_KEY"]';
const os = ({ key }) => (key ? "import os\n\n" : "");

function openai(sent) {
  const { entry, base, key, streamed, file } = sent;
  const [method, names] = OPENAI[entry.path] ?? [];
  const known = new Set(names?.split(" "));
  // It sends files as forms alone, and its translations are no streams.
  const none = entry.file !== "" && (!file || (streamed && !known.has("stream")));
  if (!method || none) return null;
  const body = file ? { ...sent.body, [entry.file]: opened(file) } : sent.body;
  const given = Object.fromEntries(Object.entries(body).filter(([name]) => known.has(name)));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !known.has(name)));
  if (Object.keys(extra).length > 0) given.extra_body = extra;
  const headers = headersOf(sent);
  if (Object.keys(headers).length > 0) given.extra_headers = headers;
  const made = `client = OpenAI(base_url=${python(`${base}v1`)}, api_key=${key ? KEY : '"none"'})\n`;
  const call = `client.${method}.create(\n${pythonArguments(given)})`;
  return `${os(sent)}from openai import OpenAI\n\n${made}${shown(call, streamed)}`;
}

const shown = (call, streamed) =>
  streamed ? `for event in ${call}:\n    print(event)\n` : `response = ${call}\nprint(response)\n`;

const SAMPLING = new Set(["temperature", "top_p", "top_k"]);

function anthropic(sent) {
  const { body, base, key, entry, streamed } = sent;
  const headers = headersOf(sent);
  delete headers["anthropic-version"];
  // Newer ones of its clients have no arguments for these.
  const split = (within) => Object.fromEntries(Object.entries(body).filter(([name]) => SAMPLING.has(name) === within));
  const given = split(false);
  if (Object.keys(split(true)).length > 0) given.extra_body = split(true);
  if (Object.keys(headers).length > 0) given.extra_headers = headers;
  const made = `client = Anthropic(base_url=${python(base.replace(/\/$/, ""))}, api_key=${key ? KEY : '"none"'})\n`;
  const method = entry.path.endsWith("/count_tokens") ? "count_tokens" : "create";
  return `${os(sent)}from anthropic import Anthropic\n\n${made}${shown(`client.messages.${method}(\n${pythonArguments(given)})`, streamed)}`;
}

function azure(sent) {
  const { body, base, key, streamed, session } = sent;
  const given = session ? { ...body, headers: { [SESSION]: session } } : body;
  const lines = "from azure.ai.inference import ChatCompletionsClient\nfrom azure.core.credentials import AzureKeyCredential\n\n";
  const made = `client = ChatCompletionsClient(\n    endpoint=${python(base.replace(/\/$/, ""))}, credential=AzureKeyCredential(${key ? KEY : '"none"'})\n)\n`;
  return os(sent) + lines + made + shown(`client.complete(\n${pythonArguments(given)})`, streamed);
}

function huggingface(sent) {
  const { body, base, key, streamed } = sent;
  if (typeof body.inputs !== "string") return null;
  const token = key ? `, token=${KEY}` : "";
  const { top_n_tokens: top, ...parameters } = body.parameters ?? {};
  const given = { ...parameters, ...(top === undefined ? {} : { top_n_tokens: top }), ...(streamed ? { stream: true } : {}) };
  const made = `client = InferenceClient(${python(base.replace(/\/$/, ""))}${token})\n`;
  const call = `client.text_generation(\n    ${python(body.inputs)},\n${pythonArguments(given)})`;
  return `${os(sent)}from huggingface_hub import InferenceClient\n\n${made}${shown(call, streamed)}`;
}

function http(sent) {
  const { key, streamed, file, entry } = sent;
  const headers = headersOf(sent);
  const pairs = Object.entries(headers).map(([name, value]) => `${python(name)}: ${python(value)}`);
  if (key) pairs.push(`"Authorization": f"Bearer {${KEY.replaceAll('"', "'")}}"`);
  const given = pairs.length > 0 ? `headers = {${pairs.join(", ")}}\n` : "";
  const more = pairs.length > 0 ? ", headers=headers" : "";
  const body = file ? formOf(sent) : sent.body;
  const carried = file ? `data=body, files={${python(entry.file)}: ${python(opened(file))}}` : "json=body";
  const call = `${python(urlOf(sent))}, ${carried}${more}, timeout=600`;
  const begin = `${os(sent)}import httpx\n\n${given}body = ${python(body)}\n`;
  if (!streamed) return `${begin}response = httpx.post(${call})\nprint(response.status_code, response.text)\n`;
  return `${begin}with httpx.stream("POST", ${call}) as response:\n    for line in response.iter_lines():\n        print(line)\n`;
}

/** Its fields as httpx takes them: a list has a field each. */
function formOf(sent) {
  const fields = {};
  for (const [name, text] of fieldsOf(sent)) fields[name] = name in fields ? [fields[name], text].flat() : text;
  return fields;
}

export function boto3({ body, text, attributes, streamed, session }) {
  const sent = body === null ? `${python(text)}` : `json.dumps(${python(body, "    ")})`;
  const more = [
    attributes ? `    CustomAttributes=${python(attributes)},\n` : "",
    session ? `    SessionId=${python(session)},\n` : "",
  ].join("");
  const method = streamed ? "invoke_endpoint_with_response_stream" : "invoke_endpoint";
  const begin = `${body === null ? "" : "import json\n\n"}import boto3\n\nruntime = boto3.client("sagemaker-runtime")\n`;
  const call = `response = runtime.${method}(\n    EndpointName="my-endpoint",\n    ContentType="application/json",\n${more}    Body=${sent},\n)\n`;
  const end = streamed
    ? 'for event in response["Body"]:\n    print(event["PayloadPart"]["Bytes"].decode(), end="", flush=True)\n'
    : 'print(response["Body"].read().decode())\n';
  return withImports(begin + call + end);
}
