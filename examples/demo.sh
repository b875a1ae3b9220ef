#!/bin/sh
# Demo with a local model: send a message, ask about it, show the conversation.
set -eu

heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# Use the local model and the default folder; ignore the environment.
unset CLLM_PATH CLLM_CONVERSATIONS_PATH
export CLLM_MODEL=local/smollm2-135m
folder=$HOME/.cllm/conversations
if [ -d .cllm/conversations ] || [ -e .cllm/cllm.db ]; then folder=.cllm/conversations; fi

heading '$ cllm "My cat is called Luna." --conversation demo'
cllm "My cat is called Luna." --conversation demo </dev/null

heading '$ cllm "What is my cat called?" --conversation demo'
cllm "What is my cat called?" --conversation demo </dev/null

heading '$ cllm --show-conversation demo'
cllm --show-conversation demo
heading "The conversation is the file $folder/demo.json."

heading 'Next steps:'
cat <<'TEXT'
  . .venv-demo/bin/activate                             use cllm from this environment
  cllm "Write a haiku about her." --conversation demo   continue the conversation
  cllm --list-conversations                             list all conversations
  cllm --help                                           show all options
TEXT
