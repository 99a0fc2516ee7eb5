"""Models and training states on disk: Hugging Face, GGUF and Orbax."""
