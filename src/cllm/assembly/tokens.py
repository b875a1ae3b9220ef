"""How many tokens something is, where the provider did not say. An estimate, and marked as one."""

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 4


def estimate_tokens(message: Message) -> int:
    """About how many tokens a message takes: bytes serve English, code and Chinese alike."""
    return TOKENS_PER_MESSAGE + -(-len(message.text.encode()) // BYTES_PER_TOKEN)


def estimate_usage(prompt: Prompt, reply: Message) -> Usage:
    """The usage of a call whose provider reported none."""
    sent = sum(estimate_tokens(message) for message in prompt.all_messages)
    return Usage(input=sent, output=estimate_tokens(reply), estimated=True)
