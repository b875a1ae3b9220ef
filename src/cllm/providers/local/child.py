"""The child process: llama.cpp's server on loopback.

Reads its settings from standard input, where other users cannot see the key, writes its address,
and exits when standard input closes.
"""

import json
import os
import sys
import threading
from typing import Any


def main() -> None:
    os.umask(0o077)
    settings = json.loads(sys.stdin.buffer.readline())
    # llama.cpp's output goes to standard error: standard output is for the address alone.
    stdout = os.dup(1)
    os.dup2(2, 1)
    server = _serve(settings)
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    os.write(stdout, json.dumps({"address": server.listening_address}).encode() + b"\n")
    threading.Event().wait()


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # A normal exit would run llama.cpp's destructors during a request.
    os._exit(0)


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - after standard output was replaced

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.api_keys = [settings["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.slot_save_path = settings["slots"] + "/"
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    if settings["template"] is not None:
        params.chat_template = settings["template"]
    # Small batches: an abandoned request stops between two of them.
    params.n_batch = params.n_ubatch = 128
    params.cache_ram_mib = 0
    # Flash attention is slower on a CPU, by a fifth at 2,000 tokens.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Errors only: the parent shows them if the model does not start.
    params.verbosity = 1
    params.warmup = False
    params.fit_params = False
    params.ui = False
    params.cors_origins = ""
    params.cors_credentials = False
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
