// Loops of one model of models.mjs, docs/agents.md's example, with tools of a program of its own.
//
// usage: node ai_sdk.mjs QUESTIONS (tests/kit/agents/loops.py), in a folder with picture.png; the environment has the
// name of the model and the MCP server's command. It writes a line of what its user would see for each loop.
import { readFile } from 'node:fs/promises'
import { createMCPClient } from '@ai-sdk/mcp'
import { Experimental_StdioMCPTransport as Stdio } from '@ai-sdk/mcp/mcp-stdio'
import { generateText, isStepCount, Output, streamText, tool } from 'ai'
import { z } from 'zod'
import * as models from './configured.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false
const { [process.env.MODEL]: model, providerOptions } = models
const [command, ...args] = JSON.parse(process.env.MCP)
const picture = await readFile('picture.png')
const file = { type: 'file', mediaType: 'image/png', data: { type: 'data', data: picture.toString('base64') } }
const mcp = await createMCPClient({ transport: new Stdio({ command, args }) })
const tools = {
  ...(await mcp.tools()),
  read_file: tool({
    description: 'Reads a file',
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => readFile(path, 'utf8'),
  }),
  flood: tool({
    description: 'More than a model can read',
    inputSchema: z.object({}),
    execute: () => 'drop '.repeat(80000),
  }),
  look: tool({
    description: 'Looks through the camera',
    inputSchema: z.object({}),
    execute: () => 'seen',
    toModelOutput: () => ({ type: 'content', value: [{ type: 'text', text: 'The view:' }, file] }),
  }),
}
const output = Output.object({ schema: z.object({ color: z.string() }) })
const shown = (result) => (typeof result === 'string' ? result : result.content.map((part) => part.text ?? part.mimeType).join())

async function play(loop, prompt, before) {
  const formed = loop === 'formed'
  const content = [{ type: 'text', text: prompt }, ...(formed || loop === 'picture' ? [file] : [])]
  const messages = [...before, { role: 'user', content }]
  const settings = { temperature: 0.5, topP: 0.9, maxOutputTokens: 1000, maxRetries: 0, stopWhen: isStepCount(5) }
  const asked = { model, providerOptions, tools, messages, ...settings, ...(formed ? { output } : {}) }
  const told = {}
  const onError = ({ error: { name, message, statusCode, isRetryable } }) => {
    Object.assign(told, { error: name, message, statusCode, isRetryable })
  }
  const result = loop === 'whole' ? await generateText(asked) : streamText({ ...asked, onError })
  const steps = await result.steps
  const parts = steps.flatMap((step) => step.content)
  const of = (kind) => parts.filter((part) => part.type === kind)
  // Several calls at once are answered in any order.
  const results = [...of('tool-error').map((part) => String(part.error)), ...of('tool-result').map((part) => shown(part.output)).sort()]
  return {
    ...told,
    answer: await result.text,
    thoughts: of('reasoning').map((part) => part.text).filter((text) => text.trim()),
    results,
    finishes: steps.map((step) => step.finishReason),
    object: formed ? await result.output : null,
    unsupported: steps.flatMap((step) => step.warnings ?? []).filter(({ type }) => type === 'unsupported'),
    tokens: steps.map((step) => step.usage.outputTokens),
    messages: [...messages, ...(await result.responseMessages)],
  }
}

for (const [loop, questions] of Object.entries(JSON.parse(process.argv[2]))) {
  let told = { messages: [] }
  for (const question of questions) told = await play(loop, question, told.messages)
  console.log(JSON.stringify({ loop, ...told, messages: undefined }).replace('{"loop":', '{"loop": '))
}
await mcp.close()
