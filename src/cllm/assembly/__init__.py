"""Pure: history, system policy and context become the prompt that is sent. Does no I/O."""
