"""How a source row becomes a target row: routes, choices of rows and columns, transformers."""
