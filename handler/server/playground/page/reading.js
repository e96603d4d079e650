// What a record says, in whichever dialect: what is new of the text, the reasoning, the calls, the tokens.
//
// A new dialect needs something here only if its records are like none of these; until then its JSON is shown.

const nothing = () => ({
  texts: [],
  reasoning: [],
  calls: [],
  tokens: [],
  prompt: null,
  generated: null,
  finish: null,
  error: null,
  shown: undefined,
});

/** What a record's JSON says; `shown` is what there are no words for, to be shown as JSON. */
export function read(value) {
  const found = nothing();
  if (value === undefined) return found;
  const error = errorOf(value);
  if (error !== null) return { ...found, error };
  if (!READERS.some((reader) => reader(value, found))) found.shown = value;
  return found;
}

function errorOf(value) {
  const error = value?.error;
  // Azure's has a word there, and what it means beside it.
  if (typeof error === "string") return typeof value.message === "string" ? value.message : error;
  if (typeof error?.message === "string") return error.message;
  if (value?.type === "response.failed") return value.response?.error?.message ?? "the response failed";
  const plain = typeof value?.message === "string" && ("code" in value || value.object === "error");
  return plain ? value.message : null;
}

const READERS = [openai, anthropic, responses, inputs, minimal, transcript];
const add = (list, index, text) => {
  if (typeof text === "string" && text !== "") list.push([index, text]);
};

function openai(value, found) {
  if (!Array.isArray(value?.choices)) return false;
  for (const choice of value.choices) {
    const said = choice.delta ?? choice.message ?? { content: choice.text };
    const index = choice.index ?? 0;
    add(found.reasoning, index, said.reasoning ?? said.reasoning_content);
    add(found.texts, index, said.content);
    for (const [position, call] of (said.tool_calls ?? []).entries()) {
      found.calls.push(callOf(`${index}.${call.index ?? position}`, call.function, call.id));
    }
    if (said.function_call) found.calls.push(callOf(`${index}.0`, said.function_call));
    if (choice.logprobs) found.tokens.push(...openaiTokens(choice.logprobs));
    found.finish = choice.finish_reason ?? found.finish;
  }
  found.prompt = value.usage?.prompt_tokens ?? null;
  found.generated = value.usage?.completion_tokens ?? null;
  return true;
}

const callOf = (key, given, id) => ({ key, id: id ?? "", name: given?.name ?? "", text: given?.arguments ?? "" });

function openaiTokens(logprobs) {
  if (Array.isArray(logprobs.content)) {
    return logprobs.content.map((one) => ({
      text: one.token,
      logprob: one.logprob,
      top: (one.top_logprobs ?? []).map((other) => [other.token, other.logprob]),
    }));
  }
  return (logprobs.tokens ?? []).map((text, at) => ({
    text,
    logprob: logprobs.token_logprobs?.[at] ?? null,
    top: Object.entries(logprobs.top_logprobs?.[at] ?? {}),
  }));
}

const ANTHROPIC = new Set([
  "message", "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
  "content_block_stop", "ping",
]); // prettier-ignore

function anthropic(value, found) {
  if (!ANTHROPIC.has(value?.type)) return false;
  if (value.type === "message") value.content.forEach((block, at) => anthropicBlock(block, at, found));
  if (value.type === "content_block_start") anthropicBlock(value.content_block, value.index, found);
  const delta = value.delta;
  add(found.texts, 0, delta?.text);
  add(found.reasoning, 0, delta?.thinking);
  if (delta?.partial_json) found.calls.push(callOf(`${value.index}`, { arguments: delta.partial_json }));
  const usage = value.usage ?? value.message?.usage;
  found.prompt = usage?.input_tokens ?? null;
  found.generated = value.type === "message_start" ? null : (usage?.output_tokens ?? null);
  found.finish = value.stop_reason ?? delta?.stop_reason ?? null;
  return true;
}

function anthropicBlock(block, index, found) {
  add(found.texts, 0, block?.text);
  add(found.reasoning, 0, block?.thinking);
  if (block?.type !== "tool_use") return;
  const whole = Object.keys(block.input ?? {}).length > 0;
  found.calls.push(callOf(`${index}`, { name: block.name, arguments: whole ? JSON.stringify(block.input) : "" }, block.id));
}

function responses(value, found) {
  if (value?.object === "response") {
    value.output.forEach((item, at) => responsesItem(item, at, found));
    responsesEnd(value, found);
    return true;
  }
  if (typeof value?.type !== "string" || !value.type.startsWith("response.")) return false;
  const key = `${value.output_index}`;
  if (value.type === "response.output_text.delta") {
    add(found.texts, 0, value.delta);
    found.tokens.push(...responsesTokens(value.logprobs));
  } else if (/^response\.reasoning.*\.delta$/.test(value.type)) add(found.reasoning, 0, value.delta);
  else if (value.type === "response.function_call_arguments.delta") found.calls.push(callOf(key, { arguments: value.delta }));
  else if (value.type === "response.output_item.added" && value.item?.type === "function_call") {
    found.calls.push(callOf(key, { name: value.item.name }, value.item.call_id));
  } else if (/^response\.(completed|incomplete)$/.test(value.type)) responsesEnd(value.response, found);
  return true;
}

function responsesItem(item, index, found) {
  if (item.type === "function_call") found.calls.push(callOf(`${index}`, item, item.call_id));
  for (const part of item.content ?? []) {
    add(item.type === "reasoning" ? found.reasoning : found.texts, 0, part.text);
    found.tokens.push(...responsesTokens(part.logprobs));
  }
  for (const part of item.summary ?? []) add(found.reasoning, 0, part.text);
}

function responsesEnd(response, found) {
  found.prompt = response?.usage?.input_tokens ?? null;
  found.generated = response?.usage?.output_tokens ?? null;
  found.finish = response?.incomplete_details?.reason ?? response?.status ?? null;
}

const responsesTokens = (logprobs) => openaiTokens({ content: logprobs ?? [] });

function inputs(value, found) {
  const all = Array.isArray(value) ? value : [value];
  if (all.length === 0 || !all.every((one) => one?.token?.text !== undefined || one?.generated_text !== undefined)) {
    return false;
  }
  all.forEach((one, index) => {
    if (one.token) {
      if (!one.token.special) add(found.texts, one.index === undefined || all.length === 1 ? 0 : index, one.token.text);
      found.tokens.push(inputsToken(one.token, one.top_tokens));
    } else {
      add(found.texts, index, one.generated_text);
      const listed = one.details?.tokens ?? [];
      found.tokens.push(...listed.map((token, at) => inputsToken(token, one.details.top_tokens?.[at])));
    }
    found.generated = one.details?.generated_tokens ?? found.generated;
    found.finish = one.details?.finish_reason ?? found.finish;
  });
  return true;
}

const logprobOf = (token) => token.log_prob ?? token.logprob ?? null;
const inputsToken = (token, top) => ({
  text: token.text,
  logprob: logprobOf(token),
  top: (top ?? []).map((other) => [other.text, logprobOf(other)]),
});

function minimal(value, found) {
  if (typeof value?.message?.content !== "string") return false;
  add(found.texts, 0, value.message.content);
  if (value.done) found.finish = "done";
  return true;
}

function transcript(value, found) {
  // With segments it is more than the text.
  if (typeof value?.text !== "string" || value.segments) return false;
  add(found.texts, 0, value.text);
  return true;
}
