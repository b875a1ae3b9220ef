// A conversation by one header: begun, and gone on with only what is new.
import { asked, client, tell, textOf } from './claude.mjs';

const anthropic = client();
const { response } = await anthropic.messages
  .create(asked('My cat is called Luna.'), { headers: { 'X-Conversation-ID': '' } })
  .withResponse();
const conversation = response.headers.get('x-conversation-id');
const message = await anthropic.messages
  .stream(asked('What is my cat called?'), { headers: { 'X-Conversation-ID': conversation } })
  .finalMessage();
tell({ conversation, text: textOf(message) });
