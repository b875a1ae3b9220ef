// The Responses API: created, streamed, parsed, continued, retrieved, listed, cancelled, deleted.
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { client, model, tell } from './judge.mjs';

const { responses } = client({ maxRetries: 0 });
const instructions = 'Speak like the pirate Blackbeard.';
const found = {};

const first = await responses.create({ model, input: 'My cat is called Luna.', instructions });
found.text = first.output_text;
found.echoed = first.instructions === instructions;

const second = await responses.create({
  model,
  input: 'What is my cat called?',
  previous_response_id: first.id,
});
const retrieved = await responses.retrieve(second.id);
found.retrieved = retrieved.output_text;
found.previous = retrieved.previous_response_id === first.id;
found.instructions = retrieved.instructions;

const stream = responses.stream({ model, input: 'Hello.' });
found.events = [];
for await (const event of stream) found.events.push(event.type);
found.final = (await stream.finalResponse()).output_text;

const Capital = z.object({ city: z.string(), inhabitants: z.number().int() });
const parsed = await responses.parse({
  model,
  input: 'The capital of France?',
  text: { format: zodTextFormat(Capital, 'capital') },
});
found.parsed = parsed.output_parsed;

found.items = [];
for await (const item of responses.inputItems.list(second.id)) found.items.push(item.type);

const running = await responses.create({ model, input: 'Wait.', background: true });
found.running = running.status;
found.cancelled = (await responses.cancel(running.id)).status;

await responses.delete(first.id);
try {
  await responses.retrieve(first.id);
} catch (error) {
  found.deleted = error.status;
}
tell(found);
