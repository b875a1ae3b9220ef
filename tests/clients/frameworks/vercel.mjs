// Scenarios of the Vercel AI SDK in its default settings: `vercel.mjs SCENARIO MODEL`.
// Prints what the SDK returns as JSON.

import { openai } from "@ai-sdk/openai";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const PDF = "JVBERi0xLjQKJSVFT0YK";
const system = "Be brief.";
const Capital = z.object({ city: z.string(), inhabitants: z.number().int() });
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `Rain in ${city}.`,
});
const loop = { system, tools: { weather }, stopWhen: stepCountIs(5), maxRetries: 0 };
const ASKED = { role: "user", content: "How is the weather?" };
const THANKS = { role: "user", content: "Thanks." };

async function twoTurns(model, options) {
  const first = await generateText({ ...loop, model, messages: [ASKED], providerOptions: options });
  const messages = [ASKED, ...first.responseMessages, THANKS];
  const second = await generateText({ ...loop, model, messages, providerOptions: options });
  return [first.text, second.text];
}

const scenarios = {
  text: async (model) => (await generateText({ model, system, prompt: "Hello." })).text,

  stream: async (model) => {
    const result = streamText({ model, system, prompt: "Hello." });
    const pieces = [];
    for await (const piece of result.textStream) pieces.push(piece);
    return { pieces, output: await result.text };
  },

  tools: (model) => twoTurns(model),

  streamed_tools: async (model) => {
    const first = streamText({ ...loop, model, messages: [ASKED] });
    await first.consumeStream();
    const messages = [ASKED, ...(await first.responseMessages), THANKS];
    const second = streamText({ ...loop, model, messages });
    await second.consumeStream();
    return [await first.text, await second.text];
  },

  structured: async (model) => {
    const output = Output.object({ schema: Capital });
    return (await generateText({ model, output, prompt: "The capital of France?" })).output;
  },

  previous_response: async (model) => {
    const first = await generateText({ model, system, prompt: "Hello." });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const providerOptions = { openai: { previousResponseId } };
    const second = await generateText({ model, system, prompt: "Thanks.", providerOptions });
    return [first.text, second.text];
  },

  // References to all items of the history, also reasoning.
  reasoning: async (model) => {
    const providerOptions = { openai: { reasoningEffort: "low", reasoningSummary: "auto" } };
    const first = await generateText({ ...loop, model, messages: [ASKED], providerOptions });
    const messages = [ASKED, ...first.responseMessages, THANKS];
    const second = await generateText({ ...loop, model, messages, providerOptions });
    const thoughts = first.steps.flatMap((step) => step.reasoning.map((part) => part.text));
    return [thoughts, first.text, second.text];
  },

  not_stored: (model) =>
    twoTurns(model, { openai: { store: false, reasoningEffort: "low", reasoningSummary: "auto" } }),

  media: async (model) => {
    const content = [
      { type: "text", text: "What is this?" },
      { type: "file", data: Buffer.from(PIXEL, "base64"), mediaType: "image/png" },
      { type: "file", data: Buffer.from(PDF, "base64"), mediaType: "application/pdf", filename: "a.pdf" },
    ];
    return (await generateText({ model, system, messages: [{ role: "user", content }] })).text;
  },

  error: async (model) => {
    try {
      await generateText({ model, prompt: "Hello.", maxRetries: 0 });
    } catch (error) {
      const code = JSON.parse(error.responseBody).error.code;
      const kind = APICallError.isInstance(error) ? "APICallError" : error.name;
      return [kind, error.statusCode, code];
    }
    return null;
  },

  cancel: async (model) => {
    const controller = new AbortController();
    const result = streamText({ model, prompt: "Count.", abortSignal: controller.signal });
    for await (const _ of result.textStream) controller.abort();
    return "cancelled";
  },
};

const [scenario, model] = process.argv.slice(2);
console.log(JSON.stringify(await scenarios[scenario](openai(model))));
