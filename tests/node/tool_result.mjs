// In a conversation only what is new is sent: the question, then the result that was asked for.
import { asked, client, model, tell } from './judge.mjs';

const begun = await client()
  .chat.completions.create(asked('What is the weather in Paris?'), {
    headers: { 'X-Conversation-ID': '' },
  })
  .withResponse();
const conversation = begun.response.headers.get('x-conversation-id');
const [call] = begun.data.choices[0].message.tool_calls;

const answer = await client({ defaultHeaders: { 'X-Conversation-ID': conversation } })
  .chat.completions.create({
    model,
    messages: [{ role: 'tool', tool_call_id: call.id, content: 'Rain.' }],
  });
tell({ conversation, text: answer.choices[0].message.content });
