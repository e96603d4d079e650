// Loops of one model of models.mjs, docs/agents.md's example, with tools of a program of its own.
//
// usage: node ai_sdk.mjs MODEL, in a folder with loops.json, picture.png and the MCP server's command in mcp.json
// It writes what its user would see: an object of the loops' names.
import { readFile } from 'node:fs/promises'
import { createMCPClient } from '@ai-sdk/mcp'
import { Experimental_StdioMCPTransport as Stdio } from '@ai-sdk/mcp/mcp-stdio'
import { generateText, isStepCount, Output, streamText, tool } from 'ai'
import { z } from 'zod'
import * as models from './models.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false
const { [process.argv[2]]: model, providerOptions } = models
const picture = await readFile('picture.png')
const file = { type: 'file', mediaType: 'image/png', data: { type: 'data', data: picture.toString('base64') } }
const mcp = await createMCPClient({ transport: new Stdio(JSON.parse(await readFile('mcp.json'))) })
const tools = {
  ...(await mcp.tools()),
  read_file: tool({
    description: 'Reads a file',
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => readFile(path, 'utf8'),
  }),
  look: tool({
    description: 'Looks through the camera',
    inputSchema: z.object({}),
    execute: () => 'seen',
    toModelOutput: () => ({ type: 'content', value: [{ type: 'text', text: 'The view:' }, file] }),
  }),
}
const conversations = {}
const output = Output.object({ schema: z.object({ color: z.string() }) })

async function play({ name, prompt, whole, pictured, after, formed }) {
  const content = [{ type: 'text', text: prompt }, ...(pictured ? [file] : [])]
  const messages = [...(after ? conversations[after] : []), { role: 'user', content }]
  const settings = { temperature: 0.5, topP: 0.9, maxOutputTokens: 1000, maxRetries: 0, stopWhen: isStepCount(5) }
  const asked = { model, providerOptions, tools, messages, ...settings, ...(formed ? { output } : {}) }
  const told = {}
  const onError = ({ error: { name, message, statusCode, isRetryable } }) => {
    told.error = { name, message, statusCode, isRetryable }
  }
  const result = whole ? await generateText(asked) : streamText({ ...asked, onError })
  const steps = await result.steps
  conversations[name] = [...messages, ...(await result.responseMessages)]
  const parts = steps.flatMap((step) => step.content)
  const of = (kind) => parts.filter((part) => part.type === kind)
  return {
    ...told,
    text: (await result.text).trim(),
    thoughts: of('reasoning').map((part) => part.text.trim()),
    results: of('tool-result').map((part) => part.output),
    failed: of('tool-error').map((part) => String(part.error)),
    finishes: steps.map((step) => step.finishReason),
    object: formed ? await result.output : null,
    unsupported: steps.flatMap((step) => step.warnings ?? []).filter(({ type }) => type === 'unsupported'),
    tokens: steps.map((step) => step.usage.outputTokens),
  }
}

const seen = {}
for (const loop of JSON.parse(await readFile('loops.json'))) seen[loop.name] = await play(loop)
await mcp.close()
console.log(JSON.stringify(seen))
