"""Where events go: the lake, or nowhere."""
