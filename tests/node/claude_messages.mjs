// A message whole, one in pieces by the helper, raw events, thinking, and a count of tokens.
import { asked, client, model, tell, textOf } from './claude.mjs';

const anthropic = client();
const message = await anthropic.messages.create(asked('Hello.', { system: 'Be brief.' }));

const stream = anthropic.messages.stream(asked('Hello again.'));
const pieces = [];
stream.on('text', (piece) => pieces.push(piece));
const final = await stream.finalMessage();

const kinds = [];
for await (const event of await anthropic.messages.create(asked('Raw.', { stream: true }))) {
  if (event.type !== 'ping') kinds.push(event.type);
}

const thought = await anthropic.messages
  .stream(asked('Think.', { thinking: { type: 'enabled', budget_tokens: 1024 } }))
  .finalMessage();
const counted = await anthropic.messages.countTokens({
  model,
  messages: [{ role: 'user', content: 'Hello.' }],
});

tell({
  text: textOf(message),
  stop: message.stop_reason,
  usage: [message.usage.input_tokens, message.usage.output_tokens],
  pieces,
  final: textOf(final),
  finalUsage: [final.usage.input_tokens, final.usage.output_tokens],
  kinds,
  thought: thought.content,
  counted: counted.input_tokens,
});
