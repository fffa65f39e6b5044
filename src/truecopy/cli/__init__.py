"""Commands: thin; they parse, call the library and print what it says."""
