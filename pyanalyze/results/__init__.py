"""Result types: one class per thing, made by the analysis, drawn and written by the layers above it."""
