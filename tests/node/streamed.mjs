// A completion in pieces: plainly, and through the helper that puts them together.
import { asked, client, tell } from './judge.mjs';

const openai = client();
const stream = await openai.chat.completions.create({
  ...asked('Hello.'),
  stream: true,
  stream_options: { include_usage: true },
});
const pieces = [];
let usage = null;
for await (const chunk of stream) {
  pieces.push(...chunk.choices.map((choice) => choice.delta.content ?? ''));
  usage = chunk.usage ?? usage;
}

const helper = openai.chat.completions.stream(asked('Hello again.'));
const deltas = [];
helper.on('content', (delta) => deltas.push(delta));
const final = await helper.finalChatCompletion();

tell({ text: pieces.join(''), usage, deltas, final: final.choices[0].message.content });
