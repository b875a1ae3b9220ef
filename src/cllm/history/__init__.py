"""Pure: which histories providers accept, their repair, cache breakpoints and system prompts."""
