// The head of a stream is there before its first chunk: says so, and reads on.
import { asked, client, tell } from './judge.mjs';

const { data, response } = await client()
  .chat.completions.create(
    { ...asked('Hello.'), stream: true },
    { headers: { 'X-Conversation-ID': '' } },
  )
  .withResponse();
tell({ conversation: response.headers.get('x-conversation-id') });

let text = '';
for await (const chunk of data) {
  text += chunk.choices[0]?.delta.content ?? '';
}
tell({ text });
