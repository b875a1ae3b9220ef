// A completion in one piece, and what the library reads of its head.
import { asked, client, tell } from './judge.mjs';

const { data, response, request_id } = await client()
  .chat.completions.create(asked('Hello.'))
  .withResponse();

tell({
  text: data.choices[0].message.content,
  finish: data.choices[0].finish_reason,
  usage: data.usage,
  requestId: request_id,
  conversation: response.headers.get('x-conversation-id'),
});
