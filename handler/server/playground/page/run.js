// One request, from the moment it is sent to the end of its response.

import { Splitter, formOf } from "./records.js";

const TURN_MS = 10;

/**
 * Sends a request and tells of its response: `onOpen` once its head is there, `onRecord` for each record, with the
 * milliseconds since it was sent. Rejects if there is no connection, or `signal` ends it.
 */
export async function run({ url, headers, body, streamed }, { onOpen, onRecord, signal }) {
  const begun = performance.now();
  const response = await fetch(url, { method: "POST", headers, body, signal, cache: "no-store" });
  const form = formOf(response.headers.get("content-type") ?? "", streamed, response.status);
  onOpen({
    status: response.status,
    reason: response.statusText,
    headers: [...response.headers],
    form,
    at: performance.now() - begun,
  });
  const splitter = new Splitter(form);
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let turn = performance.now();
  for (;;) {
    const { done, value } = await reader.read();
    const now = performance.now();
    const records = done ? [...splitter.push(decoder.decode()), ...splitter.end()] : splitter.push(decoder.decode(value, { stream: true }));
    for (const text of records) onRecord({ text, at: now - begun });
    if (done) return now - begun;
    if (now - turn > TURN_MS) {
      // Chunks that wait already would be read in one task.
      await new Promise((resume) => setTimeout(resume));
      turn = performance.now();
    }
  }
}
