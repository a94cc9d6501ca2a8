"""One rank's image on disk: blocks, packs, writing and reading them."""
