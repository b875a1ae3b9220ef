// OpenAI's Conversations API: created, retrieved, updated, its items added, listed and deleted.
import { client, tell } from './judge.mjs';

const { conversations } = client({ maxRetries: 0 });
const found = {};

async function refuse(call) {
  try {
    await call;
  } catch (error) {
    return [error.status, error.code];
  }
  return null;
}

const { id } = await conversations.create({
  metadata: { topic: 'cats' },
  items: [{ type: 'message', role: 'user', content: 'My cat is called Luna.' }],
});
found.created = (await conversations.retrieve(id)).metadata;
found.updated = (await conversations.update(id, { metadata: { topic: 'dogs' } })).metadata;

const added = await conversations.items.create(id, {
  items: [
    { type: 'message', role: 'assistant', content: 'Luna, I see.' },
    { type: 'message', role: 'user', content: 'Thanks.' },
  ],
});
found.added = added.data.map((item) => item.role);

const listed = [];
for await (const item of conversations.items.list(id, { order: 'asc', limit: 1 })) listed.push(item);
found.listed = listed.map((item) => item.content[0].text);

const last = await conversations.items.retrieve(added.last_id, { conversation_id: id });
found.retrieved = last.content[0].text;
found.refused = await refuse(conversations.items.delete(listed[0].id, { conversation_id: id }));
await conversations.items.delete(last.id, { conversation_id: id });
found.rest = (await conversations.items.list(id)).data.length;

found.deleted = (await conversations.delete(id)).deleted;
found.missing = await refuse(conversations.retrieve(id));
tell(found);
