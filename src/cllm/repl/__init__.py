"""`cllm chat`: a surface in the terminal. It reads words and shows events, and decides nothing."""
