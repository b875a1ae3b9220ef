"""`cllm chat`: a surface in the terminal. Reads words and shows events; the engine does the rest."""
