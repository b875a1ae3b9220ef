// A conversation by a header: begun with one request, then the client's own for all that follow.
import { asked, client, model, tell } from './judge.mjs';

const begun = await client()
  .chat.completions.create(asked('My cat is called Luna.'), {
    headers: { 'X-Conversation-ID': 'null' },
  })
  .withResponse();
const conversation = begun.response.headers.get('x-conversation-id');

const continuing = client({ defaultHeaders: { 'X-Conversation-ID': conversation } });
const second = await continuing.chat.completions.create(asked('What is my cat called?'));
const again = await continuing.chat.completions.create({ model, messages: [] });
const shown = await continuing.get(`/conversations/${conversation}`);
const listed = await continuing.models.list();

tell({
  conversation,
  second: second.choices[0].message.content,
  again: again.choices[0].message.content,
  messages: shown.messages.map(({ role, content }) => [role, content]),
  models: listed.data.map(({ id }) => id),
});
