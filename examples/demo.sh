#!/bin/sh
# Demo with a local model: a conversation of two questions, and what is saved of it.
set -eu

# Use the local model and the default folder; ignore the environment.
unset CLLM_PATH CLLM_CONVERSATIONS_PATH
export CLLM_MODEL=local/smollm2-135m
folder=$HOME/.cllm/conversations
if [ -d .cllm/conversations ]; then folder=.cllm/conversations; fi

# A new conversation each time.
name=demo number=1
while [ -e "$folder/$name.json" ]; do number=$((number + 1)) name=demo-$number; done

run() {
  printf '\033[1m$ %s\033[0m\n' "$1"
  eval "$1" </dev/null
}

run "cllm 'What is the capital of France?' --conversation $name"
run "cllm 'And of Italy?' --conversation $name"
run "cllm search Rome -n 1"

printf '\n\033[1mTry next:\033[0m\n'
printf '  %-46s %s\n' \
  ". .venv-demo/bin/activate" "use cllm from this environment" \
  "export CLLM_MODEL=$CLLM_MODEL" "without it, cllm uses the models of your API keys" \
  "cllm 'And of Spain?' --conversation $name" "continue the conversation" \
  "cllm conversations show $name --as-sent" "see what the model received" \
  "cllm chat $name" "chat in the terminal" \
  "pip install '.[server]' && cllm serve" "a server and a web page with the same conversations"
printf 'The conversation is %s. The tutorial is docs/tutorial.md.\n' "$folder/$name.json"
