"""What `cllm doctor` looks at, one module for each subject.

A check only looks, unless it is told to fix. It sends nothing to anybody and shows no key.
"""
