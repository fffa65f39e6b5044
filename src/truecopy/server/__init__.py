"""The control plane over HTTP: every task seen and steered from one place."""
