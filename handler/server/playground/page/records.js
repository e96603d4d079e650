// A response's bytes, cut into the records that it is made of, and what is in one of them.

const EVENT_END = /\r?\n\r?\n/g;

/** How a response is cut: server-sent events, lines, or not at all, where it is JSON or a text. */
export function formOf(contentType, streamed, status) {
  const kind = contentType.split(";")[0].trim().toLowerCase();
  if (kind === "text/event-stream") return "events";
  if (kind === "text/plain" && status === 200) return "text";
  if (kind.endsWith("jsonlines") || (streamed && status === 200)) return "lines";
  return "whole";
}

/** Cuts text that comes in pieces; `end` gives what is left. Records keep what ends them. */
export class Splitter {
  constructor(form) {
    this.form = form;
    this.rest = "";
  }

  push(text) {
    this.rest += text;
    if (this.form === "whole" || this.form === "text") return [];
    const records = [];
    let from = 0;
    if (this.form === "lines") {
      for (let at; (at = this.rest.indexOf("\n", from)) >= 0; from = at + 1) {
        records.push(this.rest.slice(from, at + 1));
      }
    } else {
      EVENT_END.lastIndex = 0;
      while (EVENT_END.exec(this.rest)) {
        records.push(this.rest.slice(from, EVENT_END.lastIndex));
        from = EVENT_END.lastIndex;
      }
    }
    this.rest = this.rest.slice(from);
    return records;
  }

  end() {
    const rest = this.rest;
    this.rest = "";
    return rest === "" ? [] : [rest];
  }
}

/** What a record carries: its JSON (undefined where it is none), of a text that of a transcript, and the name of its event. */
export function contentOf(record, form) {
  if (form === "text") return { event: "", value: { text: record } };
  let data = record;
  let event = "";
  if (form === "events") {
    const lines = record.split(/\r?\n/);
    data = lines
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5))
      .join("\n");
    event = lines.find((line) => line.startsWith("event:"))?.slice(6).trim() ?? "";
  }
  try {
    return { event, value: JSON.parse(data) };
  } catch {
    return { event, value: undefined };
  }
}
