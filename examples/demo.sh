#!/bin/sh
# The main job, with a real model on this machine: say something, ask about it, look at the file.
set -eu

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# The model of this machine and the usual folder, whatever the environment says.
unset CLLM_PATH CLLM_CONVERSATIONS_PATH
export CLLM_MODEL=local/smollm2-135m
folder=$HOME/.cllm/conversations
if [ -d .cllm/conversations ] || [ -e .cllm/cllm.db ]; then folder=.cllm/conversations; fi

say '$ cllm "My cat is called Luna." --conversation demo'
cllm "My cat is called Luna." --conversation demo </dev/null

say '$ cllm "What is my cat called?" --conversation demo'
cllm "What is my cat called?" --conversation demo </dev/null

say "The conversation is a file, $folder/demo.json:"
cat "$folder/demo.json"

say 'To go on:'
cat <<'TEXT'
  . .venv-demo/bin/activate                             use this environment's cllm in this shell
  cllm "Write a haiku about her." --conversation demo   the next turn
  cllm --show-conversation demo                         read it
  cllm --list-conversations                             see all of them
  cllm --help                                           everything else
TEXT
